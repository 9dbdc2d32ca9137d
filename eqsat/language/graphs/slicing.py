"""Indices in brackets, as NumPy has them, in terms of the operators slice and reshape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.terms import Dim, Shape


class Cut(NamedTuple):
    """Start, end and step of a slice along an axis."""

    start: Dim
    end: Dim
    axis: int
    step: int


class Slicing(NamedTuple):
    """The axes that an index cuts, and by axis of the result the axis it is; None for a new one of size 1."""

    cuts: tuple[Cut, ...]
    axes: tuple[int | None, ...]


def slicing(index: Sequence[Any], shape: Shape, tensor: object, where: str) -> Slicing:
    """An index of integers, slices, ``...`` and None into a tensor of a shape.

    An integer takes its axis away, None puts one of size 1 in. ShapeError, which names the tensor and where it is, for
    more indices than axes, an index out of range, or anything else as an index.
    """
    rank = len(shape)
    count = sum(i is not None and i is not Ellipsis for i in index)
    if count > rank or sum(i is Ellipsis for i in index) > 1:
        raise ShapeError(f"{len(index)} indices into {tensor!r}", where=where, expected=f"at most {rank}")
    written = list(index)
    at = next((n for n, i in enumerate(written) if i is Ellipsis), len(written))
    written[at : at + 1] = [slice(None)] * (rank - count)
    cuts: list[Cut] = []
    axes: list[int | None] = []
    axis = 0
    for item in written:
        if item is None:
            axes.append(None)
            continue
        if not isinstance(item, slice) and not isinstance(item, int | np.integer):
            raise ShapeError(f"index {item!r} into {tensor!r}", where=where, expected="integers and slices")
        cut = _cut(item, shape[axis], axis, tensor, where)
        if cut != (0, shape[axis], axis, 1):
            cuts.append(cut)
        if isinstance(item, slice):
            axes.append(axis)
        axis += 1
    return Slicing(tuple(cuts), tuple(axes))


def _cut(item: Any, size: Dim, axis: int, tensor: object, where: str) -> Cut:
    """An integer or a slice along an axis of a size."""
    if not isinstance(item, slice):
        if isinstance(size, int) and not -size <= item < size:
            raise ShapeError(f"index {item} into axis {axis} of {tensor!r}", where=where, expected=f"less than {size}")
        place: Dim = size + int(item) if item < 0 else int(item)
        return Cut(place, place + 1, axis, 1)
    step = item.step if item.step is not None else 1
    if isinstance(size, int) and all(b is None or isinstance(b, int) for b in (item.start, item.stop)):
        start, stop, step = item.indices(size)
        return Cut(start, stop, axis, step)
    if step < 1:
        raise ShapeError(f"a step of {step} along axis {axis} of {tensor!r}", where=where, expected="a step above 0")
    first: Dim = 0 if item.start is None else item.start
    last: Dim = size if item.stop is None else item.stop
    if isinstance(first, int) and first < 0:
        first = size + first
    if isinstance(last, int) and last < 0:
        last = size + last
    return Cut(first, last, axis, step)
