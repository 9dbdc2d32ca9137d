"""Views of several pieces written as pads and concatenations of views of one operand each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cmp_to_key

from eqsat.language.declaration.symbolic import at_least
from eqsat.language.terms.dims import Dim, product
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.views.boxes import ViewPiece
from eqsat.rewrites.theories.views.pieces import PiecewiseView
from eqsat.rewrites.theories.views.writing import (
    StridedMap,
    permuted_text,
    reshaped_text,
    steps_of,
    written_map,
)

#: For each axis, where a box begins and where it ends.
_Box = list[tuple[Dim, Dim]]


def written_views(view: PiecewiseView, shapes: Mapping[str, Sequence[Dim]]) -> Iterator[str]:
    """Terms that make a view of operands of known shapes; what they make is for a proof to say."""
    if len(view.pieces) == 1 and view.rest is None:
        piece = view.pieces[0]
        whole = PiecewiseView.of_operand(piece.operand, shapes[piece.variable])
        yield from written_map(StridedMap.of(view), StridedMap.of(whole))
    elif view.pieces:
        yield from _arranged(view, shapes)
        yield from _turned(view, shapes)


def _best(view: PiecewiseView, shapes: Mapping[str, Sequence[Dim]]) -> str | None:
    return min(written_views(view, shapes), key=steps_of, default=None)


def _arranged(view: PiecewiseView, shapes: Mapping[str, Sequence[Dim]]) -> Iterator[str]:
    """A pad of what pieces fill, or concatenations of what lies on either side of a place."""
    try:
        boxes = [_box(view, piece) for piece in view.pieces]
        hull = [
            (_extreme([box[a][0] for box in boxes], -1), _extreme([box[a][1] for box in boxes], 1))
            for a in range(len(view.axes))
        ]
        pads = [start for start, _ in hull] + [size - end for size, (_, end) in zip(view.shape, hull, strict=True)]
        if any(pad != 0 for pad in pads):
            inner = view
            for axis, (start, end) in enumerate(hull):
                inner = inner.sliced(axis, start, end - start)
            if view.rest is not None and all(isinstance(pad, int) for pad in pads):
                stated = "mode='constant', value=" + repr(view.rest).replace("inf", "1e999")
                text, cut = _best(inner, shapes), _cut_off(inner, shapes)
                if text is not None:
                    yield f"pad({text}, pads={tuple(pads)!r}, {stated})"
                if cut is not None:
                    both = tuple(pad - off for pad, off in zip(pads, cut, strict=True))
                    yield f"pad({inner.pieces[0].operand}, pads={both!r}, {stated})"
            return
        for axis in range(len(view.axes)):
            places = _cuts([box[axis] for box in boxes])
            ends = [*places, view.shape[axis]]
            parts = [view.sliced(axis, at, end - at) for at, end in zip([0, *places], ends, strict=True)]
            texts = [_best(part, shapes) for part in parts] if places else []
            if texts and None not in texts:
                yield f"concat({', '.join(text for text in texts if text)}, axis={axis})"
    except UnreadError:
        return


def _cut_off(view: PiecewiseView, shapes: Mapping[str, Sequence[Dim]]) -> list[Dim] | None:
    """The numbers of places cut off an operand before each axis, then behind each; None for a view that is more."""
    piece, left = view.pieces[0], view.pieces[0].offset
    shape, starts = shapes[piece.variable], list[Dim]()
    if len(view.pieces) > 1 or len(shape) != len(view.shape) or not isinstance(left, int):
        return None
    for axis in range(len(shape)):
        inner = product(shape[axis + 1 :])
        start, left = divmod(left, inner) if isinstance(inner, int) and isinstance(left, int) else (0, left)
        starts.append(start)
    cut = starts + [size - start - kept for size, start, kept in zip(shape, starts, view.shape, strict=True)]
    try:
        part = PiecewiseView.of_operand(piece.operand, shape).padded([-off for off in cut], 0.0)
    except UnreadError:
        return None
    return cut if part == view and any(off != 0 for off in cut) else None


def _box(view: PiecewiseView, piece: ViewPiece) -> _Box:
    """Where a piece begins and ends along each axis; UnreadError where it is no box of axes."""
    found: _Box = []
    for axis in range(len(view.axes)):
        begun: Dim = 0
        many: Dim = 1
        inner: Dim = 1
        for place in reversed(view.places(axis)):
            size, (first, number, _) = view.sizes[place], piece.extents[place]
            if many == inner:  # all of what is within
                begun, many = first * inner, number * inner
            elif number == 1:
                begun = begun + first * inner
            else:
                raise UnreadError
            inner = inner * size
        found.append((begun, begun + many))
    return found


def _extreme(places: Sequence[Dim], sign: int) -> Dim:
    """The last of some places, or the first with a sign of -1; UnreadError where the sizes of dims decide."""
    found = next((a for a in places if all(at_least(sign * a, sign * b) for b in places)), None)
    if found is None:
        raise UnreadError
    return found


def _cuts(ranges: _Box) -> list[Dim]:
    """The places, in order, at which ranges begin and through which none goes."""
    starts = [at for at in dict.fromkeys(start for start, _ in ranges) if at != 0]
    known = [at for at in starts if all(at_least(start, at) or at_least(at, end) for start, end in ranges)]
    if any(at_least(a, b) is at_least(b, a) is None for a in known for b in known):
        raise UnreadError
    return sorted(known, key=cmp_to_key(_later))


def _later(one: Dim, other: Dim) -> int:
    return 0 if one == other else 1 if at_least(one, other) else -1


def _turned(view: PiecewiseView, shapes: Mapping[str, Sequence[Dim]]) -> Iterator[str]:
    """The view with each digit an axis, in its own order or in that of the operands, and what makes the view of it."""
    sizes = view.sizes
    apart = view.regrouped([1] * len(sizes))
    for order in dict.fromkeys((tuple(range(len(sizes))), _order(view))):
        flat = apart.transposed(order).flattened()
        inner = flat.regrouped([1] * len(flat.sizes))
        after = [sizes[place] for place in order]
        if inner.shape == view.shape:
            continue
        for text in _arranged(inner, shapes):
            moved = permuted_text(reshaped_text(text, inner.shape, after), [order.index(n) for n in range(len(sizes))])
            yield reshaped_text(moved, sizes, view.shape)


def _order(view: PiecewiseView) -> tuple[int, ...]:
    """The digits in the order of the operands: those with the longest strides first, after those without any."""

    def longer(one: int, other: int) -> int:
        for piece in view.pieces:
            a, b = piece.extents[one][2], piece.extents[other][2]
            if a != b and a != 0 and b != 0:
                return -1 if at_least(a, b) else 1 if at_least(b, a) else one - other
        return one - other

    return tuple(sorted(range(len(view.sizes)), key=cmp_to_key(longer)))
