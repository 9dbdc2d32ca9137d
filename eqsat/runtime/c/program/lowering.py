"""From a graph or plan to the kernels of C that compute it."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.language.terms import Graph, Plan
from eqsat.runtime.c.program.kernels import kernel_of
from eqsat.runtime.programs.lowering import KernelMakers, lowered_program
from eqsat.runtime.programs.program import KernelProgram


def c_program(given: Graph | Plan, sizes: Mapping[str, int] | None = None) -> KernelProgram:
    """The kernels of a graph or plan at sizes of its named dims; BackendError for nodes that no kernel computes."""
    return lowered_program(given, sizes or {}, KernelMakers(kernel_of))
