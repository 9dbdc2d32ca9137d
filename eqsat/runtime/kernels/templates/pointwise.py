"""Kernels of operators element by element and of those that copy elements: a thread for each few of the results."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.runtime.kernels.body import THREADS, KernelBody, entry_name, fits
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex, Coords, offset, unflattened
from eqsat.runtime.kernels.expressions.elements import is_pointwise
from eqsat.runtime.kernels.expressions.expression import STORED
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.movement import MOVES
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.transposition import generate_transposition
from eqsat.runtime.kernels.view import WIDEST_ACCESS

#: Blocks are made smaller until there are so many, which keeps all multiprocessors at work.
FEW_BLOCKS = 256
LEAST_THREADS = 64
#: Numbers of elements that a thread may make, the largest first.
WIDTHS = tuple(WIDEST_ACCESS >> n for n in range(WIDEST_ACCESS.bit_length()))


def generate(group: Group) -> KernelSource | None:
    """One kernel for all results; None where some operator is of another kind. Results overlap no operand."""
    if not all(is_pointwise(node) or node.op in MOVES for node in group.nodes):
        return None
    shapes = dict.fromkeys(view.shape for view in group.results.values())
    if len(shapes) == 1:
        transposed = generate_transposition(group)
        if transposed is not None:
            return transposed
    return launched(KernelBody(group), WIDTHS)


def launched(body: KernelBody, widths: Sequence[int] = (1,)) -> KernelSource:
    """The kernel that makes each result by a thread for as many of its elements as one of the `widths` says.

    The blocks are shared out among results of different shapes.
    """
    group = body.group
    shapes = dict.fromkeys(view.shape for view in group.results.values())
    parts = [_Part(group, [n for n, v in group.results.items() if v.shape == shape], widths) for shape in shapes]
    parts = [part for part in parts if part.count]
    threads, blocks = shared_out([part.threads for part in parts])
    for place, part in enumerate(parts):
        before = sum(blocks[:place])
        if len(parts) == 1:
            part.write(body, "blockIdx.x", threads)
            continue
        with body.writer.block(f"if (blockIdx.x >= {before} && blockIdx.x < {before + blocks[place]})"):
            part.write(body, f"(blockIdx.x - {before})" if before else "blockIdx.x", threads)
    return body.source(entry_name(group), (sum(blocks), 1, 1), (threads, 1, 1))


def shared_out(counts: Sequence[int]) -> tuple[int, list[int]]:
    """The threads of a block, and the blocks, for each of several parts of so many threads."""
    threads = THREADS
    while threads > LEAST_THREADS and sum(-(-count // threads) for count in counts) < FEW_BLOCKS:
        threads //= 2
    return threads, [-(-count // threads) for count in counts]


def walked(shape: Sequence[int], order: Sequence[int], width: int) -> Coords:
    """The coordinates of element k of those of thread t: `width` at a time of a tensor walked in an order."""
    position = AffineIndex.variable("t", math.prod(shape) // width) * width + AffineIndex.variable("k", width)
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
        apart = [a for a in probe.accesses if a.offset.reads("k") and not a.packed and not a.conditional]
        return all(self.group.operands[a.value].count * 2 < self.count for a in apart)

    def write(self, body: KernelBody, block: str, threads: int) -> None:
        """Write the statements of the threads of this part."""
        writer, coords = body.writer, walked(self.shape, self.order, self.width)
        wide = "long long" if self.threads >= INT_LIMIT - threads else "int"
        cast = "(long long)" if wide != "int" else ""
        writer.line(f"const {wide} t = {cast}{block} * {threads} + threadIdx.x;")
        writer.line(f"if (t >= {self.threads}) return;")
        if self.width == 1:
            body.store_at(self.names, coords)
            return
        packs = {name: writer.name(f"{body.pointer(name)}_pack") for name in self.names}
        for name, pack in packs.items():
            writer.line(f"Pack<{STORED[self.group.results[name].dtype]}, {self.width}> {pack};")
        with body.side_by_side(self.width):
            for name, pack in packs.items():
                writer.line(f"{pack}.at[k] = {body.stored(name, body.value(name, coords))};")
        for name, pack in packs.items():
            place = writer.index(offset(coords, self.group.results[name].strides).without("k"))
            writer.line(f"store<{self.width}>({body.pointer(name)} + {place}, {pack});")
