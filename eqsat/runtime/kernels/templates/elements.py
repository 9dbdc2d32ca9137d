"""Kernels of operators element by element and of those that copy elements."""

from __future__ import annotations

from eqsat.runtime.kernels.expressions.elements import is_pointwise
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.movement import MOVES
from eqsat.runtime.kernels.nests.gpu_groups.results import WIDTHS, results_kernel
from eqsat.runtime.kernels.nests.gpu_groups.transposition import transposing_kernel
from eqsat.runtime.kernels.nests.printing.group_printer import group_kernel
from eqsat.runtime.kernels.packs import PackedBody
from eqsat.runtime.kernels.source import KernelSource


def generate(group: Group) -> KernelSource | None:
    """One kernel for all results; None where some operator is of another kind. Results overlap no operand."""
    if not all(is_pointwise(node) or node.op in MOVES for node in group.nodes):
        return None
    kernel = transposing_kernel(group) or results_kernel(group, WIDTHS)
    return group_kernel(PackedBody(group), kernel)
