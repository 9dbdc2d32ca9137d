"""Functions of comprehensions, called with arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from eqsat.errors import BoundsError, ShapeError, UsageError, nearest
from eqsat.language.comprehension.arguments import array_of, is_at_hand, maker_of, number_of, overlap, overlaps_itself
from eqsat.language.comprehension.calls import listed
from eqsat.language.comprehension.evaluation import evaluate
from eqsat.language.comprehension.extents.proofs import OpenBound, open_bounds
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.extents.sizes import SizeInference
from eqsat.language.comprehension.meaning.canonical import canonical
from eqsat.language.comprehension.meaning.element_types import NAMED
from eqsat.language.comprehension.meaning.scopes import Scope
from eqsat.language.comprehension.meaning.typed import typed
from eqsat.language.comprehension.pytorch import is_recorded, mark_written
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import Parameter
from eqsat.language.terms import Array, Dim, DType, TensorType


class TensorFunction:
    """A function of a comprehension: `f(A, x)` computes its results, one array or a tuple of them.

    Scalars are numbers. A result that is read before it is defined is passed by its name: `f(a, A, C=C)`; it is 0
    otherwise. `out` takes arrays for the results, which may share memory with the parameters.
    """

    def __init__(self, scope: Scope, strict: bool = False) -> None:
        self.scope, self.source = scope, print_function(scope.function)
        self.types = typed(scope)
        self._sizes = SizeInference(scope, self.needs)
        self.symbolic  # noqa: B018  (what fails for all sizes is told of where the function is defined)
        if strict:
            self._check_proved()

    def _check_proved(self) -> None:
        for one in self.open_bounds:
            sizes = ", ".join(f"{name} = {size}" for name, size in (one.sizes or {}).items())
            known = f"; it may not with {sizes}" if sizes else ""
            raise self.scope.fault(
                BoundsError,
                f"{one.element} is not proved to stay inside {one.tensor} on axis {one.axis}",
                one.place,
                expected=f"a subscript that does for every size{known}",
                remedy="keep it inside: max(min(…, …), 0), or read it under a condition",
            )

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.scope.function.name

    @property
    def whole_source(self) -> str:
        """The text of the function, and of the gradient that a caller gave it, if any."""
        return self.source

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings of what its writer may have meant otherwise."""
        return self.scope.warnings

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, in their order."""
        return tuple(one.name for one in self.scope.function.parameters)

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

    @property
    def symbolic(self) -> Inferred | None:
        """The ranges and shapes for all sizes; None where they depend on integer scalars, or on quotients of sizes."""
        return self._sizes.symbolic

    @cached_property
    def open_bounds(self) -> tuple[OpenBound, ...]:
        """The subscripts that are not proved to stay inside their tensors for every size; looked at in each call.

        UsageError where ranges depend on integer scalars, or on quotients of sizes.
        """
        if self.symbolic is None:
            raise UsageError(
                f"bounds of {self.name} for every size",
                expected="ranges of sizes alone",
                remedy="write numbers in place of integer scalars",
            )
        return tuple(open_bounds(self.scope, self.symbolic))

    def inferred(self, shapes: Mapping[str, Sequence[Dim]], scalars: Mapping[str, int] | None = None) -> Inferred:
        """The ranges and shapes for shapes of the parameters; ShapeError, RangeError or BoundsError."""
        return self._sizes.inferred(shapes, scalars or {})

    def output_types(self, /, *arguments: Any, **named: Any) -> dict[str, TensorType]:
        """The types of the results for arguments, by name; nothing is computed."""
        inferred, _ = self.bind(arguments, named)
        return {name: TensorType(self.types[name], inferred.shapes[name]) for name in self.results}

    def prepare_outputs(self, /, *arguments: Any, **named: Any) -> tuple[Array, ...]:
        """Arrays that the results for arguments fit into, to be passed as `out`."""
        types = self.output_types(*arguments, **named)
        return tuple(np.empty(one.dims, one.dtype.numpy) for one in types.values())

    def __call__(self, /, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """The results; ShapeError or UsageError for arguments that do not fit, BoundsError for indices that do not."""
        inferred, tensors = self.bind(arguments, named)
        try:
            made = evaluate(self.scope, self.types, inferred, tensors)
        except MemoryError as error:
            raise UsageError(str(error), where=self.name, expected="tensors that this machine can hold") from None
        return self.deliver(tuple(made[name] for name in self.results), arguments, named, out)

    def deliver(
        self, results: tuple[Array, ...], arguments: Sequence[Any], named: Mapping[str, Any], out: Any = None
    ) -> Any:
        """The results of a call as it returns them: written to `out`, or of the library that the arguments are of."""
        values = [*arguments, *named.values()]
        if out is not None:
            types = [(made.shape, made.dtype) for made in results]
            for array, made in zip(self.destinations(out, types, values), results, strict=True):
                array[...] = made
            mark_written(listed(out))
            return out
        make = maker_of(values)
        if make is not None:
            results = tuple(make(one) for one in results)
        return results[0] if len(results) == 1 else results

    def destinations(
        self, out: Any, types: Sequence[tuple[tuple[int, ...], np.dtype[Any]]], arguments: Sequence[Any] = ()
    ) -> list[Array]:
        """The arrays that `out` gives for results of shapes and element types; UsageError or ShapeError for others."""
        if is_recorded([*arguments, *listed(out)]):
            raise UsageError(
                "out: tensors in which gradients are asked for",
                where=self.name,
                expected="results of its own, which autograd records",
                remedy="call it without out, or under torch.no_grad()",
            )
        out = list(out) if isinstance(out, np.ndarray) and len(types) > 1 else listed(out)
        if len(out) != len(types):
            raise UsageError(f"out: {len(out)} arrays", where=self.name, expected=f"{len(types)}")
        if any(isinstance(one, np.generic) or not hasattr(one, "__dlpack__") for one in out):
            raise UsageError("out: a value that is no array", where=self.name, expected="arrays that are written to")
        if not all(map(is_at_hand, out)):
            raise UsageError("out: memory of a GPU", where=self.name, expected="arrays in this machine's memory")
        arrays = [array_of(one) for one in out]
        for number, (name, array, (shape, dtype)) in enumerate(zip(self.results, arrays, types, strict=True)):
            if array.shape != shape or array.dtype != dtype:
                raise ShapeError(
                    f"out: {array.dtype.name}{list(array.shape)} for {name}",
                    where=self.name,
                    expected=f"{dtype.name}{list(shape)}",
                )
            if not array.flags.writeable:
                raise UsageError(f"out: {name} is read-only", where=self.name, expected="an array that is written to")
            if overlaps_itself(array):
                raise UsageError(
                    f"out: elements of {name} share memory", where=self.name, expected="memory for each element"
                )
            if any(overlap(array, other) for other in arrays[:number]):
                raise UsageError(
                    f"out: {name} shares memory with another result", where=self.name, expected="memory of its own"
                )
        return arrays

    def bind(
        self, arguments: Sequence[Any], named: Mapping[str, Any], read: Callable[[str, DType, Any], Any] | None = None
    ) -> tuple[Inferred, dict[str, Array]]:
        """The ranges and shapes for arguments, and the arrays by name; ShapeError or UsageError for what is wrong.

        `read` makes arrays of arguments in place of `argument`: those that a GPU holds.
        """
        parameters, read = self.scope.function.parameters, read or self.argument
        given = self.by_name(arguments, named)
        arrays = {one.name: read(one.name, NAMED[one.type], given[one.name]) for one in parameters}
        scalars = {name: int(arrays[name]) for name in self.needs if not arrays[name].ndim}
        inferred = self.inferred({name: array.shape for name, array in arrays.items()}, scalars)
        for name in self.scope.updated:
            if name in given:
                array = read(name, self.types[name], given[name])
                if array.shape != inferred.shapes[name]:
                    raise ShapeError(
                        f"an array of shape {array.shape}",
                        where=f"{self.name}, {name}",
                        expected=str(inferred.shapes[name]),
                    )
                arrays[name] = array
        return inferred, arrays

    def by_name(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by the names of parameters; UsageError for too few, too many, or an unknown name."""
        names = self.parameters
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
            raise UsageError(
                f"{self.name} without {', '.join(missing)}",
                expected=f"{len(names)}: {', '.join(names)}",
                remedy="pass out by its place: out= takes memory for results" if "out" in missing else "",
            )
        return given

    def argument(self, name: str, dtype: DType, value: Any) -> Array:
        """An argument as an array of its type, which numbers take; ShapeError for elements of another one."""
        where = f"{self.name}, {name}"
        if isinstance(value, bool | int | float):
            made = number_of(value, dtype)
            if made is None:
                raise ShapeError(f"{value!r}", where=where, expected=f"a number of {dtype.value}")
            return made
        array: Array = self.checked(name, dtype, array_of(value))
        return array

    def checked(self, name: str, dtype: DType, array: Any) -> Any:
        """An array that has the elements of an argument's type; ShapeError for others."""
        if array.dtype != dtype.numpy:
            raise ShapeError(
                f"elements of {array.dtype.name}",
                where=f"{self.name}, {name}",
                expected=dtype.value,
                remedy=f"convert it: .astype({dtype.value!r})",
            )
        return array

    def __repr__(self) -> str:
        return self.source


def _is_whole(parameter: Parameter) -> bool:
    dtype = NAMED[parameter.type]
    return not dtype.is_float and dtype is not DType.BOOL
