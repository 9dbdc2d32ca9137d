"""Kernels of one product, with the operators before and after it: through tiles, or of a thread for each element."""

from __future__ import annotations

from eqsat.runtime.kernels.expressions.elements import is_pointwise
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.movement import MOVES
from eqsat.runtime.kernels.nests.gpu_groups.squares import squares_kernel
from eqsat.runtime.kernels.nests.gpu_groups.sums import SUMS, sums_kernel
from eqsat.runtime.kernels.nests.printing.group_printer import group_kernel
from eqsat.runtime.kernels.packs import PackedBody
from eqsat.runtime.kernels.source import KernelSource


def generate(group: Group) -> KernelSource | None:
    """The kernel of a product and the operators before and after it; None where there is not one product."""
    products = [node for node in group.nodes if node.op in SUMS]
    others = [node for node in group.nodes if node.op not in SUMS]
    if len(products) != 1 or not all(is_pointwise(node) or node.op in MOVES for node in others):
        return None
    (node,) = products
    try:
        squares = squares_kernel(group, node)
        if squares is not None:
            return group_kernel(PackedBody(group), squares)
    except UnsupportedError:
        pass  # a thread for each element makes what no tile does
    return group_kernel(PackedBody(group), sums_kernel(group, node))
