"""Statements that are no products of matrices, in tiles where these serve reads that lie apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer, LoopAxis, reads
from eqsat.runtime.kernels.nests.extents import is_several, largest, rounds
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain
from eqsat.runtime.kernels.nests.scheduling.gpu_elements import WARP
from eqsat.runtime.kernels.nests.scheduling.promotion.block_schedule import BlockSchedule
from eqsat.runtime.kernels.nests.scheduling.promotion.footprints import PromotionRule
from eqsat.runtime.kernels.nests.scheduling.strides import depends, stride
from eqsat.runtime.kernels.nests.tree import GpuKernel

#: Threads of all blocks for each element of the target, from which on tiles leave too many of them idle.
_MOST_IDLE = 2


def tiled_kernel(chain: StatementChain, buffers: Mapping[str, KernelBuffer], options: GpuMapping) -> GpuKernel | None:
    """The kernel of a chain in tiles with an element for each thread; None where a tile serves no read that lies apart.

    Neighbouring threads have neighbours along the last index of the target. What they all read from one place at a time
    is promoted on demand alone: they read it in one access as it is.
    """
    kept = [axis for axis in chain.first.kept if is_several(axis.extent)]
    if not options.promote or not kept or kept[-1] is not chain.first.kept[-1]:
        return None
    column = kept[-1]
    row = _row(kept[:-1], column, chain, buffers)
    rule: PromotionRule = "apart" if isinstance(options.promote, bool) else options.promote
    schedule = BlockSchedule(chain, buffers, options, row, column, (1, 1), rule)
    if not schedule.promotions or schedule.threads < WARP or _idle(schedule) > _MOST_IDLE:
        return None
    return schedule.kernel()


def _row(
    candidates: Sequence[LoopAxis], column: LoopAxis, chain: StatementChain, buffers: Mapping[str, KernelBuffer]
) -> LoopAxis:
    """The index that tiles have rows along: one that turns reads which lie apart into such as lie side by side.

    Else the one along which most of the reads are read again, and of equal ones the longest. An index of one value
    where there is none.
    """
    found = reads(chain.first.value)

    def turned(read: ElementRead, axis: LoopAxis) -> bool:
        return stride(read, column.name, buffers) not in (0, 1) and stride(read, axis.name, buffers) == 1

    def gain(axis: LoopAxis) -> tuple[int, int, int]:
        again = sum(not depends(read, axis.name) for read in found)
        return sum(turned(read, axis) for read in found), again, largest(axis.extent)

    return max(candidates, key=gain, default=LoopAxis("row_p", 1))


def _idle(schedule: BlockSchedule) -> float:
    """Threads for each element, where numbers decide it; 1 where sizes of a call do."""
    total = 1.0
    for axis in (schedule.row, schedule.column):
        if isinstance(axis.extent, int):
            turns = rounds(axis.extent, schedule.tile.spans[axis.name])
            assert isinstance(turns, int)
            total *= turns * schedule.tile.spans[axis.name] / axis.extent
    return total
