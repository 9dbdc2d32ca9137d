"""Kernels from groups of operators, by the template of the operator that the others go before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.gpu_groups.sums import SUMS
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates import elements, products, scheduled
from eqsat.runtime.kernels.templates.scheduled import SCHEDULES

Template = Callable[[Group], "KernelSource | None"]

#: By operator, the template that knows it. Operators element by element and those that copy elements need none of
#: these: any template computes them where their elements are read or made, and `elements` where there is no other.
TEMPLATES: Mapping[str, Template] = {
    **dict.fromkeys(SUMS, products.generate),
    **dict.fromkeys(SCHEDULES, scheduled.generate),
}


def generate(group: Group) -> KernelSource | None:
    """The kernel of a group; None where there is none for all of its operators together."""
    cores = [node.op for node in group.nodes if node.op in TEMPLATES]
    template = TEMPLATES[cores[0]] if cores else elements.generate
    try:
        return template(group)
    except UnsupportedError:
        return None
