"""Sums of products in tiles: a block computes one, from tiles of operands in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, unflattened
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import (
    ElementRead,
    KernelBuffer,
    KernelStatement,
    LoopAxis,
    is_risky,
    reads,
    rebuilt,
)
from eqsat.runtime.kernels.nests.extents import Extent, fixed, is_free, is_several, largest, rounds
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.options import MOST_UNROLLED
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain, following_nodes
from eqsat.runtime.kernels.nests.scheduling.gpu_boxes import block_variable, bound_of, places
from eqsat.runtime.kernels.nests.scheduling.gpu_elements import (
    BLOCK,
    THREAD,
    THREAD_ROW,
    power_of_two,
)
from eqsat.runtime.kernels.nests.scheduling.strides import depends
from eqsat.runtime.kernels.nests.scheduling.values import neutral, own_element
from eqsat.runtime.kernels.nests.tree import Assign, Barrier, BlockCount, GpuKernel, Guard, Local, Loop, Named, Node

#: Extents from which on an index is tiled.
_LEAST = 3


def product_axes(statement: KernelStatement, buffers: Mapping[str, KernelBuffer]) -> tuple[LoopAxis, LoopAxis] | None:
    """The indices along which a tile has rows and columns; None of statements that are no sums of reused elements.

    Some element is read for all rows, and some other for all columns. Columns are along the last index of the target,
    so that neighbouring threads write neighbours.
    """
    if statement.reduction != "+" or not statement.reduced or is_risky(statement.value):
        return None
    given = reads(statement.value)
    if not all(read.is_affine and not buffers[read.buffer].is_empty for read in given):
        return None
    *others, column = statement.kept or (LoopAxis("", 0),)

    def suits(row: LoopAxis) -> bool:
        by_row = any(depends(read, row.name) and not depends(read, column.name) for read in given)
        return by_row and any(depends(read, column.name) and not depends(read, row.name) for read in given)

    rows = [axis for axis in others if largest(axis.extent) >= _LEAST and suits(axis)]
    if largest(column.extent) < _LEAST or not rows:
        return None
    return max(rows, key=lambda axis: largest(axis.extent)), column


@dataclass(frozen=True)
class Promotion:
    """An operand's elements in a tile: the box of them in shared memory, and where it begins in the operand."""

    read: ElementRead
    tile: KernelBuffer
    begin: tuple[AffineIndex, ...]
    inner: tuple[AffineIndex, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """The same for elements that are the same for all values of indices."""
        return _key(self.read)


def _key(read: ElementRead) -> tuple[str, ...]:
    return (read.buffer, *(one.key for one in read.subscripts if isinstance(one, AffineIndex)))


@dataclass
class ProductSchedule:
    """The kernel of a chain that begins with a sum of products; the chain is finished on registers.

    Rows of a tile are `thread_rows` times as many as a block's, columns likewise, shortened where an index is short.
    """

    chain: StatementChain
    buffers: Mapping[str, KernelBuffer]
    options: GpuMapping
    row: LoopAxis
    column: LoopAxis

    def __post_init__(self) -> None:
        options, statement = self.options, self.chain.first
        self.dtype = statement.value.dtype
        row, column = bound_of(self.row.extent), bound_of(self.column.extent)
        self.block_rows = min(options.block_rows, power_of_two(row))
        self.block_columns = min(options.block_columns, power_of_two(column))
        self.rows = min(options.thread_rows, -(-row // self.block_rows))
        self.columns = min(options.thread_columns, -(-column // self.block_columns))
        self.threads = self.block_rows * self.block_columns
        self.outer = [
            axis for axis in statement.kept if axis not in (self.row, self.column) and is_several(axis.extent)
        ]
        self.steps: dict[str, int] = {}
        left = options.reduced_tile
        for axis in reversed(statement.reduced):
            self.steps[axis.name] = min(bound_of(axis.extent), left)
            left = max(left // self.steps[axis.name], 1)
        self.spans = {
            self.row.name: self.block_rows * self.rows,
            self.column.name: self.block_columns * self.columns,
            **self.steps,
        }
        self._begins()

    def _begins(self) -> None:
        """Work out where a tile begins, and the place of a thread's element in it, by indices."""
        row, column, statement = self.row, self.column, self.chain.first
        self.begin = {
            axis.name: AffineIndex.variable(f"{axis.name}_t", -(-bound_of(axis.extent) // self.spans[axis.name]))
            * self.spans[axis.name]
            for axis in (row, column, *statement.reduced)
        }
        self.inner = {
            row.name: AffineIndex.variable(f"{row.name}_u", self.rows) * self.block_rows
            + AffineIndex.variable(THREAD_ROW, self.block_rows),
            column.name: AffineIndex.variable(f"{column.name}_u", self.columns) * self.block_columns
            + AffineIndex.variable(THREAD, self.block_columns),
            **{name: AffineIndex.variable(f"{name}_f", step) for name, step in self.steps.items()},
        }
        self.at = {name: self.begin[name] + self.inner[name] for name in self.begin}

    def kernel(self) -> GpuKernel:
        """The tree, and the blocks and threads."""
        tiles = [rounds(axis.extent, self.spans[axis.name]) for axis in (self.row, self.column)]
        extents: list[Extent] = [*(axis.extent for axis in self.outer), *tiles]
        names = [*(axis.name for axis in self.outer), f"{self.row.name}_t", f"{self.column.name}_t"]
        blocks: int | BlockCount = math.prod(extent for extent in extents if isinstance(extent, int))
        if any(is_free(extent) for extent in extents):
            outer = tuple(axis.extent for axis in self.outer)
            sides = [((axis.extent,), self.spans[axis.name]) for axis in (self.row, self.column)]
            blocks = BlockCount(((outer, 1), *sides))
        nodes, _ = places(names, extents, block_variable(blocks, BLOCK))
        promotions = self._promotions()
        nodes += [Local(one.tile, is_shared=True) for one in promotions]
        local, total = self._register("acc")
        statement = self.chain.first
        nodes += [local, self._each(Assign(total, neutral("+", self.dtype), "", self.at))]
        if not statement.is_fresh:
            nodes.append(self._inside(Assign(total, own_element(statement), "+", self.at)))
        nodes += self._sums(total, promotions)
        nodes += following_nodes(self.chain, total, self._register, self._inside, self.at)
        return GpuKernel(tuple(nodes), blocks, (self.block_columns, self.block_rows))

    def _register(self, name: str) -> tuple[Node, ElementRead]:
        buffer = KernelBuffer(name, self.dtype, (self.rows, self.columns), "local")
        place = (
            AffineIndex.variable(f"{self.row.name}_u", self.rows),
            AffineIndex.variable(f"{self.column.name}_u", self.columns),
        )
        return Local(buffer, True), ElementRead.of(name, self.dtype, place)

    def _each(self, body: Node) -> Node:
        """A statement for every element of a thread, written out."""
        inner = Loop(f"{self.column.name}_u", self.columns, (body,), "unrolled")
        return Loop(f"{self.row.name}_u", self.rows, (inner,), "unrolled")

    def _inside(self, body: Node) -> Node:
        """A statement for every element of a thread that the target has."""
        below = tuple((self.at[axis.name], axis.extent) for axis in (self.row, self.column))
        return self._each(Guard(below, (body,)))

    def _sums(self, total: ElementRead, promotions: Sequence[Promotion]) -> list[Node]:
        """Loops over tiles of the reduced indices, each of which is loaded between two barriers."""
        statement = self.chain.first
        value, is_whole = self._promoted(statement.value, promotions)
        update = Assign(total, value, "+", self.at)
        body: Node = self._each(update) if is_whole else self._inside(update)
        below = tuple((self.at[axis.name], axis.extent) for axis in statement.reduced)
        body = Guard(below, (body,))
        steps = [LoopAxis(f"{axis.name}_f", self.steps[axis.name]) for axis in statement.reduced]
        for number, step in enumerate(axis for axis in reversed(steps) if axis.count > 1):
            body = Loop(step.name, step.count, (body,), unroll=1 if number else self.options.unroll, is_reduced=True)
        nodes: list[Node] = [body]
        tiles = [(axis.name, rounds(axis.extent, self.steps[axis.name])) for axis in statement.reduced]
        if promotions:
            # Before tiles are loaded, all threads have read the last ones.
            again: list[Node] = [Barrier()] if any(is_several(count) for _, count in tiles) else []
            nodes = [*again, *(self._load(one) for one in promotions), Barrier(), body]
        for name, count in reversed(tiles):
            if is_several(count):
                nodes = [Loop(f"{name}_t", count, tuple(nodes), is_reduced=True)]
        return nodes

    def _promoted(self, value: Expr, promotions: Sequence[Promotion]) -> tuple[Expr, bool]:
        """The value with elements of shared memory, and whether it reads nothing else that has rows or columns."""
        known = {one.key: one for one in promotions}

        def change(one: Expr) -> Expr | None:
            if isinstance(one, ElementRead) and _key(one) in known:
                return ElementRead.of(known[_key(one)].tile.name, one.dtype, known[_key(one)].inner)
            return None

        others = [read for read in reads(value) if _key(read) not in known]
        tiled = (self.row.name, self.column.name)
        return rebuilt(value, change), not any(depends(read, name) for read in others for name in tiled)

    def _promotions(self) -> list[Promotion]:
        """The operands whose tiles are read again and fit, smallest first; none that the kernel writes."""
        if not self.options.promote:
            return []
        written = {one.target for one in (self.chain.first, *self.chain.following)}
        candidates: dict[tuple[str, ...], Promotion] = {}
        for read in reversed(reads(self.chain.first.value)):
            if read.buffer not in written and _key(read) not in candidates:
                made = self._promotion(read, len(candidates))
                if made is not None:
                    candidates[made.key] = made
        chosen: list[Promotion] = []
        left = self.options.shared_bytes
        for one in sorted(candidates.values(), key=lambda one: one.tile.nbytes):
            if one.tile.nbytes <= left:
                left -= one.tile.nbytes
                chosen.append(one)
        return chosen

    def _promotion(self, read: ElementRead, number: int) -> Promotion | None:
        """The box of an operand's elements in a tile; None where none is read twice."""
        begins, inners, extents = [], [], []
        for subscript in read.subscripts:
            if not isinstance(subscript, AffineIndex) or any(
                variable.of is not None for variable, _ in subscript.terms
            ):
                return None
            begin, inner, extent = AffineIndex.number(subscript.constant), AffineIndex(()), 1
            for variable, factor in subscript.terms:
                if variable.name not in self.spans:
                    begin = begin + AffineIndex(((variable, factor),))
                    continue
                reach = factor * (self.spans[variable.name] - 1)
                begin = begin + self.begin[variable.name] * factor + min(reach, 0)
                inner = inner + self.inner[variable.name] * factor - min(reach, 0)
                extent += abs(reach)
            begins.append(begin)
            inners.append(inner)
            extents.append(extent)
        if math.prod(self.spans.values()) <= math.prod(extents):
            return None
        buffer = self.buffers[read.buffer]
        tile = KernelBuffer(f"{read.buffer}_{number}", buffer.dtype, tuple(extents), "local")
        return Promotion(read, tile, tuple(begins), tuple(inners))

    def _load(self, one: Promotion) -> Node:
        """The elements of a tile, copied by all threads, those beyond the operand left out."""
        count = one.tile.count
        turns = -(-count // self.threads)
        thread = (
            AffineIndex.variable(THREAD_ROW, self.block_rows) * self.block_columns
            + AffineIndex.variable(THREAD, self.block_columns)
        )  # fmt: skip
        point = AffineIndex.variable("turn_p", turns) * self.threads + thread
        places = unflattened(AffineIndex.variable("point_p", count), tuple(map(fixed, one.tile.shape)))
        sources = [begin + place for begin, place in zip(one.begin, places, strict=True)]
        below: list[tuple[AffineIndex, Extent]] = [(point, count)]
        for source, extent in zip(sources, self.buffers[one.read.buffer].shape, strict=True):
            below += [(source, extent), (source * -1, 1)]
        copy = Assign(
            ElementRead.of(one.tile.name, one.read.dtype, places),
            ElementRead.of(one.read.buffer, one.read.dtype, sources),
        )
        unroll = min(turns, MOST_UNROLLED) if self.options.unroll_copies else 1
        return Loop("turn_p", turns, (Named("point_p", point), Guard(tuple(below), (copy,))), unroll=unroll)
