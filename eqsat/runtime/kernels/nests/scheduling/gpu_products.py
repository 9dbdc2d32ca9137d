"""Sums of products in tiles: a block computes one, from tiles of operands in shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.runtime.kernels.nests.computation import KernelBuffer, KernelStatement, LoopAxis, is_risky, reads
from eqsat.runtime.kernels.nests.extents import largest
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain
from eqsat.runtime.kernels.nests.scheduling.promotion.block_schedule import BlockSchedule
from eqsat.runtime.kernels.nests.scheduling.promotion.footprints import PromotionRule
from eqsat.runtime.kernels.nests.scheduling.strides import depends
from eqsat.runtime.kernels.nests.tree import GpuKernel

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


def product_kernel(
    chain: StatementChain, buffers: Mapping[str, KernelBuffer], options: GpuMapping, row: LoopAxis, column: LoopAxis
) -> GpuKernel:
    """The kernel of a chain that begins with a sum of products, of several rows and columns for each thread.

    What is read by a row or a column of threads is promoted wherever it lies, unless options ask for less.
    """
    rule: PromotionRule | None = None
    if options.promote:
        rule = "uncoalesced" if options.promote == "uncoalesced" else "reused"
    sides = options.thread_rows, options.thread_columns
    return BlockSchedule(chain, buffers, options, row, column, sides, rule).kernel()
