"""Comprehensions as functions of Python: defined from text, called with arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np

from eqsat.errors import ComprehensionNameError, RangeError, ShapeError, UsageError, nearest
from eqsat.language.comprehension.affine import affine
from eqsat.language.comprehension.bounds import check_bounds, check_defined
from eqsat.language.comprehension.canonical import canonical
from eqsat.language.comprehension.element_types import NAMED
from eqsat.language.comprehension.evaluation import evaluate
from eqsat.language.comprehension.parser import fault, parse
from eqsat.language.comprehension.printer import print_function
from eqsat.language.comprehension.ranges import Inferred, infer
from eqsat.language.comprehension.resolver import resolve
from eqsat.language.comprehension.scopes import Scope
from eqsat.language.comprehension.syntax import Binary, Expression, Parameter, walk
from eqsat.language.comprehension.typed import typed
from eqsat.language.graphs.builder import Builder, Tensor
from eqsat.language.terms import Array, Dim, DType, TensorType
from eqsat.language.terms.dims import Sym

#: The most elements of a tensor, and the largest value of an index.
MOST = 2**48


def comprehension(source: str) -> Comprehension:
    """The functions that a source defines in the language of tensor comprehensions (arXiv 1802.04730).

    Each is an attribute by its name, and called with arrays: of NumPy, or that speak DLPack, as those of PyTorch do.
    ComprehensionError, with the line and a caret, for a source that means nothing.

    >>> import numpy as np
    >>> f = comprehension("def mv(float(M,K) A, float(K) x) -> (C) { C(i) +=! A(i,k) * x(k) }")
    >>> f.mv(np.eye(2, dtype=np.float32), np.array([3, 4], np.float32))
    array([3., 4.], dtype=float32)
    """
    return Comprehension(source)


class Comprehension(Mapping[str, "TensorFunction"]):
    """The functions of a source, by name; each is an attribute too."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._functions: dict[str, TensorFunction] = {}
        for function in parse(source):
            if function.name in self._functions:
                raise fault(
                    ComprehensionNameError,
                    f"{function.name} is defined twice",
                    source,
                    function.place,
                    expected="one definition of each name",
                )
            self._functions[function.name] = TensorFunction(resolve(function, source))

    def __getattr__(self, name: str) -> TensorFunction:
        functions = self.__dict__.get("_functions", {})
        if name not in functions:
            raise AttributeError(f"no function {name!r}; {nearest(name, functions) or ', '.join(functions)}")
        found: TensorFunction = functions[name]
        return found

    def __getitem__(self, name: str) -> TensorFunction:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._functions]

    def __repr__(self) -> str:
        return f"Comprehension({', '.join(self._functions)})"


class TensorFunction:
    """A function of a comprehension: `f(A, x)` computes its results, one array or a tuple of them.

    Scalars are numbers. A result that is read before it is defined is passed by its name: `f(a, A, C=C)`; it is 0
    otherwise. `out` takes arrays for the results, which may share memory with the parameters.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.types = typed(scope)
        self.symbolic  # noqa: B018  (what fails for all sizes is told of where the function is defined)

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.scope.function.name

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of what its writer may have meant otherwise."""
        return self.scope.warnings

    @property
    def temporaries(self) -> tuple[str, ...]:
        """The tensors that are defined and not returned."""
        return self.scope.temporaries

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the tensors that are returned."""
        return tuple(one.name for one in self.scope.function.results)

    @property
    def needs(self) -> tuple[str, ...]:
        """The integer scalars whose values ranges and subscripts may depend on."""
        parameters = self.scope.function.parameters
        return tuple(one.name for one in parameters if not one.extents and _is_whole(one))

    @property
    def operands(self) -> tuple[str, ...]:
        """The parameters that are operands in a graph: all but integer scalars, which are attributes."""
        return tuple(one.name for one in self.scope.function.parameters if one.name not in self.needs)

    @cached_property
    def canonical(self) -> str:
        """The text with names that do not matter replaced: equal of functions that differ in names alone."""
        return canonical(self.scope)

    @cached_property
    def symbolic(self) -> Inferred | None:
        """The ranges and shapes for all sizes; None where they depend on integer scalars, or on quotients of sizes."""
        known: dict[str, Dim] = {size: Sym.named(size) for size in self.scope.sizes}
        shapes = {one.name: _shape(one, known) for one in self.scope.function.parameters}
        try:
            inferred = infer(self.scope, shapes, known | {name: Sym.named(name) for name in self.needs})
        except RangeError:
            if self.needs or any(_is_late(bound, known) for bound in self._bounds()):
                return None
            raise
        check_bounds(self.scope, inferred)
        return inferred

    def inferred(self, shapes: Mapping[str, Sequence[Dim]], scalars: Mapping[str, int] | None = None) -> Inferred:
        """The ranges and shapes for shapes of the parameters; ShapeError, RangeError or BoundsError."""
        given = tuple((one.name, tuple(shapes[one.name])) for one in self.scope.function.parameters)
        numbers = tuple((scalars or {}).items())
        if all(type(dim) is int for _, dims in given for dim in dims):
            return self._recalled(given, numbers)
        return self._inferred(given, numbers)

    @cached_property
    def _recalled(self) -> Callable[..., Inferred]:
        """Ranges and shapes that were inferred before: laws are looked at on the same shapes again and again."""
        return lru_cache(maxsize=256)(self._inferred)

    def _inferred(
        self, given: tuple[tuple[str, tuple[Dim, ...]], ...], scalars: tuple[tuple[str, int], ...]
    ) -> Inferred:
        shapes, known = dict(given), dict[str, Dim](scalars)
        for one in self.scope.function.parameters:
            self._take_sizes(one, shapes[one.name], known)
        missing = [name for name in self.needs if name not in known]
        if missing:
            raise UsageError(
                f"{self.name} without {', '.join(missing)}",
                expected="a value of each integer scalar: shapes depend on it",
            )
        inferred = infer(self.scope, shapes, known)
        for agreement in inferred.agreements:
            if agreement.first != agreement.second:
                raise self.scope.fault(
                    RangeError,
                    f"axis {agreement.axis} of {agreement.tensor} has {agreement.second} elements here",
                    agreement.place,
                    expected=f"{agreement.first}, as it has by another statement",
                    remedy="write where with the range that it is to have",
                )
        check_bounds(self.scope, inferred)
        check_defined(self.scope, inferred)
        return inferred

    def _check_sizes(self, inferred: Inferred) -> None:
        """Refuse ranges whose values, and tensors whose elements, no machine counts."""
        for one, ranges in zip(self.scope.statements, inferred.ranges, strict=True):
            ends = [end for ends in ranges.values() for end in ends]
            elements = prod(dim for dim in inferred.shapes[one.statement.target] if isinstance(dim, int))
            if elements > MOST or any(isinstance(end, int) and abs(end) > MOST for end in ends):
                raise self.scope.fault(
                    RangeError,
                    f"a range that is too large to compute {one.statement.target}",
                    one.statement.place,
                    expected=f"at most {MOST} values and elements",
                    remedy="give smaller ranges in where",
                )

    def _take_sizes(self, parameter: Parameter, shape: tuple[Dim, ...], known: dict[str, Dim]) -> None:
        where = f"{self.name}, {parameter.name}"
        if len(shape) != len(parameter.extents):
            raise ShapeError(f"an array of rank {len(shape)}", where=where, expected=f"rank {len(parameter.extents)}")
        for axis, (extent, dim) in enumerate(zip(parameter.extents, shape, strict=True)):
            asked = known.setdefault(extent, dim) if isinstance(extent, str) else extent
            if asked != dim:
                named = f"{extent} = {asked}" if isinstance(extent, str) else str(asked)
                raise ShapeError(f"axis {axis} has {dim} elements", where=where, expected=named)

    def output_types(self, /, *arguments: Any, **named: Any) -> dict[str, TensorType]:
        """The types of the results for arguments, by name; nothing is computed."""
        inferred, _ = self._bound(arguments, named)
        return {name: TensorType(self.types[name], inferred.shapes[name]) for name in self.results}

    def prepare_outputs(self, /, *arguments: Any, **named: Any) -> tuple[Array, ...]:
        """Arrays that the results for arguments fit into, to be passed as `out`."""
        types = self.output_types(*arguments, **named)
        return tuple(np.empty(one.dims, one.dtype.numpy) for one in types.values())

    def __call__(self, /, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """The results; ShapeError or UsageError for arguments that do not fit, BoundsError for indices that do not.

        Of tensors of a graph, the results are tensors of that graph, by an operator that the function becomes there.
        """
        for value in (*arguments, *named.values()):
            if isinstance(value, Tensor):
                return self._applied(value.graph, self._by_name(arguments, named))
        inferred, tensors = self._bound(arguments, named)
        try:
            made = evaluate(self.scope, self.types, inferred, tensors)
        except MemoryError as error:
            raise UsageError(str(error), where=self.name, expected="tensors that this machine can hold") from None
        results = tuple(made[name] for name in self.results)
        back = _torch([*arguments, *named.values()])
        if out is not None:
            several = isinstance(out, tuple | list) or (isinstance(out, np.ndarray) and len(results) > 1)
            self._write(list(out) if several else [out], results)
            return out
        if back is not None:
            results = tuple(back.from_numpy(np.ascontiguousarray(one)) for one in results)
        return results[0] if len(results) == 1 else results

    def _applied(self, graph: Builder, given: Mapping[str, Any]) -> Any:
        """The tensors that the function makes in a graph."""
        from eqsat.language.comprehension.operators import operator_of

        declared = operator_of(self)
        names = (*self.operands, *(name for name in self.scope.updated if name in given))
        types = {name: self.types[name].numpy for name in names}
        for name in names:
            if isinstance(value := given[name], Tensor) and value.type.dtype is not self.types[name]:
                raise ShapeError(f"{value}", where=f"{self.name}, {name}", expected=self.types[name].value)
        operands = [v if isinstance(v := given[n], Tensor) else np.asarray(v, types[n]) for n in names]
        return graph.apply(declared.name, *operands, **{name: int(given[name]) for name in self.needs})

    def _write(self, out: Sequence[Any], results: Sequence[Array]) -> None:
        if len(out) != len(results):
            raise UsageError(f"out: {len(out)} arrays", where=self.name, expected=f"{len(results)}")
        if any(isinstance(one, np.generic) or not hasattr(one, "__dlpack__") for one in out):
            raise UsageError("out: a value that is no array", where=self.name, expected="arrays that are written to")
        arrays = [_array(one) for one in out]
        for number, (name, array, made) in enumerate(zip(self.results, arrays, results, strict=True)):
            if array.shape != made.shape or array.dtype != made.dtype:
                raise ShapeError(
                    f"out: {array.dtype.name}{list(array.shape)} for {name}",
                    where=self.name,
                    expected=f"{made.dtype.name}{list(made.shape)}",
                )
            if not array.flags.writeable:
                raise UsageError(f"out: {name} is read-only", where=self.name, expected="an array that is written to")
            if any(_overlap(array, other) for other in arrays[:number]):
                raise UsageError(
                    f"out: {name} shares memory with another result", where=self.name, expected="memory of its own"
                )
        for array, made in zip(arrays, results, strict=True):
            array[...] = made

    def _bound(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[Inferred, dict[str, Array]]:
        """The ranges and shapes for arguments, and the arrays by name."""
        parameters = self.scope.function.parameters
        given = self._by_name(arguments, named)
        arrays = {one.name: self._taken(one.name, NAMED[one.type], given[one.name]) for one in parameters}
        scalars = {name: int(arrays[name]) for name in self.needs if not arrays[name].ndim}
        inferred = self.inferred({name: array.shape for name, array in arrays.items()}, scalars)
        for name in self.scope.updated:
            if name in given:
                array = self._taken(name, self.types[name], given[name])
                if array.shape != inferred.shapes[name]:
                    raise ShapeError(
                        f"an array of shape {array.shape}",
                        where=f"{self.name}, {name}",
                        expected=str(inferred.shapes[name]),
                    )
                arrays[name] = array
        return inferred, arrays

    def _by_name(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        names = [one.name for one in self.scope.function.parameters]
        if len(arguments) > len(names):
            raise UsageError(f"{self.name} of {len(arguments)} arguments", expected=f"{len(names)}: {', '.join(names)}")
        given = dict(zip(names, arguments, strict=False))
        for name, value in named.items():
            if name in given:
                raise UsageError(f"{self.name}: {name} is passed twice", expected="one value for each parameter")
            if name not in names and name not in self.scope.updated:
                known = [*names, *self.scope.updated]
                raise UsageError(
                    f"{self.name} has no parameter {name!r}", expected=", ".join(known), remedy=nearest(name, known)
                )
            given[name] = value
        missing = [name for name in names if name not in given]
        if missing:
            raise UsageError(f"{self.name} without {', '.join(missing)}", expected=f"{len(names)}: {', '.join(names)}")
        return given

    def _taken(self, name: str, dtype: DType, value: Any) -> Array:
        """An argument as an array of its type; numbers take it."""
        where = f"{self.name}, {name}"
        if isinstance(value, bool | int | float):
            array = np.asarray(value)
            kinds = "biuf" if dtype.is_float else "b" if dtype is DType.BOOL else "iu"
            with np.errstate(all="ignore"):
                made: Array = array.astype(dtype.numpy if array.dtype.kind in kinds else array.dtype)
            if array.dtype.kind not in kinds or (array.dtype.kind in "iu" and not dtype.is_float and made != array):
                raise ShapeError(f"{value!r}", where=where, expected=f"a number of {dtype.value}")
            return made
        array = _array(value)
        if array.dtype != dtype.numpy:
            raise ShapeError(
                f"elements of {array.dtype.name}",
                where=where,
                expected=dtype.value,
                remedy=f"convert it: .astype({dtype.value!r})",
            )
        return array

    def __repr__(self) -> str:
        return print_function(self.scope.function)


def _is_whole(parameter: Parameter) -> bool:
    dtype = NAMED[parameter.type]
    return not dtype.is_float and dtype is not DType.BOOL


def _is_late(bound: Expression, known: Mapping[str, Dim]) -> bool:
    """True of a quotient or a remainder that has a value for numbers alone."""
    ones = dict.fromkeys(known, 1)
    divided = [part for part in walk(bound) if isinstance(part, Binary) and part.operator in ("/", "%")]
    return affine(bound, known) is None and any(affine(part.left, ones) is not None for part in divided)


def _shape(parameter: Parameter, known: Mapping[str, Dim]) -> tuple[Dim, ...]:
    return tuple(known[extent] if isinstance(extent, str) else extent for extent in parameter.extents)


def _number(value: bool | int | float, dtype: DType) -> Array | None:
    """A number in a type; None of one that it does not hold, too large floats aside, which become infinite."""
    if not dtype.is_float:
        if isinstance(value, float) or isinstance(value, bool) != (dtype is DType.BOOL):
            return None
        if dtype is not DType.BOOL and not np.iinfo(dtype.numpy).min <= value <= np.iinfo(dtype.numpy).max:
            return None
    try:
        whole = float(value) if dtype.is_float else value
    except OverflowError:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(whole).astype(dtype.numpy)


def _array(value: Any) -> Array:
    """An array of NumPy on what was passed, in place where it speaks DLPack."""
    if isinstance(value, np.ndarray | np.generic) or not hasattr(value, "__dlpack__"):
        try:
            return np.asarray(value)
        except ValueError as error:
            raise UsageError(f"no array: {error}", expected="an array") from None
    if getattr(value, "requires_grad", False):
        value = value.detach()
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        raise UsageError(
            f"an array that NumPy cannot read: {error}", expected="an array in this machine's memory"
        ) from None


def _overlap(a: Array, b: Array) -> bool:
    """True where two arrays share an element, as far as that is seen in time."""
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return False


def _torch(values: Sequence[Any]) -> Any:
    """The module torch if an argument is one of its tensors."""
    for value in values:
        if type(value).__module__.partition(".")[0] == "torch":
            import torch

            return torch
    return None
