"""Schedules of a group whose results are made element by element: a thread for each few of the elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.runtime.kernels.body import LANE, THREADS, KernelBody, fits
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, offset, unflattened
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.gpu_groups.stores import made
from eqsat.runtime.kernels.nests.tree import GpuKernel, Guard, Named, Node, Vector
from eqsat.runtime.kernels.view import WIDEST_ACCESS

#: Variables of CUDA C++ that are never less than 0, nor are sums of them here.
BLOCK, THREAD, THREAD_ROW = "blockIdx.x", "threadIdx.x", "threadIdx.y"
#: Blocks are made smaller until there are so many, which keeps all multiprocessors at work.
FEW_BLOCKS = 256
LEAST_THREADS = 64
#: Numbers of elements that a thread may make, the largest first.
WIDTHS = tuple(WIDEST_ACCESS >> n for n in range(WIDEST_ACCESS.bit_length()))


def results_kernel(group: Group, widths: Sequence[int] = (1,)) -> GpuKernel:
    """The kernel that makes each result by a thread for as many of its elements as one of the `widths` says.

    The blocks are shared out among results of different shapes.
    """
    shapes = dict.fromkeys(view.shape for view in group.results.values())
    parts = [_Part(group, [n for n, v in group.results.items() if v.shape == shape], widths) for shape in shapes]
    parts = [part for part in parts if part.count]
    threads, blocks = shared_out([part.threads for part in parts])
    total, before = sum(blocks), 0
    block = block_of(total)
    nodes: list[Node] = []
    for part, count in zip(parts, blocks, strict=True):
        body = part.nodes(block - before, count, threads)
        if len(parts) > 1:
            body = (Guard(((block, before + count),), body, ((block, before),)),)
        nodes += body
        before += count
    return GpuKernel(tuple(nodes), total, (threads, 1))


def block_of(blocks: int) -> AffineIndex:
    """The number of a block, of which it is known that no more than so many others are before it.

    Where a kernel is told how many there are, conditions vanish, but NVRTC takes up to two registers more.
    """
    return AffineIndex.variable(BLOCK, blocks + 1)


def shared_out(counts: Sequence[int]) -> tuple[int, list[int]]:
    """The threads of a block, and the blocks, for each of several parts of so many threads."""
    threads = THREADS
    while threads > LEAST_THREADS and sum(-(-count // threads) for count in counts) < FEW_BLOCKS:
        threads //= 2
    return threads, [-(-count // threads) for count in counts]


def walked(shape: Sequence[int], order: Sequence[int], width: int) -> Coords:
    """The coordinates of element k of those of thread t: `width` at a time of a tensor walked in an order."""
    position = AffineIndex.variable("t", math.prod(shape) // width) * width + AffineIndex.variable(LANE, width)
    coords = unflattened(position, [shape[a] for a in order])
    return tuple(coords[order.index(axis)] for axis in range(len(shape)))


class _Part:
    """Results of one shape, walked in the order in which the first lies in memory."""

    def __init__(self, group: Group, names: Sequence[str], widths: Sequence[int]) -> None:
        self.group, self.names = group, names
        view = group.results[names[0]]
        self.shape = view.shape
        self.order = sorted(range(view.rank), key=lambda axis: -abs(view.strides[axis]))
        self.count = view.count
        self.width = next(w for w in widths if self._fits(w)) if self.count else 1
        self.threads = self.count // self.width

    def _fits(self, width: int) -> bool:
        """Return whether a thread may make `width` elements: the results lie together, and so do all large operands."""
        if width == 1:
            return True
        coords = walked(self.shape, self.order, width)
        views = [self.group.results[name] for name in self.names]
        if self.count % width or not all(fits(v, offset(coords, v.strides), width) for v in views):
            return False
        probe = KernelBody(self.group)
        with probe.side_by_side(width):
            for name in self.names:
                probe.value(name, coords)
        apart = [a for a in probe.accesses if a.offset.reads(LANE) and not a.packed and not a.conditional]
        return all(self.group.operands[a.value].count * 2 < self.count for a in apart)

    def nodes(self, block: AffineIndex, blocks: int, threads: int) -> tuple[Node, ...]:
        """The statements of the threads of this part, in the block of that number of its own ones."""
        coords = walked(self.shape, self.order, self.width)
        stores = tuple(made(self.group, name, coords) for name in self.names)
        first = AffineIndex.number(0)
        body = stores if self.width == 1 else (Vector(LANE, self.width, first, self.width, stores),)
        t = AffineIndex.variable("t", (blocks + 1) * threads)
        place = block * threads + AffineIndex.variable(THREAD, threads)
        return Named("t", place), Guard(((t, self.threads),), body)
