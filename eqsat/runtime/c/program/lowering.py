"""From a graph or plan to the kernels of C that compute it."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.language.terms import Graph, Plan
from eqsat.runtime.c.program.kernels import kernel_of
from eqsat.runtime.programs.lowering import KernelMakers, Lowering, lowering_of
from eqsat.runtime.programs.program import KernelProgram


def c_lowering(given: Graph | Plan, sizes: Mapping[str, int] | None = None) -> Lowering:
    """The lowering of a graph or plan to kernels of C; BackendError for nodes that no kernel computes."""
    return lowering_of(given, sizes or {}, KernelMakers(kernel_of))


def c_program(given: Graph | Plan, sizes: Mapping[str, int] | None = None) -> KernelProgram:
    """The kernels of a graph or plan at sizes of its named dims; BackendError for nodes that no kernel computes."""
    return c_lowering(given, sizes).program()
