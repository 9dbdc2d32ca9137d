"""The backend that compiles graphs to C for this processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from eqsat.errors import BackendError
from eqsat.language.terms import Graph, Plan
from eqsat.runtime.threads import check_threads

if TYPE_CHECKING:
    from eqsat.runtime.programs.compiled import CompiledProgram, Machine


class CBackend:
    """Graphs and plans as one shared library each, generated and compiled here.

    Products of matrices may be left to BLAS. Operators without a kernel run by their references, between two calls.
    """

    name = "c"

    def available(self) -> str | None:
        """None where a compiler is found, else the reason why there is none."""
        from eqsat.runtime.c.toolchain import toolchain

        try:
            toolchain()
        except BackendError as error:
            return f"{error.what}; {error.remedy}"
        return None

    def compile(self, graph: Graph | Plan, *, threads: int | None = None, tuned: bool = False) -> CompiledProgram:
        """The graph or plan made ready, at once where every dim is known.

        Kernels take the form and options that were measured to be fastest on this processor, and default ones where
        nothing was measured; a `tuned` program measures those first.

        BackendError for graphs whose shapes depend on data, for opaque nodes, and where a kernel does not compile.
        """
        from eqsat.runtime.c.program.lowering import c_program
        from eqsat.runtime.c.program.machine import CMachine
        from eqsat.runtime.c.program.tuning import fastest_choice, tune_program
        from eqsat.runtime.cuda.backend import is_static
        from eqsat.runtime.programs.arena import arrange
        from eqsat.runtime.programs.compiled import CompiledProgram

        if threads is not None:
            check_threads(threads)

        def build(sizes: Mapping[str, int]) -> Machine:
            program = c_program(graph, sizes)
            if tuned:
                tune_program(program, threads)
            return CMachine(program, arrange(program), lambda kernel: fastest_choice(kernel, threads), threads)

        compiled = CompiledProgram(graph, build)
        if is_static(compiled.graph):
            compiled.prepare({})
        return compiled
