"""Sizes of a call, and of every call: ranges and shapes by the shapes of parameters, held against each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from eqsat.errors import RangeError, ShapeError, UsageError
from eqsat.language.comprehension.extents.affine import affine
from eqsat.language.comprehension.extents.bounds import check_bounds, check_defined
from eqsat.language.comprehension.extents.ranges import Inferred, infer
from eqsat.language.comprehension.meaning.scopes import Scope
from eqsat.language.comprehension.text.syntax import Binary, Expression, Parameter, walk
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import Sym

#: The most elements of a tensor, and the largest value of an index.
MOST = 2**48


@dataclass(frozen=True)
class SizeInference:
    """The inference of ranges and shapes of one function, whose integer scalars `needs` names."""

    scope: Scope
    needs: tuple[str, ...]

    @cached_property
    def symbolic(self) -> Inferred | None:
        """The ranges and shapes for all sizes; None where they depend on integer scalars, or on quotients of sizes."""
        known: dict[str, Dim] = {size: Sym.named(size) for size in self.scope.sizes}
        shapes = {one.name: _shape(one, known) for one in self.scope.function.parameters}
        try:
            inferred = infer(self.scope, shapes, known | {name: Sym.named(name) for name in self.needs})
        except RangeError:
            if self.needs or any(_is_late(bound, known) for bound in self._stated()):
                return None
            raise
        check_bounds(self.scope, inferred)
        return inferred

    def _stated(self) -> Iterator[Expression]:
        """The bounds of ranges that `where` states."""
        for one in self.scope.statements:
            for clause in one.ranges.values():
                yield from (clause.low, clause.high)

    def inferred(self, shapes: Mapping[str, Sequence[Dim]], scalars: Mapping[str, int]) -> Inferred:
        """The ranges and shapes for shapes of the parameters; ShapeError, RangeError or BoundsError."""
        unshaped = [one.name for one in self.scope.function.parameters if one.name not in shapes]
        if unshaped:
            name = self.scope.function.name
            raise UsageError(f"{name} without {', '.join(unshaped)}", expected="a shape of each parameter")
        given = tuple((one.name, tuple(shapes[one.name])) for one in self.scope.function.parameters)
        numbers = tuple(scalars.items())
        if all(type(dim) is int for _, dims in given for dim in dims) and all(type(n) is int for _, n in numbers):
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
                f"{self.scope.function.name} without {', '.join(missing)}",
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
        self._check_sizes(inferred)
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
        where = f"{self.scope.function.name}, {parameter.name}"
        if len(shape) != len(parameter.extents):
            raise ShapeError(f"an array of rank {len(shape)}", where=where, expected=f"rank {len(parameter.extents)}")
        for axis, (extent, dim) in enumerate(zip(parameter.extents, shape, strict=True)):
            asked = known.setdefault(extent, dim) if isinstance(extent, str) else extent
            if asked != dim:
                named = f"{extent} = {asked}" if isinstance(extent, str) else str(asked)
                raise ShapeError(f"axis {axis} has {dim} elements", where=where, expected=named)


def _shape(parameter: Parameter, known: Mapping[str, Dim]) -> tuple[Dim, ...]:
    return tuple(known[extent] if isinstance(extent, str) else extent for extent in parameter.extents)


def _is_late(bound: Expression, known: Mapping[str, Dim]) -> bool:
    """True of a quotient or a remainder that has a value for numbers alone."""
    ones = dict.fromkeys(known, 1)
    divided = [part for part in walk(bound) if isinstance(part, Binary) and part.operator in ("/", "%")]
    return affine(bound, known) is None and any(affine(part.left, ones) is not None for part in divided)
