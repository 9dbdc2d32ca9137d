"""Integers that are computed from where they stand, as views of the natural numbers, and what they gather.

A tensor of such integers is one piece: the integer of an element is the place of the piece, and each digit adds its
stride. Constants are so, and the indices by which exports gather masks: ranges of the batch and of the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat.language.declaration.symbolic import at_least
from eqsat.language.terms.dims import Dim, broadcast_dims
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.views.boxes import ViewPiece
from eqsat.rewrites.theories.views.operators import GATHERS, VIEWS, view_of
from eqsat.rewrites.theories.views.pieces import PiecewiseView

#: Integers that a constant holds: the first, and the sizes and strides of digits by which they go on.
Integers = tuple[int, tuple[int, ...], tuple[int, ...]]
#: Operators that compute integers from where they stand.
POSITIONS = (VIEWS - GATHERS - {"pad"}) | {"iota", "add", "mul"}
#: The operand of positions: the natural numbers.
_NUMBERS = ""


def counted(start: Dim, sizes: Sequence[Dim], strides: Sequence[Dim], shape: Sequence[Dim]) -> PiecewiseView:
    """Integers of a shape that begin with one and go on by strides, in the mixed radix of sizes."""
    if 0 in sizes:
        raise UnreadError
    extents = tuple((0, size, stride) for size, stride in zip(sizes, strides, strict=True))
    return PiecewiseView((tuple(sizes),), (ViewPiece(_NUMBERS, start, extents),)).reshaped(shape)


def position_of(op: str, views: Sequence[PiecewiseView], fields: Mapping[str, Any]) -> PiecewiseView:
    """The positions that an operator makes of others; UnreadError for what are none."""
    match op, views:
        case "iota", ():
            return counted(fields["start"], [fields["size"]], [fields["step"]], [fields["size"]])
        case "add" | "mul", (one, other):
            return _combined(op, *_met(one, other))
    if op not in POSITIONS:
        raise UnreadError
    return view_of(op, views, fields)


def size_at(shape: Sequence[Dim], index: PiecewiseView) -> PiecewiseView:
    """The one size of a shape that a constant chooses."""
    place = _piece(index).offset
    if index.sizes or not isinstance(place, int) or not 0 <= place < len(shape):
        raise UnreadError
    return counted(shape[place], (), (), index.shape)


def gathered(op: str, view: PiecewiseView, positions: PiecewiseView, fields: Mapping[str, Any]) -> PiecewiseView:
    """The view of what positions choose along an axis, or as rows of places along the first axes."""
    if op == "gather_nd":
        if fields["batch_dims"] != 0 or not isinstance(count := positions.shape[-1], int):
            raise UnreadError
        rows = [positions.sliced(len(positions.axes) - 1, place, 1) for place in range(count)]
        aligned = PiecewiseView.aligned([row.reshaped(row.shape[:-1]) for row in rows])
        return _indexed(view, range(count), aligned, 0)
    axis, piece = fields["axis"] % len(view.axes), _piece(positions)
    if isinstance(piece.offset, int) and all(isinstance(n, int) for extent in piece.extents for n in extent):
        digits = [[piece.extents[place][1:] for place in positions.places(its)] for its in range(len(positions.axes))]
        return view.gathered(axis, piece.offset, digits)
    return _indexed(view, [axis], [positions], axis)


def _piece(view: PiecewiseView) -> ViewPiece:
    if len(view.pieces) != 1 or view.rest is not None:
        raise UnreadError
    return view.pieces[0]


def _met(one: PiecewiseView, other: PiecewiseView) -> Sequence[PiecewiseView]:
    """Positions that broadcast against each other, with the same digits."""
    rank = max(len(one.axes), len(other.axes))
    pairs = zip(*((*(1,) * (rank - len(view.axes)), *view.shape) for view in (one, other)), strict=True)
    shape = [broadcast_dims(a, b) for a, b in pairs]
    found = [size for size in shape if size is not None]
    if len(found) < rank:
        raise UnreadError
    return PiecewiseView.aligned([one.expanded(found), other.expanded(found)])


def _combined(op: str, one: PiecewiseView, other: PiecewiseView) -> PiecewiseView:
    """The sum of positions with the same digits, or their product where one of them is a number."""
    first, second = _piece(one), _piece(other)
    if op == "mul" and any(stride != 0 for _, _, stride in second.extents):
        first, second = second, first
    pairs = list(zip(first.extents, second.extents, strict=True))
    if op == "add":
        offset = first.offset + second.offset
        extents = [(0, count, a + b) for (_, count, a), (_, _, b) in pairs]
    elif any(stride != 0 for _, _, stride in second.extents):
        raise UnreadError
    else:
        offset = first.offset * second.offset
        extents = [(0, count, a * second.offset) for (_, count, a), _ in pairs]
    return replace(one, pieces=(ViewPiece(_NUMBERS, offset, tuple(extents)),)).normalised()


def _indexed(view: PiecewiseView, axes: Sequence[int], rows: Sequence[PiecewiseView], at: int) -> PiecewiseView:
    """The view of what positions with the same digits choose along axes, with the axes of these at a place."""
    whole, pieces = _piece(view), [_piece(row) for row in rows]
    offset = whole.offset
    strides: list[Dim] = [0] * len(rows[0].sizes)
    for axis, piece in zip(axes, pieces, strict=True):
        places = view.places(axis)
        low, high = piece.offset, piece.offset
        for _, count, stride in piece.extents:
            # Without an element nothing is chosen: a count is 1 or more.
            if at_least(stride, 0):
                high = high + (count - 1) * stride
            elif at_least(0, stride):
                low = low + (count - 1) * stride
            else:
                raise UnreadError
        if len(places) > 1 or not at_least(low, 0) or not at_least(view.shape[axis] - 1, high):
            raise UnreadError
        if places:
            own = whole.extents[places[0]][2]
            offset = offset + own * piece.offset
            strides = [a + own * stride for a, (_, _, stride) in zip(strides, piece.extents, strict=True)]
    begun = [place for axis in range(at) for place in view.places(axis)]
    behind = [place for axis in range(at + len(axes), len(view.axes)) for place in view.places(axis)]
    moved = tuple((0, size, stride) for size, stride in zip(rows[0].sizes, strides, strict=True))
    extents = (*(whole.extents[p] for p in begun), *moved, *(whole.extents[p] for p in behind))
    shape = (*view.axes[:at], *rows[0].axes, *view.axes[at + len(axes) :])
    return PiecewiseView(shape, (ViewPiece(whole.operand, offset, extents),)).normalised()
