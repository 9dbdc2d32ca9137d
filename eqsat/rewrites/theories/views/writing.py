"""Strided maps of one operand written as the fewest reshapes, transposes, slices and expands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat.language.terms.dims import Dim, polynomial_quotient, product
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.views.naming import size_text
from eqsat.rewrites.theories.views.pieces import PiecewiseView

#: Operators that cost as much as several.
_DEAR = {"gather": 4, "gather_nd": 4}
_COUNTED = ("reshape", "transpose", "slice", "expand", "tile", "gather", "gather_nd", "pad", "concat", "fill")
#: A digit of an axis: its size and its stride through the operand.
Digit = tuple[Dim, Dim]


@dataclass(frozen=True)
class StridedMap:
    """A view of one operand that fills all of it: the place of its first element, and the digits of each axis."""

    operand: str
    offset: Dim
    axes: tuple[tuple[Digit, ...], ...]

    @staticmethod
    def of(view: PiecewiseView) -> StridedMap:
        """A view that is one piece; UnreadError for another."""
        if len(view.pieces) != 1 or view.rest is not None:
            raise UnreadError
        (piece,) = view.pieces
        digits = [(size, stride) for size, (_, _, stride) in zip(view.sizes, piece.extents, strict=True)]
        axes = (tuple(digits[place] for place in view.places(axis)) for axis in range(len(view.axes)))
        return StridedMap(piece.operand, piece.offset, tuple(axes))

    @property
    def shape(self) -> tuple[Dim, ...]:
        """The sizes of the axes."""
        return tuple(product(size for size, _ in axis) for axis in self.axes)


def steps_of(text: str) -> int:
    """The number of operators of a term, dear ones counted as several."""
    return sum(text.count(f"{op}(") * _DEAR.get(op, 1) for op in _COUNTED)


def written_map(view: StridedMap, whole: StridedMap) -> Iterator[str]:
    """Terms that make a view of an operand as it is; what they make is for a proof to say."""
    if view == whole:
        yield whole.operand
        return
    if any(stride == 0 for axis in view.axes for _, stride in axis):
        yield from _expanded(view, whole)
        return
    flat = [digit for axis in view.axes for digit in axis]
    bounds = [digit[1] for axis in whole.axes for digit in axis]
    for digits in dict.fromkeys(
        (_merged(flat), tuple(flat), tuple(_cut(_merged(flat), bounds)), tuple(_cut(flat, bounds)))
    ):
        order = _from_last(digits, product(whole.shape))
        if order is not None and view.offset == 0:
            yield _permuted(whole, [digits[place] for place in order], digits, view.shape)
    part = _sliced(view, whole)
    if part is not None:
        yield part
    within = _sliced_within(view, whole)
    if within is not None:
        yield within


def _merged(digits: Sequence[Digit]) -> tuple[Digit, ...]:
    """Digits with one for neighbours that move as one does."""
    found: list[Digit] = []
    for size, stride in digits:
        if found and found[-1][1] == size * stride:
            size = found.pop()[0] * size
        found.append((size, stride))
    return tuple(found)


def _cut(digits: Sequence[Digit], bounds: Sequence[Dim]) -> Iterator[Digit]:
    """Digits that end where axes of the operand do."""
    for size, stride in digits:
        inner = [polynomial_quotient(bound, stride) for bound in bounds if stride != 0]
        at = sorted(
            (n for n in inner if n is not None and n != 1 and polynomial_quotient(size, n) not in (None, 1)), key=str
        )
        if not at:
            yield size, stride
            continue
        rest = polynomial_quotient(size, at[0])
        assert rest is not None
        yield from _cut([(rest, stride * at[0]), (at[0], stride)], bounds)


def _from_last(digits: Sequence[Digit], total: Dim) -> list[int] | None:
    """The places of digits in the order of the operand; None where they are not all of its elements, each once."""
    found: list[int] = []
    reached: Dim = 1
    while len(found) < len(digits):
        place = next((n for n, (_, stride) in enumerate(digits) if n not in found and stride == reached), None)
        if place is None:
            return None
        found.insert(0, place)
        reached = reached * digits[place][0]
    return found if reached == total else None


def _permuted(whole: StridedMap, before: Sequence[Digit], after: Sequence[Digit], shape: Sequence[Dim]) -> str:
    perm = [before.index(digit) for digit in after]
    if perm == sorted(perm):
        return reshaped_text(whole.operand, whole.shape, shape)
    text = reshaped_text(whole.operand, whole.shape, [size for size, _ in before])
    return reshaped_text(permuted_text(text, perm), [size for size, _ in after], shape)


def _sliced(view: StridedMap, whole: StridedMap) -> str | None:
    """A part of the operand along its own axes, these in another order; None where axes of the view are no such."""
    strides = [product(whole.shape[axis + 1 :]) for axis in range(len(whole.axes))]
    offset, starts = view.offset, [0] * len(strides)
    known = [stride for stride in strides if isinstance(stride, int)]
    if isinstance(offset, int) and len(known) == len(strides):
        left_over: int = offset
        for axis, one in enumerate(known):
            starts[axis], left_over = divmod(left_over, one)
        offset = left_over
    if offset != 0 or any(len(axis) > 1 for axis in view.axes):
        return None
    cuts: dict[int, tuple[Dim, int]] = {}
    order: list[int] = []
    for size, stride in (axis[0] for axis in view.axes if axis):
        steps = ((axis, polynomial_quotient(stride, own)) for axis, own in enumerate(strides) if whole.axes[axis])
        axis, step = next(((a, k) for a, k in steps if isinstance(k, int) and k != 0), (-1, 0))
        if axis < 0 or axis in cuts:
            return None
        cuts[axis] = size, step
        order.append(axis)
    units = [axis for axis in range(len(strides)) if axis not in cuts]
    bounds = []
    for axis, own in enumerate(whole.shape):
        size, step = cuts.get(axis, (1, 1))
        if (size, step) != (own, 1):
            if not isinstance(size, int):
                return None
            bounds.append(
                (axis, starts[axis], max(starts[axis] + (size - 1) * step + (1 if step > 0 else -1), -1), step)
            )
    text = whole.operand
    if bounds:
        names = zip(("axes", "starts", "ends", "steps"), zip(*bounds, strict=True), strict=True)
        text = f"slice({text}, {', '.join(f'{name}={values!r}' for name, values in names)})"
    # Axes of size 1 take the places of those of the view as long as there are any.
    left = iter(units)
    kept = iter(order)
    perm = [next(kept) if axis else next(left, None) for axis in view.axes]
    places = [place for place in perm if place is not None] + list(left)
    text = permuted_text(text, places)
    made = [cuts[place][0] if place in cuts else 1 for place in places]
    return reshaped_text(text, made, view.shape)


def _sliced_within(view: StridedMap, whole: StridedMap) -> str | None:
    """A part of the operand with its axes taken apart where digits of the view begin; None where these do not fit."""
    digits = [digit for axis in view.axes for digit in axis]
    begun = {stride for axis in (*whole.axes, digits) for _, stride in axis if stride != 0}
    ends: list[Dim] = [*sorted({abs(n) for n in begun if isinstance(n, int)}, reverse=True)]
    sizes = [polynomial_quotient(end, start) for end, start in zip([product(whole.shape), *ends], ends, strict=False)]
    known = [size for size in sizes if size is not None and size != 1]
    if (
        not all(isinstance(n, int) for n in begun)
        or len(known) < len(sizes)
        or ends[-1:] != [1]
        or tuple(known) == whole.shape
    ):
        return None
    apart = StridedMap(
        reshaped_text(whole.operand, whole.shape, known),
        0,
        tuple(((size, end),) for size, end in zip(known, ends, strict=True)),
    )
    flat = StridedMap(whole.operand, view.offset, tuple((digit,) for digit in digits))
    part = _sliced(flat, apart)
    return None if part is None else reshaped_text(part, flat.shape, view.shape)


def _expanded(view: StridedMap, whole: StridedMap) -> Iterator[str]:
    """Terms that make what is not repeated, and repeat it."""
    kept = replace(view, axes=tuple(tuple(digit for digit in axis if digit[1] != 0) for axis in view.axes))
    ones = [[1 if stride == 0 else size for size, stride in axis] for axis in view.axes]
    for text in written_map(kept, whole):
        if all(len(axis) < 2 for axis in view.axes):  # no axis is repeated and has elements of its own
            yield f"expand({text}, shape={shape_text(view.shape)})"
            continue
        apart = reshaped_text(text, kept.shape, [size for axis in ones for size in axis])
        sizes = [size for axis in view.axes for size, _ in axis]
        yield reshaped_text(f"expand({apart}, shape={shape_text(sizes)})", sizes, view.shape)


def permuted_text(text: str, perm: Sequence[int]) -> str:
    """A transpose of a term."""
    return text if list(perm) == sorted(perm) else f"transpose({text}, perm={tuple(perm)!r})"


def reshaped_text(text: str, before: Sequence[Dim], shape: Sequence[Dim]) -> str:
    """A reshape of a term of a shape to another."""
    return text if list(before) == list(shape) else f"reshape({text}, shape={shape_text(shape)})"


def shape_text(shape: Sequence[Dim]) -> str:
    """A shape as rules write it."""
    return f"({''.join(f'{size_text(size)}, ' for size in shape)})"
