"""Functions of comprehensions as kernels in C, compiled for the shapes of their arguments."""

from __future__ import annotations

import ctypes
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.comprehension.calls import listed
from eqsat.language.comprehension.engine import gradient_function
from eqsat.language.comprehension.evaluation import evaluate
from eqsat.language.comprehension.extents.free import check_free, holds_at, with_free
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.pytorch import is_recorded, is_traced, mark_written, recorded, traced
from eqsat.language.terms import Array
from eqsat.language.terms.dims import Sym
from eqsat.language.terms.dims import evaluate as evaluate_dim
from eqsat.runtime.c.blas import blas_pointers
from eqsat.runtime.c.library import Entry, libraries
from eqsat.runtime.cuda.device.functions import DeviceFunction
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.nests.comprehensions import lowered
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.extents import LONGEST
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.printing.c_printer import ALIGNMENT, FunctionText, c_function
from eqsat.runtime.kernels.nests.scheduling.schedule import scheduled


def c_text(computation: Computation, options: MappingOptions) -> FunctionText:
    """The text in C of a computation."""
    return c_function(computation, scheduled(computation, options), options.threads)


def computation_of(function: TensorFunction, inferred: Inferred, given: Sequence[str] = ()) -> Computation:
    """The computation of a function at shapes; BackendError where C has no form of it."""
    try:
        return lowered(function, inferred, frozenset(given))
    except UnsupportedError as error:
        raise BackendError(
            f"{function.name} has no C: {error}",
            where=function.name,
            expected="element types and functions that C has",
            remedy="call the function itself, which NumPy computes",
        ) from None


@dataclass(frozen=True)
class CompiledFunction:
    """A function compiled for shapes; with `sizes`, as called for these values of sizes that its text leaves free."""

    function: TensorFunction
    inferred: Inferred
    given: frozenset[str]
    text: FunctionText
    entry: Entry
    array_entry: Entry
    sizes: tuple[int, ...] = ()
    _workspaces: threading.local = field(default_factory=threading.local)

    @cached_property
    def result_types(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """The shape and the element type of each result."""
        shapes = [self.inferred.shapes[name] for name in self.function.results]
        dtypes = [self.function.types[name].numpy for name in self.function.results]
        return [(tuple(map(int, map(str, shape))), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]

    def at(self, inferred: Inferred) -> CompiledFunction:
        """The same code for a call's values of the sizes that it leaves free."""
        sizes = [size for size in self.function.scope.sizes if isinstance(self.inferred.known[size], Sym)]
        return replace(self, inferred=inferred, sizes=tuple(evaluate_dim(inferred.known[size], {}) for size in sizes))

    def run(self, tensors: Mapping[str, Array]) -> tuple[Array, ...]:
        """The results for tensors by name; the errors of a call where subscripts or divisors do not fit.

        BackendError where the kernel fails and the function does not.
        """
        function = self.function
        operands, results = self._arrays(tensors)
        if self._call(operands, results)():
            evaluate(function.scope, function.types, self.inferred, tensors)
            raise BackendError("a kernel that fails where its comprehension does not", where=function.name)
        return tuple(results)

    def takes(self, results: Sequence[Array], tensors: Mapping[str, Array]) -> bool:
        """True of memory that the kernel may write its results to at once.

        It lies side by side, and apart from all that the kernel reads; and a call that fails leaves what was there,
        so that none of a kernel that can fail is.
        """
        return (
            not self.text.can_fail
            and not self.given
            and all(one.flags.c_contiguous for one in results)
            and not any(np.may_share_memory(one, other) for one in results for other in tensors.values())
        )

    def write(self, results: Sequence[Array], tensors: Mapping[str, Array]) -> None:
        """Compute the results into memory that the kernel takes."""
        operands = [np.ascontiguousarray(tensors[one.name]) for one in self.function.scope.function.parameters]
        self._call(operands, results)()

    def bound(self, tensors: Mapping[str, Array]) -> Callable[[], int]:
        """A call that computes the results of arrays that are looked at once; for measuring."""
        return self._call(*self._arrays(tensors))

    def _arrays(self, tensors: Mapping[str, Array]) -> tuple[list[Array], list[Array]]:
        """The operands, contiguous, and arrays for the results."""
        operands = [np.ascontiguousarray(tensors[one.name]) for one in self.function.scope.function.parameters]
        results = []
        for name, (shape, dtype) in zip(self.function.results, self.result_types, strict=True):
            made = np.array(tensors[name], dtype, order="C") if name in self.given else np.empty(shape, dtype)
            results.append(made)
        return operands, results

    def _call(self, operands: Sequence[Array], results: Sequence[Array]) -> Callable[[], int]:
        """A call that writes the results and returns 0, or 1 where a subscript did not fit; arrays are contiguous."""
        values = [*(array.ctypes.data for array in (*operands, *results)), *self.sizes, self._workspace()]
        pointers = (ctypes.c_void_p * len(values))(*values)
        kept = operands, results

        def call() -> int:
            assert kept  # as long as their addresses are
            return self.entry(pointers)

        return call

    def call_arrays(self, operands: Sequence[Array]) -> Any:
        """The results of contiguous arrays of the right types and shapes, as a call returns them; None if it fails."""
        results = [np.empty(shape, dtype) for shape, dtype in self.result_types]
        if self.array_entry(*map(id, operands), *map(id, results), *self.sizes, self._workspace()):
            return None
        return results[0] if len(results) == 1 else tuple(results)

    @cached_property
    def _workspace_bytes(self) -> int:
        return self.text.workspace_at(self.sizes) + ALIGNMENT

    def _workspace(self) -> int:
        """The address of memory for temporaries, one of each thread; it grows with the sizes of calls."""
        known: tuple[Array, int] | None = getattr(self._workspaces, "memory", None)
        if known is None or known[0].size < self._workspace_bytes:
            memory = np.empty(self._workspace_bytes, np.uint8)
            known = memory, -(-memory.ctypes.data // ALIGNMENT) * ALIGNMENT
            self._workspaces.memory = known
        return known[1]


def compiled(
    function: TensorFunction, inferred: Inferred, given: frozenset[str], options: MappingOptions
) -> CompiledFunction:
    """A function compiled for shapes, `at` whose values it is called where they leave sizes free.

    BackendError where it has no C, or there is no compiler.
    """
    text = c_text(computation_of(function, inferred, tuple(given)), options)
    flags = ("-fopenmp",) if options.threads > 1 else ()
    if flags and not libraries().compiler.has_threads:
        raise BackendError(
            f"threads = {options.threads} with {' '.join(libraries().compiler.command)}",
            where=function.name,
            expected="a compiler with OpenMP",
            remedy="take threads=1, or set CC to gcc or clang with OpenMP",
        )
    entry = libraries().entry(text.complete, text.entry, flags)
    for name in text.blas:
        libraries().entry(text.complete, f"set_{name}", flags)(blas_pointers(name))
    arrays = libraries().entry(text.complete, text.array_entry, flags, len(text.arguments) + len(text.sizes) + 1)
    return CompiledFunction(function, inferred, given, text, entry, arrays)


#: Chooses options for a call: of a function, and its ranges and shapes.
Chooser = Callable[[TensorFunction, Inferred], MappingOptions]


class ComprehensionKernel:
    """A function of a comprehension in C: called as the function is, and compiled once for the shapes of a call.

    Where a GPU of NVIDIA's holds all arrays of a call, and CuPy is there to launch, it is computed by kernels for it.

    Sizes that are `free` are arguments of what is compiled, which serves all of their values. Results that `out` takes
    are computed there at once where that is memory of its own, else apart and copied. Results are those of the
    function, but for the order of sums. PyTorch's autograd gets gradients of kernels too, and graphs that it traces a
    call by the text of the function, `options` (as JSON has them) and `free`.
    """

    def __init__(self, function: TensorFunction, choose: Chooser, options: Any, free: Sequence[str] = ()) -> None:
        self.function, self._choose, self.free = function, choose, check_free(function, free)
        self._options, self._kept = options, json.dumps({"options": options, "free": self.free})
        self._compiled: dict[Any, CompiledFunction] = {}
        self._for_all: dict[Any, CompiledFunction] = {}
        self._direct: dict[Any, CompiledFunction] = {}
        self._gradients: dict[tuple[str, ...], ComprehensionKernel] = {}
        self._on_gpu = DeviceFunction(function, self.free)
        self._types = tuple(function.types[one.name].numpy for one in function.scope.function.parameters)

    def __repr__(self) -> str:
        return f"Kernel({self.function.name}, {len({id(one.entry) for one in self._compiled.values()})} compiled)"

    def __call__(self, /, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """The results; ShapeError or UsageError for arguments that do not fit, BoundsError for indices that do not."""
        if is_traced():
            return traced(self.function.whole_source, self._kept, arguments, named, out)
        if out is None and not named:
            made = self._straight(arguments)
            if made is not None:
                return made
        if out is None and is_recorded((*arguments, *named.values())):
            given = self.function.by_name(arguments, named)
            return recorded(self, self._gradient, self.function.parameters, given)
        number = self._on_gpu.takes((*arguments, *named.values())) if out is None else None
        if number is not None:
            made = self._on_gpu.call(number, arguments, named)
            if made is not None:
                return made
        inferred, tensors = self.function.bind(arguments, named)
        compiled = self._at(inferred, tensors)
        if out is not None:
            arrays = self.function.destinations(out, compiled.result_types, (*arguments, *named.values()))
            if compiled.takes(arrays, tensors):
                compiled.write(arrays, tensors)
            else:
                for array, made in zip(arrays, compiled.run(tensors), strict=True):
                    array[...] = made
            mark_written(listed(out))
            return out
        return self.function.deliver(compiled.run(tensors), arguments, named)

    def bind(self, /, *arguments: Any, **named: Any) -> Callable[[], int]:
        """A call of the compiled kernel alone, on arrays that are looked at once; for measuring.

        It writes results of its own, and returns 0, or 1 where a subscript did not fit.
        """
        inferred, tensors = self.function.bind(arguments, named)
        return self._at(inferred, tensors).bound(tensors)

    def _gradient(self, *names: str) -> ComprehensionKernel:
        """The kernel of the gradient in parameters, by options chosen likewise."""
        if names not in self._gradients:
            gradient = gradient_function(self.function, names)
            free = [name for name in self.free if name in gradient.scope.sizes]
            self._gradients[names] = ComprehensionKernel(gradient, self._choose, self._options, free)
        return self._gradients[names]

    def _at(self, inferred: Inferred, tensors: Mapping[str, Array]) -> CompiledFunction:
        given = frozenset(name for name in self.function.scope.updated if name in tensors)
        key = (*shapes_of(self.function, inferred), given)
        if key not in self._compiled:
            self._compiled[key] = self._made(inferred, given)
        return self._compiled[key]

    def _made(self, inferred: Inferred, given: frozenset[str]) -> CompiledFunction:
        """The code for the shapes of a call: that of all values of free sizes, unless an extent is 0 or too large."""
        if self.free:
            opened = with_free(self.function, inferred, self.free)
            if holds_at(opened, inferred, self.free, LONGEST):
                key = (*shapes_of(self.function, opened), given)
                if key not in self._for_all:
                    self._for_all[key] = compiled(self.function, opened, given, self._choose(self.function, opened))
                return self._for_all[key].at(inferred)
        return compiled(self.function, inferred, given, self._choose(self.function, inferred))

    def _straight(self, arguments: Sequence[Any]) -> Any:
        """The results of a call whose arrays are as those of an earlier one; None where anything is to be looked at."""
        key: list[object] = []
        for array in arguments:
            if type(array) is not np.ndarray:
                return None
            key += (array.dtype, array.shape, array.strides)
        signature = tuple(key)
        found = self._direct.get(signature)
        if found is None:
            if not self._is_direct(arguments):
                return None
            found = self._direct[signature] = self._at(*self.function.bind(arguments, {}))
        return found.call_arrays(arguments)

    def _is_direct(self, arguments: Sequence[Any]) -> bool:
        """True of arrays that a kernel takes as they are, where their shapes decide all."""
        return (
            _has_known_layout()
            and not self.function.needs
            and len(arguments) == len(self._types)
            and all(
                one.dtype == dtype and one.flags.c_contiguous for one, dtype in zip(arguments, self._types, strict=True)
            )
        )


@cache
def _has_known_layout() -> bool:
    """True if arrays of NumPy keep the address of their elements behind the head of an object, as C reads it."""
    array = np.arange(3.0)
    return ctypes.c_void_p.from_address(id(array) + object.__basicsize__).value == array.ctypes.data


def shapes_of(function: TensorFunction, inferred: Inferred) -> tuple[str, ...]:
    """The shapes of the parameters, and the sizes and integers that ranges depend on, as text."""
    shapes = [
        f"{one.name}:{function.types[one.name].value}{list(inferred.shapes[one.name])}"
        for one in function.scope.function.parameters
    ]
    return (*shapes, *(f"{name}={value}" for name, value in inferred.known.items()))
