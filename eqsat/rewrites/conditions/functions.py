"""The functions that a rule's conditions and attributes may call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import ml_dtypes
import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.terms import Dim, Operand, Shape, broadcast_shapes, product

FUNCTIONS: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True, slots=True)
class Fail:
    """A condition that does not hold, and why; false in every test of truth."""

    reason: str

    def __bool__(self) -> bool:
        return False


def function(body: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function callable from rules under its own name, without a trailing underscore."""
    FUNCTIONS[body.__name__.rstrip("_")] = body
    return body


@function
def fail(reason: str) -> Fail:
    """False, with a reason."""
    return Fail(reason)


# --- types ---------------------------------------------------------------------------------------------------------


@function
def shape(x: Operand) -> Shape:
    """The dims of a tensor."""
    return x.type.dims


@function
def rank(x: Operand) -> int:
    """The number of dims."""
    return x.type.rank


@function
def dim(x: Operand, axis: int) -> Dim:
    """One dim; negative axes count from the right."""
    return x.type.dims[axis]


@function
def size(x: Operand) -> Dim:
    """The number of elements."""
    return x.type.size


@function
def dtype(x: Operand) -> str:
    """The name of the element type."""
    return x.type.dtype.value


@function
def same_shape(x: Operand, *others: Operand) -> bool | Fail:
    """True where the shapes are provably equal."""
    return all(o.type.dims == x.type.dims for o in others) or Fail("the shapes may differ")


@function
def static(*operands: Operand) -> bool | Fail:
    """True where every dim is an integer."""
    return all(o.type.is_static for o in operands) or Fail("a dim is known by name only")


@function
def floating(*operands: Operand) -> bool | Fail:
    """True for real floating-point tensors."""
    return all(o.type.dtype.is_float for o in operands) or Fail("not floating point")


@function
def wide(*operands: Operand) -> bool | Fail:
    """True for float32 and float64, where reassociation is safe from overflow in practice."""
    return all(o.type.dtype.value in ("float32", "float64") for o in operands) or Fail("not float32 or float64")


@function
def numeric(*operands: Operand) -> bool | Fail:
    """True for numbers of any width."""
    return all(o.type.dtype.is_float or o.type.dtype.is_integer for o in operands) or Fail("not a number")


@function
def finite(*operands: Operand) -> bool | Fail:
    """True where the operands are known to hold neither infinities nor NaN."""
    return all(o.finite for o in operands) or Fail("may hold an infinity or NaN")


@function
def representable(x: Operand, number: float) -> bool | Fail:
    """True where the element type has a number, a float where it neither overflows nor loses digits near zero."""
    dtype = x.type.dtype
    if dtype.is_integer:
        whole = ml_dtypes.iinfo(dtype.numpy)
        holds = number == number // 1 and whole.min <= number <= whole.max
    elif dtype.is_float:
        real = ml_dtypes.finfo(dtype.numpy)
        holds = number == 0 or float(real.smallest_normal) <= abs(number) <= float(real.max)
    else:
        holds = False
    return bool(holds) or Fail(f"{dtype.value} has no {number}")


# --- values --------------------------------------------------------------------------------------------------------


@function
def constant(*operands: Operand) -> bool | Fail:
    """True where the operands are known before the program runs."""
    return all(o.constant for o in operands) or Fail("not known before the program runs")


@function
def value(x: Operand) -> Any:
    """The elements of a small constant."""
    elements = x.value
    if elements is None:
        raise ShapeError("the elements are not known", expected="a small constant")
    return elements


@function
def is_all(x: Operand, number: float, tolerance: float = 0.0) -> bool | Fail:
    """True for a constant whose elements all equal a number."""
    elements = x.value
    if elements is None:
        return Fail("not a small constant")
    elements = np.asarray(elements)
    if not elements.size or elements.dtype.kind not in "fiu":
        return Fail("not a tensor of numbers")
    return bool((np.abs(elements.astype(np.float64) - number) <= tolerance * abs(number)).all()) or Fail(
        f"not all {number}"
    )


@function
def is_minus_infinity(x: Operand) -> bool | Fail:
    """True for a constant whose elements are all minus infinity."""
    elements = x.value
    if elements is None or np.asarray(elements).dtype.kind != "f":
        return Fail("not a small constant of floats")
    return bool(np.asarray(elements).size and np.isneginf(elements).all()) or Fail("not all minus infinity")


@function
def is_uniform(x: Operand) -> bool | Fail:
    """True for a constant whose elements are one finite number."""
    elements = x.value
    if elements is None or not np.asarray(elements).size or np.asarray(elements).dtype.kind not in "fiu":
        return Fail("not a small constant of numbers")
    flat = np.asarray(elements).ravel()
    return bool(np.isfinite(flat[0]) and (flat == flat[0]).all()) or Fail("the elements differ")


@function
def is_diagonal(x: Operand, number: float) -> bool | Fail:
    """True for a constant square matrix with a number all along its diagonal and zeros beside it."""
    return x.diagonal == number or Fail(f"no diagonal matrix of {number}")


@function
def number(x: Operand) -> float:
    """The one number all elements of a uniform constant equal; an integer stays one, as float64 has not all of them."""
    known = getattr(x, "number", None)
    if known is not None:
        return cast(float, known)  # of an operand that a proof says of no more than this
    first = np.asarray(value(x)).ravel()[0]
    return int(first) if np.asarray(first).dtype.kind in "iu" else float(first)


@function
def integer(x: Operand) -> int:
    """The one element of an integer constant."""
    elements = np.asarray(value(x))
    if elements.size != 1 or elements.dtype.kind not in "iu":
        raise ShapeError("not one integer")
    return int(elements.ravel()[0])


@function
def invertible(x: Operand) -> bool | Fail:
    """True for a constant whose elements all have finite reciprocals: no zeros, and none next to 0."""
    elements = x.value
    if elements is None or np.asarray(elements).dtype.kind not in "fiu":
        return Fail("not a small constant of numbers")
    array = np.asarray(elements)
    least = 1.0 / np.finfo(array.dtype).max if array.dtype.kind == "f" else 1.0
    return bool((np.abs(array.astype(np.float64)) >= least).all()) or Fail("a reciprocal overflows")


@function
def is_positive(x: Operand) -> bool | Fail:
    """True for a constant whose elements are all finite and above zero."""
    elements = x.value
    if elements is None or np.asarray(elements).dtype.kind not in "fiu":
        return Fail("not a small constant of numbers")
    wide = np.asarray(elements).astype(np.float64)
    return bool((np.isfinite(wide) & (wide > 0)).all()) or Fail("not all positive")


@function
def is_nonnegative(x: Operand) -> bool | Fail:
    """True for a constant whose elements are all finite and none below zero."""
    elements = x.value
    if elements is None or np.asarray(elements).dtype.kind not in "fiu":
        return Fail("not a small constant of numbers")
    wide = np.asarray(elements).astype(np.float64)
    return bool((np.isfinite(wide) & (wide >= 0)).all()) or Fail("an element is negative")


@function
def is_eye(x: Operand) -> bool | Fail:
    """True for a constant identity matrix."""
    elements = x.elements
    if elements is None or (elements := np.asarray(elements)).flat[:1] != 1:
        return Fail("not a constant whose elements are known, or no identity matrix")
    square = elements.ndim == 2 and elements.shape[0] == elements.shape[1]
    return (square and bool((elements == np.eye(elements.shape[0])).all())) or Fail("not an identity matrix")


@function
def is_range(x: Operand) -> bool | Fail:
    """True for a constant vector of one or more consecutive natural numbers."""
    elements = x.value
    if elements is None:
        return Fail("not a small constant")
    elements = np.asarray(elements)
    if elements.ndim != 1 or not elements.size or elements.dtype.kind not in "iu" or elements[0] < 0:
        return Fail("not a vector of natural numbers")
    return bool((np.diff(elements) == 1).all()) or Fail("not consecutive")


@function
def is_progression(x: Operand) -> bool | Fail:
    """True for a constant vector of two or more natural numbers that grow by the same step."""
    elements = x.value
    if elements is None or np.asarray(elements).ndim != 1 or len(elements) < 2:
        return Fail("not a small constant vector of two or more elements")
    elements = np.asarray(elements)
    steps = {int(step) for step in np.diff(elements)} if elements.dtype.kind in "iu" else set()
    return (len(steps) == 1 and min(steps) > 0 and int(elements[0]) >= 0) or Fail("no progression of natural numbers")


@function
def last(x: Operand) -> int:
    """The last element of an integer constant."""
    return int(np.asarray(value(x)).ravel()[-1])


# --- shapes --------------------------------------------------------------------------------------------------------


@function
def prod(dims: Iterable[Dim]) -> Dim:
    """The product of dims."""
    return product(dims)


@function
def broadcast(*shapes: Shape) -> Shape:
    """The broadcast of shapes; refuses where they conflict."""
    return broadcast_shapes(*shapes)


@function
def ones(count: int) -> Shape:
    """A shape of ones."""
    return (1,) * count


@function
def normal(axis: int, rank: int) -> int:
    """An axis counted from the left."""
    return axis % rank


@function
def replaced(dims: Sequence[Any], axis: int, new: Any) -> tuple[Any, ...]:
    """The sequence with one element replaced."""
    axis %= len(dims)
    return (*dims[:axis], new, *dims[axis + 1 :])


@function
def without(dims: Sequence[Any], *axes: int) -> tuple[Any, ...]:
    """The sequence without the elements at these axes."""
    return tuple(d for i, d in enumerate(dims) if i not in axes)


@function
def inserted(dims: Sequence[Any], axis: int, new: Any) -> tuple[Any, ...]:
    """The sequence with one more element, at this place."""
    return (*dims[:axis], new, *dims[axis:])


@function
def without_leading_ones(dims: Sequence[Any]) -> tuple[Any, ...]:
    """The sequence from its first element on that is not one."""
    return tuple(dims[next((i for i, d in enumerate(dims) if d != 1), len(dims)) :])


@function
def off_axis(x: Operand, axis: int, rank: int) -> bool | Fail:
    """True where x, broadcast to `rank` dims, provably does not vary along the axis."""
    place = axis % rank - (rank - x.type.rank)
    return place < 0 or x.type.dims[place] == 1 or Fail(f"varies along axis {axis}")


@function
def spans(x: Operand, y: Operand) -> bool | Fail:
    """True where broadcasting y onto x leaves x's shape as it is."""
    return broadcast_shapes(x.type.dims, y.type.dims) == x.type.dims or Fail("broadcasting changes the shape")


@function
def along_only(x: Operand, axis: int, rank: int, count: Dim) -> bool | Fail:
    """True where x, broadcast to `rank` dims, varies along one axis at most, and has all `count` elements there."""
    place = axis - (rank - x.type.rank)
    fits = (
        0 <= place < x.type.rank <= rank
        and x.type.dims[place] == count
        and all(d == 1 for d in without(x.type.dims, place))
    )
    return fits or Fail(f"varies along more than axis {axis}, or not along all of it")


@function
def keeps_last(x: Operand, dims: Shape) -> bool | Fail:
    """True where a reshape of x to these dims provably keeps the last axis."""
    return bool(x.type.dims and dims and x.type.dims[-1] == dims[-1]) or Fail("the reshape changes the last axis")


# --- permutations --------------------------------------------------------------------------------------------------


@function
def zeros(count: int) -> tuple[int, ...]:
    """So many zeros."""
    return (0,) * count


@function
def added(first: Sequence[Any], second: Sequence[Any]) -> tuple[Any, ...]:
    """The sums of two sequences of one length, element by element."""
    return tuple(a + b for a, b in zip(first, second, strict=True))


@function
def total(dims: Iterable[Dim]) -> Dim:
    """The sum of dims."""
    result: Dim = 0
    for one in dims:
        result = result + one
    return result


@function
def place(sequence: Sequence[Any], item: Any) -> int:
    """Where an element stands in a sequence."""
    return sequence.index(item)


@function
def first(x: Operand) -> int:
    """The first element of an integer constant."""
    return int(np.asarray(value(x)).ravel()[0])


@function
def shifted(count: int, by: int) -> tuple[int, ...]:
    """So many consecutive axes from one on."""
    return tuple(range(by, by + count))


@function
def place_of(axis: int, rank: int) -> tuple[int, ...]:
    """A map of axes that sends the last of `rank` axes to this one."""
    return (*range(rank - 1), axis)
