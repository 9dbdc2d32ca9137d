"""Finalists made ready to run, and inputs that the original runs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.errors import BackendError
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.terms import OPAQUE, Graph, Plan
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.backend import Program, select
from eqsat.runtime.examples import DRAWS, SizePoint, tried
from eqsat.runtime.onnxruntime.child import child_of, may_end_the_process
from eqsat.runtime.onnxruntime.levels import DEFAULT_LEVEL
from eqsat.runtime.onnxruntime.session import SessionBackend, SessionProgram


@dataclass(frozen=True)
class Compiling:
    """Compilation of finalists for a backend; for NumPy where it refuses them, if they are to run elsewhere.

    ONNX Runtime takes the original as the file or model it was given as, `source`, and optimises at `level`.
    """

    backend: str
    source: Any
    threads: int
    plans: Mapping[str, Plan]
    tuned: Sequence[str]
    else_on_numpy: bool = False
    level: str = DEFAULT_LEVEL

    def check_safe(self, graph: Graph, original: Graph) -> None:
        """BackendError for a finalist of which ONNX Runtime, as users make sessions, would end the process."""
        from eqsat.runtime.onnxruntime.halves import fatal_product

        product = fatal_product(graph) if self.backend == "onnxruntime" else None
        if product is not None and fatal_product(original) is None:
            raise BackendError(f"ONNX Runtime 1.31 ends the process on {product!r}: a product of transposed halves")

    def program(self, name: str, graph: Graph) -> Program:
        """The program of a finalist; EqsatError where the backend refuses it."""
        if self.backend == "cupy":
            return gpu_program(self.plans.get(name, graph), self.tuned)
        if name == "original" and self.source is not None and self.backend == "openvino":
            from eqsat.runtime.openvino.session import OpenVinoProgram, compiled

            return OpenVinoProgram(graph, compiled(self.source, threads=self.threads, where=graph.name))
        if name == "original" and self.source is not None:
            nodes = len(graph.nodes)
            return SessionProgram.of(graph, self.source, threads=self.threads, nodes=nodes, level=self.level)
        try:
            if self.level != DEFAULT_LEVEL:
                return SessionBackend().compile(expanded(graph, lacking()), threads=self.threads, level=self.level)
            return select(self.backend).compile(expanded(graph, lacking()), threads=self.threads)
        except BackendError:
            if not self.else_on_numpy or any(n.op == OPAQUE for n in graph.nodes):
                raise
        return select("numpy").compile(graph)


def gpu_program(given: Plan | Graph, tuned: Sequence[str]) -> Program:
    """A plan or graph on the GPU that is here, its library calls by the plans that were measured to be fastest."""
    backend: Any = select("cupy")
    program: Program = backend.compile(given, plans=tuned)
    return program


def drawn(
    original: Graph, compiled: Compiling, program: Program, points: Sequence[SizePoint], seed: int
) -> tuple[list[SizePoint], list[dict[str, Any]]]:
    """The points that the original runs at, and inputs on which it does; BackendError where there are none.

    Where its inputs may be such that ONNX Runtime ends the process, they are tried in another one first.
    """
    if compiled.backend != "onnxruntime" or not may_end_the_process(original):
        runnable = [tried(program, original, point, seed) for point in points]
        return runnable, [point.inputs(original, seed + i) for point in runnable for i in range(DRAWS)]
    with child_of(original, compiled.source) as child:
        runnable = [tried(child, original, point, seed) for point in points]
        draws = [point.inputs(original, seed + i) for point in runnable for i in range(DRAWS)]
        for feeds in draws:
            child.run(feeds)
    return runnable, draws
