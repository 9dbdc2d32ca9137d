"""Statements in tiles: a block computes one, from boxes of operands in shared memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, unflattened
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import (
    ElementRead,
    KernelBuffer,
    LoopAxis,
    is_risky,
    reads,
    rebuilt,
)
from eqsat.runtime.kernels.nests.extents import Extent, fixed, is_free, is_several, rounds
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
from eqsat.runtime.kernels.nests.scheduling.promotion.footprints import (
    IndexTile,
    Promotion,
    PromotionRule,
    promotions,
)
from eqsat.runtime.kernels.nests.scheduling.strides import depends
from eqsat.runtime.kernels.nests.scheduling.values import neutral, own_element
from eqsat.runtime.kernels.nests.tree import Assign, Barrier, BlockCount, GpuKernel, Guard, Local, Loop, Named, Node


@dataclass
class BlockSchedule:
    """The kernel of a chain whose first statement is computed in tiles; the chain is finished on registers.

    A thread has so many rows and columns as `per_thread` says, and a tile so many times as many as a block; all are
    shortened where an index is short. What a `rule` asks for is promoted, nothing where it is None.
    """

    chain: StatementChain
    buffers: Mapping[str, KernelBuffer]
    options: GpuMapping
    row: LoopAxis
    column: LoopAxis
    per_thread: tuple[int, int]
    rule: PromotionRule | None

    def __post_init__(self) -> None:
        options, statement = self.options, self.chain.first
        self.dtype = statement.value.dtype
        row, column = bound_of(self.row.extent), bound_of(self.column.extent)
        self.block_rows = min(options.block_rows, power_of_two(row))
        self.block_columns = min(options.block_columns, power_of_two(column))
        self.rows = min(self.per_thread[0], -(-row // self.block_rows))
        self.columns = min(self.per_thread[1], -(-column // self.block_columns))
        self.threads = self.block_rows * self.block_columns
        self.outer = [
            axis for axis in statement.kept if axis not in (self.row, self.column) and is_several(axis.extent)
        ]
        self.steps: dict[str, int] = {}
        left = options.reduced_tile
        for axis in reversed(statement.reduced):
            self.steps[axis.name] = min(bound_of(axis.extent), left)
            left = max(left // self.steps[axis.name], 1)
        self.tile = self._tile()
        self.at = {name: begin + self.tile.inner[name] for name, begin in self.tile.begin.items()}
        self.promotions: Sequence[Promotion] = []
        if self.rule is not None:
            written = {one.target for one in (self.chain.first, *self.chain.following)}
            most = options.shared_bytes
            self.promotions = promotions(statement.value, self.tile, self.buffers, written, self.rule, most)

    def _tile(self) -> IndexTile:
        """The tile of a block, and the place of a thread's element in it."""
        row, column, reduced = self.row, self.column, self.chain.first.reduced
        spans = {
            row.name: self.block_rows * self.rows,
            column.name: self.block_columns * self.columns,
            **self.steps,
        }
        begin = {
            axis.name: AffineIndex.variable(f"{axis.name}_t", -(-bound_of(axis.extent) // spans[axis.name]))
            * spans[axis.name]
            for axis in (row, column, *reduced)
        }
        inner = {
            row.name: AffineIndex.variable(f"{row.name}_u", self.rows) * self.block_rows
            + AffineIndex.variable(THREAD_ROW, self.block_rows),
            column.name: AffineIndex.variable(f"{column.name}_u", self.columns) * self.block_columns
            + AffineIndex.variable(THREAD, self.block_columns),
            **{name: AffineIndex.variable(f"{name}_f", step) for name, step in self.steps.items()},
        }
        return IndexTile(spans, begin, inner, {axis.name: axis.extent for axis in (row, column, *reduced)}, column.name)

    def kernel(self) -> GpuKernel:
        """The tree, and the blocks and threads."""
        spans = self.tile.spans
        tiles = [rounds(axis.extent, spans[axis.name]) for axis in (self.row, self.column)]
        extents: list[Extent] = [*(axis.extent for axis in self.outer), *tiles]
        names = [*(axis.name for axis in self.outer), f"{self.row.name}_t", f"{self.column.name}_t"]
        blocks: int | BlockCount = math.prod(extent for extent in extents if isinstance(extent, int))
        if any(is_free(extent) for extent in extents):
            outer = tuple(axis.extent for axis in self.outer)
            sides = [((axis.extent,), spans[axis.name]) for axis in (self.row, self.column)]
            blocks = BlockCount(((outer, 1), *sides))
        nodes, _ = places(names, extents, block_variable(blocks, BLOCK))
        nodes += [Local(one.tile, is_shared=True) for one in self.promotions]
        local, total = self._register("acc")
        statement = self.chain.first
        nodes.append(local)
        if statement.reduced:
            nodes.append(self._each(Assign(total, neutral(statement.reduction, self.dtype), "", self.at)))
        own = Assign(total, own_element(statement), statement.reduction, self.at)
        if statement.reduced and not statement.is_fresh:
            nodes.append(self._inside(own))
        nodes += self._values(total)
        if statement.reduction and not statement.reduced and not statement.is_fresh:
            nodes.append(self._inside(own))
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

    def _values(self, total: ElementRead) -> list[Node]:
        """The values, in loops over tiles of the reduced indices, each of which is loaded between two barriers."""
        statement = self.chain.first
        value, is_whole = self._promoted(statement.value)
        update = Assign(total, value, statement.reduction if statement.reduced else "", self.at)
        body: Node = self._each(update) if is_whole else self._inside(update)
        below = tuple((self.at[axis.name], axis.extent) for axis in statement.reduced)
        body = Guard(below, (body,))
        steps = [LoopAxis(f"{axis.name}_f", self.steps[axis.name]) for axis in statement.reduced]
        for number, step in enumerate(axis for axis in reversed(steps) if axis.count > 1):
            body = Loop(step.name, step.count, (body,), unroll=1 if number else self.options.unroll, is_reduced=True)
        nodes: list[Node] = [body]
        tiles = [(axis.name, rounds(axis.extent, self.steps[axis.name])) for axis in statement.reduced]
        if self.promotions:
            # Before tiles are loaded, all threads have read the last ones.
            again: list[Node] = [Barrier()] if any(is_several(count) for _, count in tiles) else []
            nodes = [*again, *(self._load(one) for one in self.promotions), Barrier(), body]
        for name, count in reversed(tiles):
            if is_several(count):
                nodes = [Loop(f"{name}_t", count, tuple(nodes), is_reduced=True)]
        return nodes

    def _promoted(self, value: Expr) -> tuple[Expr, bool]:
        """The value with elements of shared memory, and whether threads beyond the target may compute it."""
        known = {id(read): one for one in self.promotions for read in one.reads}

        def change(one: Expr) -> Expr | None:
            return known[id(one)].of_thread(one) if isinstance(one, ElementRead) and id(one) in known else None

        made = rebuilt(value, change)
        tiles = {one.tile.name for one in self.promotions}
        others = [read for read in reads(made) if read.buffer not in tiles]
        tiled = (self.row.name, self.column.name)
        return made, not is_risky(made) and not any(depends(read, name) for read in others for name in tiled)

    def _load(self, one: Promotion) -> Node:
        """The elements of a tile, copied by all threads, those beyond the operand left out."""
        count = one.tile.count
        turns = -(-count // self.threads)
        thread = (
            AffineIndex.variable(THREAD_ROW, self.block_rows) * self.block_columns
            + AffineIndex.variable(THREAD, self.block_columns)
        )  # fmt: skip
        point = AffineIndex.variable("turn_p", turns) * self.threads + thread
        at = unflattened(AffineIndex.variable("point_p", count), tuple(map(fixed, one.tile.shape)))
        below = [(point, count), *one.bounds(at, self.buffers[one.reads[0].buffer])]
        source = one.source(at)
        copy = Assign(ElementRead.of(one.tile.name, source.dtype, at), source)
        unroll = min(turns, MOST_UNROLLED) if self.options.unroll_copies else 1
        return Loop("turn_p", turns, (Named("point_p", point), Guard(tuple(below), (copy,))), unroll=unroll)
