"""Views of values: a buffer, and the strides by which elements are found in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.errors import UsageError
from eqsat.language.terms.types import DType

#: Every buffer begins at a multiple of so many bytes.
BUFFER_ALIGNMENT = 256
#: Bytes that one access moves at most.
WIDEST_ACCESS = 16


def padded(nbytes: int) -> int:
    """The bytes that a buffer takes, with those lost to the alignment of the next."""
    return -(-nbytes // BUFFER_ALIGNMENT) * BUFFER_ALIGNMENT


@dataclass(frozen=True, slots=True)
class View:
    """The elements of a value in a buffer; shape, strides and offset count elements, strides may be 0 or negative.

    >>> View.of("x", DType.FLOAT32, (2, 3)).permuted((1, 0)).strides
    (1, 3)
    """

    buffer: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def of(buffer: str, dtype: DType, shape: Sequence[int], order: Sequence[int] | None = None) -> View:
        """A whole buffer; `order` names the axes in the order they are stored, the last contiguous."""
        shape = tuple(shape)
        strides = [0] * len(shape)
        step = 1
        for axis in reversed(range(len(shape)) if order is None else order):
            strides[axis] = step
            step *= max(shape[axis], 1)
        return View(buffer, dtype, shape, tuple(strides))

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps."""
        return self.count * self.dtype.itemsize

    @property
    def extent(self) -> tuple[int, int]:
        """The first byte that is read or written, and the one after the last; equal where there are no elements."""
        if not self.count:
            return self.offset * self.dtype.itemsize, self.offset * self.dtype.itemsize
        spans = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(s for s in spans if s < 0)
        high = self.offset + sum(s for s in spans if s > 0)
        return low * self.dtype.itemsize, (high + 1) * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """True if the elements follow each other in the order of the axes; axes of one element may have any stride."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != step:
                return not self.count
            step *= size
        return True

    @property
    def alignment(self) -> int:
        """The largest power of two, up to WIDEST_ACCESS, that the address of the first element is a multiple of."""
        place = self.offset * self.dtype.itemsize
        return math.gcd(place, WIDEST_ACCESS) if place else WIDEST_ACCESS

    def permuted(self, order: Sequence[int]) -> View:
        """The view with its axes in another order: axis i is the former axis order[i]."""
        return replace(self, shape=tuple(self.shape[a] for a in order), strides=tuple(self.strides[a] for a in order))

    def sliced(self, axis: int, start: int, size: int, step: int = 1) -> View:
        """`size` elements along an axis, from `start` in steps of `step`."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + (start * strides[axis] if size and self.count else 0)
        shape[axis] = size
        strides[axis] *= step
        return replace(self, shape=tuple(shape), strides=tuple(strides), offset=offset)

    def broadcast_to(self, shape: Sequence[int]) -> View:
        """The view repeated along new leading axes and axes of one element; UsageError where it does not fit."""
        lead = len(shape) - self.rank
        pairs = list(zip(self.shape, shape[lead:], strict=True)) if lead >= 0 else [(2, 1)]
        if any(have not in (1, want) for have, want in pairs):
            raise UsageError(f"{list(self.shape)} as {list(shape)}", expected="a shape that broadcasts to the other")
        strides = (
            0 if have == 1 and want != 1 else stride for (have, want), stride in zip(pairs, self.strides, strict=True)
        )
        return replace(self, shape=tuple(shape), strides=((0,) * lead + tuple(strides)))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The same elements in the same order under another shape; None where that takes a copy.

        >>> View.of("x", DType.FLOAT32, (2, 3, 4)).permuted((1, 0, 2)).reshaped((3, 2, 2, 2)).strides
        (4, 12, 2, 1)
        >>> View.of("x", DType.FLOAT32, (2, 3)).permuted((1, 0)).reshaped((6,)) is None
        True
        """
        target = tuple(shape)
        if math.prod(target) != self.count:
            raise UsageError(f"{list(self.shape)} as {list(target)}", expected="as many elements")
        if not self.count:
            return replace(View.of(self.buffer, self.dtype, target), offset=self.offset)
        merged: list[tuple[int, int]] = []  # runs of axes that one stride walks: (elements, stride)
        for size, stride in zip(self.shape, self.strides, strict=True):
            if size == 1:
                continue
            if merged and merged[-1][1] == size * stride:
                merged[-1] = (merged[-1][0] * size, stride)
            else:
                merged.append((size, stride))
        strides: list[int] = []
        left = step = 1
        for size in reversed(target):
            if size == 1:
                strides.append(step)
                continue
            if left == 1:
                left, step = merged.pop()
            if left % size:
                return None
            strides.append(step)
            step *= size
            left //= size
        return replace(self, shape=target, strides=tuple(reversed(strides)))
