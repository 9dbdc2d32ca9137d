"""From a plan to the launches that compute it on a GPU: calls of libraries where they fit, generated kernels else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eqsat.language.terms import Graph, Plan
from eqsat.runtime.cuda.program.ends import LibraryEnds
from eqsat.runtime.cuda.program.products import LIBRARIES, Products
from eqsat.runtime.kernels.templates.codegen import generate
from eqsat.runtime.programs.lowering import KernelMakers, lowered_program
from eqsat.runtime.programs.program import KernelProgram


def program_of(
    given: Plan | Graph, sizes: Mapping[str, int] | None = None, *, libraries: Iterable[str] = LIBRARIES
) -> KernelProgram:
    """The launches of a plan, or of a graph, at sizes of its named dims.

    `libraries` are those whose kernels may be called: "cublaslt" for matrix products, "cudnn" for convolutions and
    attention; the rest is generated. BackendError for nodes that cannot run on a GPU at all.
    """
    called = frozenset(libraries)
    makers = KernelMakers(generate, lambda emitter: Products(emitter, called), LibraryEnds() if called else None)
    return lowered_program(given, sizes or {}, makers)
