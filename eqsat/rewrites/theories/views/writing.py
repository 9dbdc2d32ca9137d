"""Strided maps written as the fewest reshapes, transposes and slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat.language.terms.dims import Dim, Sym, exact_quotient, product
from eqsat.rewrites.theories.views.strides import Digit, StridedMap, merged


def written_views(view: StridedMap, whole: StridedMap) -> Iterator[str]:
    """Terms that make a view of an operand as it is; what they make is for a proof to say."""
    if view == whole:
        yield whole.operand
        return
    flat = [digit for axis in view.axes for digit in axis]
    bounds = [digit[1] for axis in whole.axes for digit in axis]
    for digits in dict.fromkeys(
        (merged(flat), tuple(flat), tuple(_cut(merged(flat), bounds)), tuple(_cut(flat, bounds)))
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


def _cut(digits: Sequence[Digit], bounds: Sequence[Dim]) -> Iterator[Digit]:
    """Digits that end where axes of the operand do."""
    for size, stride in digits:
        inner = [exact_quotient(bound, stride) for bound in bounds if stride != 0]
        at = sorted(
            (n for n in inner if n is not None and n != 1 and exact_quotient(size, n) not in (None, 1)), key=str
        )
        if not at:
            yield size, stride
            continue
        rest = exact_quotient(size, at[0])
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
    perm = tuple(before.index(digit) for digit in after)
    if perm == tuple(range(len(perm))):
        return _reshaped(whole.operand, whole.shape, shape)
    text = _reshaped(whole.operand, whole.shape, [size for size, _ in before])
    return _reshaped(f"transpose({text}, perm={perm!r})", [size for size, _ in after], shape)


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
        steps = ((axis, exact_quotient(stride, own)) for axis, own in enumerate(strides) if whole.axes[axis])
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
    if places != sorted(places):
        text = f"transpose({text}, perm={tuple(places)!r})"
    made = [cuts[place][0] if place in cuts else 1 for place in places]
    return _reshaped(text, made, view.shape)


def _sliced_within(view: StridedMap, whole: StridedMap) -> str | None:
    """A part of the operand with its axes taken apart where digits of the view begin; None where these do not fit."""
    digits = [digit for axis in view.axes for digit in axis]
    begun = {stride for axis in (*whole.axes, digits) for _, stride in axis if stride != 0}
    ends: list[Dim] = [*sorted({abs(n) for n in begun if isinstance(n, int)}, reverse=True)]
    sizes = [exact_quotient(end, start) for end, start in zip([product(whole.shape), *ends], ends, strict=False)]
    known = [size for size in sizes if size is not None and size != 1]
    if (
        not all(isinstance(n, int) for n in begun)
        or len(known) < len(sizes)
        or ends[-1:] != [1]
        or tuple(known) == whole.shape
    ):
        return None
    apart = StridedMap(
        _reshaped(whole.operand, whole.shape, known),
        0,
        tuple(((size, end),) for size, end in zip(known, ends, strict=True)),
    )
    flat = StridedMap(whole.operand, view.offset, tuple((digit,) for digit in digits))
    part = _sliced(flat, apart)
    return None if part is None else _reshaped(part, flat.shape, view.shape)


def _reshaped(text: str, before: Sequence[Dim], shape: Sequence[Dim]) -> str:
    if list(before) == list(shape):
        return text
    return f"reshape({text}, shape=({''.join(f'{size_text(size)}, ' for size in shape)}))"


def size_text(size: Dim) -> str:
    """A size as rules write it; ValueError for one that is no product of dims."""
    if isinstance(size, int):
        return str(size)
    if len(size.terms) != 1:
        raise ValueError(f"{size} is no product of dims")
    ((monomial, number),) = size.terms
    factors = [str(atom) for atom, power in monomial for _ in range(power)]
    return " * ".join([*([str(number)] if number != 1 else []), *factors])


def in_dims_of(size: Dim, names: dict[Dim, str]) -> Dim:
    """A size in the dims of an operand; ValueError where it is no product of these."""
    if isinstance(size, int):
        return size
    if len(size.terms) != 1:
        raise ValueError(f"{size} is no product of dims")
    ((monomial, number),) = size.terms
    found: Dim = number
    for atom, power in monomial:
        own = names.get(Sym.named(atom)) if isinstance(atom, str) else None
        if own is None:
            raise ValueError(f"{atom} is no dim of the operand")
        for _ in range(power):
            found = found * Sym.named(own)
    return found
