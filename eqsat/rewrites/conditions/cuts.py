"""Functions of rules about slices and concatenations, and about kernels and pads of convolutions and pools."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from eqsat.errors import ShapeError
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, Dim, Operand
from eqsat.rewrites.conditions.functions import Fail, function, value

Cut = tuple[Any, Any, int]

#: Ends of slices from here on stand for the end of the axis.
_TO_END = 2**31 - 1


def _cuts(record: Mapping[str, Any]) -> dict[int, Cut]:
    """Start, end and step of a slice by axis."""
    steps = record["steps"] or (1,) * len(record["axes"])
    return dict(zip(record["axes"], zip(record["starts"], record["ends"], steps, strict=True), strict=True))


def _record(cuts: Mapping[int, Cut]) -> Attrs:
    ordered = sorted(cuts.items())
    return Attrs(
        axes=tuple(axis for axis, _ in ordered),
        starts=tuple(cut[0] for _, cut in ordered),
        ends=tuple(cut[1] for _, cut in ordered),
        steps=tuple(cut[2] for _, cut in ordered),
    )


@function
def cut(axis: int, start: Dim, end: Dim) -> Attrs:
    """The attributes of a slice of consecutive elements along one axis."""
    return _record({axis: (start, end, 1)})


@function
def only_cuts(record: Mapping[str, Any], axis: int) -> bool | Fail:
    """True for a slice of consecutive elements along this axis and no other."""
    fits = record["axes"] == (axis,) and _cuts(record)[axis][2] == 1
    return fits or Fail(f"not a slice of consecutive elements along axis {axis} alone")


@function
def forward(*records: Mapping[str, Any]) -> bool | Fail:
    """True for slices whose steps are all positive."""
    return all(step > 0 for r in records for _, _, step in _cuts(r).values()) or Fail("a step is negative")


@function
def after(x: Operand, first: Mapping[str, Any], second: Mapping[str, Any]) -> Attrs:
    """The slice that stands for two slices with positive steps, one after the other."""
    slicing = spec("slice")
    (middle,) = slicing.result_types([x.type], slicing.complete(first))
    (last,) = slicing.result_types([middle], slicing.complete(second))
    inner, outer, joined = _cuts(first), _cuts(second), {}
    for axis in {*inner, *outer}:
        start, _, step = inner.get(axis, (0, 0, 1))
        begin, _, stride = outer.get(axis, (0, 0, 1))
        start, step = start + begin * step, step * stride
        joined[axis] = (start, start + (last.dims[axis] - 1) * step + 1, step)
        if joined[axis] == (0, x.type.dims[axis], 1):
            del joined[axis]
    return _record(joined)


@function
def axes_to(record: Mapping[str, Any], axes: Sequence[int]) -> Attrs:
    """The slice with each axis replaced by the one at its place in `axes`."""
    return _record({axes[axis]: one for axis, one in _cuts(record).items()})


@function
def adjacent(records: Sequence[Mapping[str, Any]], axis: int) -> bool | Fail:
    """True for slices that differ along one axis only, where each begins as the one before ends, and none behind its
    own end: what begins there is empty, and another slice would go back to it."""
    cuts = [_cuts(r) for r in records]
    if any(axis not in c or c[axis][2] != 1 for c in cuts):
        return Fail(f"a slice does not take consecutive elements along axis {axis}")
    if not all(_ascends(*c[axis][:2]) for c in cuts):
        return Fail(f"a slice along axis {axis} may begin behind its end")
    rest = [{a: one for a, one in c.items() if a != axis} for c in cuts]
    chained = all(a[axis][1] == b[axis][0] for a, b in itertools.pairwise(cuts))
    return (chained and all(r == rest[0] for r in rest)) or Fail("the slices are not adjacent")


def _ascends(start: Dim, end: Dim) -> bool:
    """Return whether a slice begins before its end, or there, whatever the size of its axis."""
    if isinstance(start, int) and isinstance(end, int) and start < 0 and end < 0:
        return start <= end
    # An axis that is longer than what stands for its end may be cut from behind that.
    to_end = isinstance(end, int) and end >= _TO_END and not (isinstance(start, int) and start > end)
    return start == 0 or to_end or (_is_count(start) and _is_count(end - start))


def _is_count(dim: Dim) -> bool:
    """Return whether a dim is 0 or more for all sizes of the names in it: no part of it is negative."""
    if isinstance(dim, int):
        return dim >= 0
    parts = (
        part for monomial, _ in dim.terms for atom, _ in monomial if not isinstance(atom, str) for part in atom[1:]
    )
    return all(factor >= 0 for _, factor in dim.terms) and all(map(_is_count, parts))


@function
def joined(records: Sequence[Mapping[str, Any]], axis: int) -> Attrs:
    """The one slice that adjacent slices make together."""
    first, last = _cuts(records[0]), _cuts(records[-1])
    return _record({**first, axis: (first[axis][0], last[axis][1], 1)})


@function
def position(xs: Sequence[Operand], axis: int, at: Dim) -> int:
    """The number of operands of a concatenation lie before a place that must be a boundary between two."""
    offset: Dim = 0
    for index, x in enumerate(xs):
        if offset == at:
            return index
        offset = offset + x.type.dims[axis]
    if offset != at:
        raise ShapeError(f"{at} is no boundary of the operands")
    return len(xs)


@function
def holder(xs: Sequence[Operand], axis: int, start: int, end: int) -> int:
    """The index of the operand of a concatenation that holds all of a range."""
    offset = 0
    for index, size in enumerate(x.type.static[axis] for x in xs):
        if offset <= start and end <= offset + size:
            return index
        offset += size
    raise ShapeError("the range spans several operands")


@function
def offset(xs: Sequence[Operand], axis: int, index: int) -> Dim:
    """Where an operand begins in a concatenation."""
    total: Dim = 0
    for x in xs[:index]:
        total = total + x.type.dims[axis]
    return total


@function
def index(x: Operand, size: Dim) -> int:
    """The one index a constant holds, counted from the left; refused out of range."""
    elements = value(x)
    if elements.size != 1 or not isinstance(size, int):
        raise ShapeError("not one index into an axis of known size")
    at = int(elements.ravel()[0])
    if not -size <= at < size:
        raise ShapeError(f"index {at} of {size}")
    return at % size


@function
def gathered_perm(perm: Sequence[int], axis: int, rank: int) -> tuple[int, ...]:
    """The transpose after a gather by indices of a rank, in place of one before it."""
    taken = perm[axis]
    moved: list[tuple[int, ...]] = [(p if p < taken else p + rank - 1,) for p in perm]
    moved[axis] = tuple(range(taken, taken + rank))
    return tuple(place for places in moved for place in places)


@function
def stacked_axis(xs: Sequence[Operand], shapes: Sequence[Sequence[Dim]], axis: int) -> int:
    """The axis along which to join tensors so that their reshaped forms are joined along `axis`."""
    leads = {_product(s[:axis]) for s in shapes}
    tails = {tuple(s[axis + 1 :]) for s in shapes}
    if len(leads) == len(tails) == 1 and len({x.type.rank for x in xs}) == 1:
        for place in range(xs[0].type.rank):
            before = {tuple(x.type.dims[:place]) for x in xs}
            behind = {tuple(x.type.dims[place + 1 :]) for x in xs}
            if len(before) == len(behind) == 1 and _product(next(iter(before))) in leads:
                return place
    raise ShapeError("no axis joins the tensors in this order")


def _product(dims: Sequence[Dim]) -> Dim:
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def _spatial(record: Mapping[str, Any], name: str, count: int) -> tuple[int, ...]:
    default = (0,) * (2 * count) if name == "pads" else (1,) * count
    return tuple(record[name]) or default


@function
def padded_by(record: Mapping[str, Any], pads: Sequence[int]) -> tuple[int, ...]:
    """The pads of a convolution or pool that takes a pad of its operand, of all axes, upon itself."""
    rank = len(pads) // 2
    inner = _spatial(record, "pads", rank - 2)
    return tuple(a + b for a, b in zip(inner, (*pads[2:rank], *pads[rank + 2 :]), strict=True))


@function
def pads_space(pads: Sequence[int]) -> bool | Fail:
    """True for pads of N,C,spatial… that leave N and C alone and cut nothing off."""
    rank = len(pads) // 2
    fits = rank > 2 and not any((*pads[:2], *pads[rank : rank + 2])) and min(pads) >= 0
    return fits or Fail("pads more than space, or cuts off")


@function
def unpadded(record: Mapping[str, Any]) -> bool | Fail:
    """True for a convolution or pool without padding."""
    return not any(record["pads"]) or Fail("there is padding")


@function
def grown_pads(
    pads: Sequence[int], dilations: Sequence[int], kernel: Sequence[int], wide: Sequence[int]
) -> tuple[int, ...]:
    """The pads with which a filter enlarged from `kernel` to `wide` reads the same elements."""
    count = len(kernel)
    if any((w - k) % 2 or w < k for k, w in zip(kernel, wide, strict=True)):
        raise ShapeError("the sizes do not differ by even numbers")
    growth = [d * (w - k) // 2 for d, k, w in zip(dilations or (1,) * count, kernel, wide, strict=True)]
    return tuple(p + g for p, g in zip(pads or (0,) * (2 * count), growth * 2, strict=True))


@function
def shrunk_pads(
    pads: Sequence[int], dilations: Sequence[int], kernel: Sequence[int], wide: Sequence[int]
) -> tuple[int, ...]:
    """The pads with which a filter before it was enlarged reads the same elements."""
    growth = grown_pads((), dilations, kernel, wide)
    shrunk = tuple(p - g for p, g in zip(pads or (0,) * len(growth), growth, strict=True))
    if min(shrunk) < 0:
        raise ShapeError("the padding is smaller than the border of the filter")
    return shrunk


@function
def keeps_size(record: Mapping[str, Any], kernel: Sequence[int]) -> bool | Fail:
    """True where windows of odd sizes with stride 1 are centred on every element."""
    count = len(kernel)
    strides, dilations = _spatial(record, "strides", count), _spatial(record, "dilations", count)
    border = tuple(d * (k - 1) // 2 for d, k in zip(dilations, kernel, strict=True))
    is_dense = all(s == 1 for s in strides)
    fits = all(k % 2 for k in kernel) and is_dense and _spatial(record, "pads", count) == border * 2
    return fits or Fail("windows are not centred on every element")


@function
def grows_evenly(kernel: Sequence[int], wide: Sequence[int]) -> bool | Fail:
    """True where a kernel grows to a larger one by as much on either side of each axis."""
    growth = [w - k for k, w in zip(kernel, wide, strict=True)]
    return (min(growth) >= 0 and max(growth) > 0 and not any(g % 2 for g in growth)) or Fail("does not grow evenly")


@function
def spatial_axes(rank: int) -> tuple[int, ...]:
    """The axes after batch and channels."""
    return tuple(range(2, rank))


@function
def inside(dims: Sequence[Dim], pads: Sequence[int], record: Mapping[str, Any]) -> Attrs:
    """The slice of a tensor that a slice of it with pads is, if it takes nothing of the pads; else ShapeError."""
    cuts, inner, rank = _cuts(record), {}, len(dims)
    for axis, (before, behind) in enumerate(zip(pads[:rank], pads[rank:], strict=True)):
        size = dims[axis]
        if before == behind == 0:
            if axis in cuts:
                inner[axis] = cuts[axis]
            continue
        if axis not in cuts or not isinstance(size, int) or min(before, behind) < 0:
            raise ShapeError(f"axis {axis} is padded, or cut off, and not sliced", expected="a slice of what is inside")
        start, end, step = cuts[axis]
        if not (step > 0 and before <= start <= end <= before + size):
            raise ShapeError("the slice takes pads", expected="a slice of what is inside")
        inner[axis] = (start - before, end - before, step)
    return _record(inner)
