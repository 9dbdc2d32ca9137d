"""Functions of rules about axes: permutations, and the sets that reductions, normalisations and attention have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.terms import Dim, Operand, Shape, broadcast_shapes, product
from eqsat.rewrites.conditions.functions import Fail, function


@function
def union(first: Iterable[int], second: Iterable[int]) -> tuple[int, ...]:
    """The axes of two sets, ascending."""
    return tuple(sorted({*first, *second}))


@function
def mapped(axes: Iterable[int], places: Sequence[int]) -> tuple[int, ...]:
    """The axes at the places that a permutation gives them, ascending."""
    return tuple(sorted(places[axis] for axis in axes))


@function
def without_all(dims: Sequence[Any], axes: Iterable[int]) -> tuple[Any, ...]:
    """The sequence without the elements at a set of axes."""
    gone = set(axes)
    return tuple(d for i, d in enumerate(dims) if i not in gone)


@function
def dropped_perm(perm: Sequence[int], axes: Iterable[int]) -> tuple[int, ...]:
    """The permutation that is left of a transpose when the axes of its result are dropped."""
    rest = without_all(perm, axes)
    return tuple(sorted(rest).index(p) for p in rest)


@function
def ones_at(dims: Sequence[Any], axes: Iterable[int]) -> tuple[Any, ...]:
    """The shape with one element along each of these axes."""
    reduced = set(axes)
    return tuple(1 if i in reduced else d for i, d in enumerate(dims))


@function
def lowered(axes: Iterable[int], count: int) -> tuple[int, ...]:
    """The axes of a tensor of so many axes fewer, counted from the left; refuses where it lacks one."""
    places = tuple(axis - count for axis in axes)
    if min(places, default=0) < 0:
        raise ShapeError("an axis is one that the operand lacks")
    return places


@function
def kept_axes(dims: Shape, shape: Shape, axes: Iterable[int]) -> tuple[int, ...]:
    """The axes of a tensor that a reshape to `shape` leaves whole at these axes; refuses where there is none such."""
    whole = tuple(_kept_axis(dims, shape, axis) for axis in axes)
    if 0 in dims or len(set(whole)) < len(whole):
        raise ShapeError("the reshape may not keep the axes", expected="an axis of its own for each")
    return whole


def _kept_axis(dims: Shape, shape: Shape, axis: int) -> int:
    """The first axis of equal size with as many elements before it and behind it."""
    wanted = (product(shape[:axis]), shape[axis], product(shape[axis + 1 :]))
    for place, size in enumerate(dims):
        if (product(dims[:place]), size, product(dims[place + 1 :])) == wanted:
            return place
    raise ShapeError(f"the reshape does not keep axis {axis}", expected="an axis of this size at its place")


@function
def positive_dims(x: Operand, axes: Iterable[int]) -> bool | Fail:
    """True where the dims at the axes are integers above zero, so that a reduction over them is one of something."""
    dims = [x.type.dims[axis] for axis in axes]
    return all(isinstance(d, int) and d > 0 for d in dims) or Fail("an axis may be empty")


@function
def tail_axes(count: int, rank: int) -> tuple[int, ...]:
    """The last axes, so many."""
    return tuple(range(rank - count, rank))


@function
def is_power_of_two(count: int) -> bool | Fail:
    """True for 1, 2, 4, …, whose inverses are exact in any float."""
    return (count > 0 and count & (count - 1) == 0) or Fail("the inverse is not exact")


@function
def heads_agree(q: Operand, k: Operand, v: Operand) -> bool | Fail:
    """True for batch, heads, length, width each, with equal batches and lengths and widths that fit.

    Keys and values have as many heads as queries, or one that all share.
    """
    shapes = [t.type.dims for t in (q, k, v)]
    if any(len(s) != 4 for s in shapes):
        return Fail("not batch, heads, length, width")
    first, second, third = shapes
    heads = second[1] == third[1] and second[1] in (first[1], 1)
    fits = heads and first[0] == second[0] == third[0] and first[3] == second[3] and second[2] == third[2]
    return fits or Fail("the operands differ in batch, heads, length or width")


@function
def stacks_agree(q: Operand, k: Operand, v: Operand) -> bool | Fail:
    """True for stacks of queries, keys and values of three axes, as many of each, whose lengths and widths fit."""
    shapes = [t.type.dims for t in (q, k, v)]
    if any(len(s) != 3 for s in shapes):
        return Fail("not stack, length, width")
    first, second, third = shapes
    fits = first[0] == second[0] == third[0] and first[2] == second[2] and second[1] == third[1]
    return fits or Fail("the operands differ in number, length or width")


@function
def hidden(q: Operand, k: Operand, *masks: Operand) -> str:
    """The attribute `hidden` of attention: "none" where no query has scores of minus infinity alone, else "nan"."""
    return "none" if q.finite and k.finite and all(mask.attends for mask in masks) else "nan"


@function
def mask_spans(q: Operand, k: Operand, mask: Operand) -> bool | Fail:
    """True where a mask of numbers broadcasts to the scores without changing their shape."""
    scores = (*q.type.dims[:3], k.type.dims[2])
    fits = mask.type.dtype == q.type.dtype and broadcast_shapes(scores, mask.type.dims) == scores
    return fits or Fail("the mask changes the shape of the scores")


@function
def compose(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """The permutation of one transpose that stands for two, one after the other."""
    return tuple(first[i] for i in second)


@function
def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes one."""
    return tuple(perm.index(i) for i in range(len(perm)))


@function
def permuted(dims: Sequence[Any], perm: Sequence[int]) -> tuple[Any, ...]:
    """The shape after a transpose."""
    return tuple(dims[i] for i in perm)


@function
def identity_perm(rank: int) -> tuple[int, ...]:
    """The permutation that moves nothing."""
    return tuple(range(rank))


@function
def swapped(rank: int) -> tuple[int, ...]:
    """The permutation that exchanges the last two axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


@function
def trailing(perm: Sequence[int], rank: int) -> tuple[int, ...]:
    """The part of a permutation that acts on the last `rank` axes; refuses where those do not stay last."""
    lead = len(perm) - rank
    if any(p >= lead for p in perm[:lead]):
        raise ShapeError("the permutation moves leading axes among the trailing ones")
    return tuple(p - lead for p in perm[lead:])


@function
def unit_perm(dims: Sequence[Dim], shape: Sequence[Dim], perm: Sequence[int]) -> tuple[int, ...]:
    """The transpose to do before a reshape that only adds or drops axes of one element, in place of one after it."""
    source = [i for i, d in enumerate(dims) if d != 1]
    target = [i for i, d in enumerate(shape) if d != 1]
    if [dims[i] for i in source] != [shape[i] for i in target]:
        raise ShapeError("the reshape does more than add and drop axes of one element")
    moved = [source[target.index(i)] for i in perm if i in target]
    return (*moved, *(i for i in range(len(dims)) if i not in source))


@function
def view_keeps_order(dims: Sequence[Dim], perm: Sequence[int]) -> bool | Fail:
    """True where a transpose moves only axes of one element, so that it is a mere reshape."""
    moving = [p for p in perm if dims[p] != 1 or not isinstance(dims[p], int)]
    return moving == sorted(moving) or Fail("the transpose moves elements")
