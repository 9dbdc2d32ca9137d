"""Constants by what conditions say of each element by its place, and what functions of expressions then know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from eqsat.language.parametric.arrays import Indices
from eqsat.language.parametric.elements import Elements, integer_read
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric, formula_of, integer
from eqsat.language.parametric.numbers import UnknownNumber, real_of
from eqsat.language.parametric.paths import current
from eqsat.language.terms import TensorType
from eqsat.rewrites.proof.attributes import NoMatch, chosen, size

#: The element at a place, of the terms that other elements are.
PlacedElement: TypeAlias = Callable[[Elements, Indices], Any]
#: The least size of a square matrix with one number on its diagonal and another beside it.
_LEAST_EVEN = 3
#: The least rank of filters.
_LEAST_FILTERS = 3


@dataclass(frozen=True)
class ConstantPattern:
    """The elements of a constant by their places, with what functions of expressions say of such a constant.

    Of one that is all zeros but for a single one along an axis, `place` is where that is, on each line.
    """

    element: PlacedElement
    answers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    axis: int | None = None
    place: Callable[[Any], Any] | None = None


def _range(name: str, type: TensorType) -> ConstantPattern:
    """Consecutive natural numbers."""
    return _growing(name, _vector(type, 1), 1)


def _progression(name: str, type: TensorType) -> ConstantPattern:
    """Two or more natural numbers that grow by one step."""
    return _growing(name, _vector(type, 2), size(f"step of {name}"))


def _vector(type: TensorType, least: int) -> Any:
    dims: tuple[Any, ...] = type.dims
    if len(dims) != 1 or not type.dtype.is_integer or dims[0] < least:
        raise NoMatch("not a vector of so many integers")
    return dims[0]


def _growing(name: str, count: Any, step: Any) -> ConstantPattern:
    first = size(f"first of {name}", 0)
    last = first + (count - 1) * step
    return ConstantPattern(lambda _, at: first + at[0] * step, {"first": lambda: first, "last": lambda: last})


def _triangle(name: str, type: TensorType) -> ConstantPattern:
    """Ones on the diagonal and on one side of it, zeros on the other."""
    _square(type, 2)
    is_upper = chosen([True, False], f"upper {name}")

    def element(elements: Elements, at: Indices) -> Any:
        row, column = at
        return elements.algebra.real(1 if (row <= column if is_upper else column <= row) else 0)

    return ConstantPattern(element, {"is_upper": lambda: is_upper})


def _even_beside(name: str, type: TensorType) -> ConstantPattern:
    """One number on the diagonal and another beside it."""
    _square(type, _LEAST_EVEN)
    numbers = [UnknownNumber.named(f"{where} of {name}") for where in ("beside the diagonal", "diagonal")]

    def entry(row: Any, column: Any) -> Any:
        if not all(type_of is int and 0 <= one < _LEAST_EVEN for type_of, one in ((int, row), (int, column))):
            raise NotParametric("an element that may not be there")
        return numbers[row == column]

    return ConstantPattern(lambda _, at: real_of(numbers[bool(at[0] == at[1])]), {"entry": entry})


def _blocks(name: str, type: TensorType) -> ConstantPattern:
    """Two blocks along the diagonal, with zeros beside them."""
    rows, columns = _matrix(type)
    sizes = [size(f"{axis} of the first block of {name}") for axis in ("rows", "columns")]
    if sizes[0] >= rows or sizes[1] >= columns:
        raise NoMatch("no second block")

    def element(elements: Elements, at: Indices) -> Any:
        row, column = at
        if bool(row < sizes[0]) != bool(column < sizes[1]):
            return elements.algebra.real(0)
        return elements.read(name, [current().reduced(formula_of(index)) for index in at])

    return ConstantPattern(element, {"block": lambda axis: sizes[axis]})


def _grouped(name: str, type: TensorType) -> ConstantPattern:
    """Filters in two or more equal groups, of which each reads channels of its own: zeros for those of other groups."""
    if type.rank < _LEAST_FILTERS or not type.dtype.is_float:
        raise NoMatch("not filters of floats")
    count = size(f"groups of {name}", 2)
    dims: tuple[Any, ...] = type.dims[:2]
    if any(dim % count != 0 for dim in dims):
        raise NoMatch("not in that many groups")
    rows, columns = (dim // count for dim in dims)

    def element(elements: Elements, at: Indices) -> Any:
        if at[0] // rows != at[1] // columns:
            return elements.algebra.real(0)
        return elements.read(name, [current().reduced(formula_of(index)) for index in at])

    return ConstantPattern(element, {"group_count": lambda: count})


def _selection(name: str, type: TensorType, axis: Any) -> ConstantPattern:
    """A single one on each line along an axis, and zeros beside it."""
    dims = _matrix(type)
    if axis not in (0, 1):
        axis = 0  # as the condition says of others than 1

    def place(line: Any) -> Any:
        found = integer_read(f"place in {name}", [current().reduced(formula_of(line))])
        path = current()
        while path.outer is not None:
            path = path.outer
        path.assume(Fact.positive(found + 1))
        path.assume(Fact.positive(formula_of(dims[axis]) - found))
        path.least[str(found)] = 0
        return integer(found)

    def element(elements: Elements, at: Indices) -> Any:
        return elements.algebra.real(1 if at[axis] == place(at[1 - axis]) else 0)

    return ConstantPattern(element, axis=axis, place=place)


def _matrix(type: TensorType) -> tuple[Any, Any]:
    if type.rank != 2 or not type.dtype.is_float:
        raise NoMatch("not a matrix of floats")
    return type.dims[0], type.dims[1]


def _square(type: TensorType, least: int) -> None:
    rows, columns = _matrix(type)
    if rows != columns or rows < least:
        raise NoMatch("not a square matrix of that size")


#: By the name of a condition on a constant, of its name, its type and the other arguments; NoMatch where none is so.
PATTERNS: Mapping[str, Callable[..., ConstantPattern]] = {
    "is_range": _range,
    "is_progression": _progression,
    "is_triangle": _triangle,
    "is_even_beside": _even_beside,
    "is_in_blocks": _blocks,
    "is_grouped": _grouped,
    "is_selection": _selection,
}
