"""Rows of a tensor, and the threads that share one: how many, and how many elements each takes at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from eqsat.runtime.kernels.body import Access
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, unflattened
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.nests.computation import ElementRead, Reduction
from eqsat.runtime.kernels.nests.gpu_groups.results import THREAD, THREAD_ROW, block_of
from eqsat.runtime.kernels.nests.tree import PlaceReduction, ThreadFold

#: Elements of a row that a thread keeps in registers, at most, in bytes.
HELD_BYTES = 128
#: Rows from which on a warp for each keeps a GPU at work, or a thread; with fewer, more threads share one.
MANY_ROWS, MANY_COLUMNS = 1024, 8192
#: With fewer rows than these, threads for each would leave most of a warp without work.
FEW_COLUMNS = 12
WARP = 32
MOST_IN_BLOCK = 512


@dataclass(frozen=True)
class Rows:
    """The axes of a tensor, those across rows and those along one, each in the order memory has them.

    `contiguous` where neighbouring threads take neighbours in a row, which are neighbours in memory, or rows are few;
    elsewhere they take neighbouring rows.
    """

    shape: tuple[int, ...]
    across: tuple[int, ...]
    along: tuple[int, ...]
    contiguous: bool

    @staticmethod
    def of(shape: Sequence[int], along: Sequence[int], strides: Sequence[int]) -> Rows:
        """Rows along some axes of a tensor that is read with the strides given, 0 for repeated axes."""
        chosen = set(along)

        def order(axes: Sequence[int]) -> tuple[int, ...]:
            return tuple(sorted(axes, key=lambda a: (strides[a] != 0, -abs(strides[a]))))

        def nearest(axes: Sequence[int]) -> float:
            return min((abs(strides[a]) for a in axes if shape[a] > 1 and strides[a]), default=math.inf)

        rest = [a for a in range(len(shape)) if a not in chosen]
        few = math.prod(shape[a] for a in rest) < FEW_COLUMNS
        return Rows(tuple(shape), order(rest), order(list(chosen)), few or nearest(list(chosen)) <= nearest(rest))

    @property
    def count(self) -> int:
        """The number of rows."""
        return math.prod(self.shape[a] for a in self.across)

    @property
    def size(self) -> int:
        """The number of elements of a row."""
        return math.prod(self.shape[a] for a in self.along)

    def coords(self, row: AffineIndex, place: AffineIndex) -> Coords:
        """The coordinates of the element at a place of a row."""
        coord_of = dict(zip(self.across, unflattened(row, [self.shape[a] for a in self.across]), strict=True))
        coord_of |= zip(self.along, unflattened(place, [self.shape[a] for a in self.along]), strict=True)
        return tuple(coord_of[axis] for axis in range(len(self.shape)))


@dataclass(frozen=True)
class Team:
    """The threads of a row: neighbouring lanes of a warp, a block, or those of one threadIdx.x in a block.

    Each takes `width` neighbouring elements at a time, `turns` times.
    """

    kind: Literal["lanes", "block", "columns"]
    size: int
    rows: int
    width: int
    turns: int

    @property
    def threads(self) -> tuple[int, int]:
        """The columns and rows of threads of a block."""
        return (WARP, self.size) if self.kind == "columns" else (self.size * self.rows, 1)

    @property
    def rows_of_block(self) -> int:
        """The number of rows of a block."""
        return WARP if self.kind == "columns" else self.rows

    def row(self, blocks: int) -> AffineIndex:
        """The row of a thread, one of those of so many blocks."""
        block = block_of(blocks)
        if self.kind == "block":
            return block
        thread = AffineIndex.variable(THREAD, self.threads[0])
        return block * self.rows_of_block + (thread if self.kind == "columns" else thread // self.size)

    @property
    def member(self) -> AffineIndex:
        """The number of a thread among those of its row."""
        if self.kind == "columns":
            return AffineIndex.variable(THREAD_ROW, self.size)
        return AffineIndex.variable(THREAD, self.threads[0]) % self.size

    def fold(self, target: ElementRead, source: ElementRead, reduction: Reduction | PlaceReduction) -> ThreadFold:
        """The reduction of a register of a row's threads."""
        return ThreadFold(target, source, reduction, self.size, self.kind)


def team_for(rows: Rows, width: int, itemsize: int) -> Team:
    """The threads for rows that are read `width` elements at a time, and computed in elements of so many bytes."""
    steps = max(-(-rows.size // width), 1)
    if not rows.contiguous:
        size = 1 if rows.size <= 8 or rows.count >= MANY_COLUMNS else min(16, _power_of_two(-(-rows.size // 4)))
        return _team("lanes" if size == 1 else "columns", size, _rows_of(rows, size), width, steps)
    lanes = min(WARP, _power_of_two(steps))
    if steps <= 2 * WARP or (rows.count >= MANY_ROWS and rows.size * itemsize <= HELD_BYTES * WARP):
        return _team("lanes", lanes, _rows_of(rows, lanes), width, steps)
    size = min(256, _power_of_two(steps))
    while size < MOST_IN_BLOCK and -(-steps // size) * width * itemsize > HELD_BYTES // 2:
        size *= 2
    return _team("block", size, 1, width, steps)


def _team(kind: Literal["lanes", "block", "columns"], size: int, rows: int, width: int, steps: int) -> Team:
    return Team(kind, size, rows, width, -(-steps // size))


def _rows_of(rows: Rows, size: int) -> int:
    """The number of rows of a block: some 256 threads, fewer where there are few rows."""
    most = max(256 // size, 1)
    while most * size > 64 and -(-rows.count // most) < 132:
        most //= 2
    return most


def _power_of_two(least: int) -> int:
    return 1 << max(least - 1, 0).bit_length()


def read_strides(shape: Sequence[int], accesses: Callable[[Coords], Sequence[Access]]) -> tuple[int, ...]:
    """The strides by which the largest of the operands behind a value is read along the value's axes.

    An axis that reaches memory through a quotient counts as if the value were stored in order.
    """
    names = [f"a{axis}" for axis in range(len(shape))]
    reads = accesses(tuple(AffineIndex.variable(n, size) for n, size in zip(names, shape, strict=True)))
    own = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if not reads:
        return tuple(own)

    def varying(access: Access) -> int:
        return math.prod(size for name, size in zip(names, shape, strict=True) if access.offset.reads(name))

    largest = max(reads, key=varying)
    return tuple(
        (largest.offset.coefficient(n) or s) if largest.offset.reads(n) else 0 for n, s in zip(names, own, strict=True)
    )


def checked(count: int) -> int:
    """A number of rows or of their elements that an int holds."""
    if count >= 2**31:
        raise UnsupportedError("more rows than an int counts")
    return count
