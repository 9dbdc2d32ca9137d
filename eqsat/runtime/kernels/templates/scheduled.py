"""Kernels of operators that schedules of loops are written for, with the operators before and after them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eqsat.language.terms import Node
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.gpu_groups.row_operators import ROW_OPERATORS
from eqsat.runtime.kernels.nests.gpu_groups.row_reductions import REDUCTIONS
from eqsat.runtime.kernels.nests.gpu_groups.selections import SELECTIONS
from eqsat.runtime.kernels.nests.gpu_groups.windows import WINDOWS
from eqsat.runtime.kernels.nests.printing.group_printer import group_kernel
from eqsat.runtime.kernels.nests.tree import GpuKernel
from eqsat.runtime.kernels.packs import PackedBody, generated
from eqsat.runtime.kernels.source import KernelSource

#: By operator, the schedule of a group around it: UnsupportedError where it is none of its kind.
SCHEDULES: Mapping[str, Callable[[Group, Node], GpuKernel]] = {**REDUCTIONS, **ROW_OPERATORS, **WINDOWS, **SELECTIONS}


def generate(group: Group) -> KernelSource | None:
    """One kernel of such an operator with the operators before and after it; None for other groups."""
    core = next((node for node in group.nodes if node.op in SCHEDULES), None)
    return None if core is None else generated(group, core, _scheduled)


def _scheduled(group: Group, core: Node) -> KernelSource:
    return group_kernel(PackedBody(group), SCHEDULES[core.op](group, core))
