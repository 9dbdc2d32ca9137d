"""The backend that compiles graphs to C for this processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    def compile(
        self,
        graph: Graph | Plan,
        *,
        threads: int | None = None,
        tuned: bool = False,
        regions: Sequence[tuple[int, int]] | None = None,
    ) -> CompiledProgram:
        """The graph or plan made ready, at once where every dim is known.

        Kernels take the form and options that were measured to be fastest on this processor, and default ones where
        nothing was measured; a `tuned` program measures those first.

        `regions` are windows of launches, each the index of its first one and that after its last, that a session of
        ONNX Runtime computes instead, none where they are (). Where they are left out, they are those that were
        measured to make this program the fastest, none where nothing was measured; a `tuned` program measures that too.

        BackendError for graphs whose shapes depend on data, for opaque nodes, where a kernel does not compile, and for
        regions that no session computes, or of a graph with named dims.
        """
        from eqsat.runtime.c.mixing.choosing import with_regions
        from eqsat.runtime.c.program.lowering import c_lowering
        from eqsat.runtime.c.program.machine import CMachine
        from eqsat.runtime.c.program.tuning import ChosenKernels, tune_program
        from eqsat.runtime.cuda.backend import is_static
        from eqsat.runtime.programs.arena import arrange
        from eqsat.runtime.programs.compiled import CompiledProgram

        if threads is not None:
            check_threads(threads)

        def build(sizes: Mapping[str, int]) -> Machine:
            lowering = c_lowering(graph, sizes)
            program = lowering.program()
            if tuned:
                tune_program(program, threads)
            choose = ChosenKernels(threads)
            mixed = with_regions(
                lowering, program, choose, threads, regions, is_static=is_static(compiled.graph), tuned=tuned
            )
            try:
                return CMachine(mixed, arrange(mixed), choose, threads)
            except BackendError:
                if regions is not None or mixed is program:
                    raise
                return CMachine(program, arrange(program), choose, threads)  # ONNX Runtime refuses what it once took

        compiled = CompiledProgram(graph, build)
        if is_static(compiled.graph):
            compiled.prepare({})
        return compiled
