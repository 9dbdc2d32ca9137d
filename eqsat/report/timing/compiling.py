"""Finalists made ready to run, and inputs that the original runs on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.errors import BackendError
from eqsat.language.onnx.write.availability import lacking, lacking_kernels
from eqsat.language.terms import OPAQUE, Graph, Plan
from eqsat.rewrites.rules.definitions import expanded
from eqsat.runtime.backend import Program, select
from eqsat.runtime.examples import DRAWS, SizePoint, tried
from eqsat.runtime.onnxruntime.child import child_of, may_end_the_process
from eqsat.runtime.onnxruntime.levels import DEFAULT_LEVEL
from eqsat.runtime.onnxruntime.session import SessionBackend, SessionProgram
from eqsat.system.deadline import current

#: The backends that run in sessions, which pack the weights for themselves.
IN_SESSIONS = ("onnxruntime", "openvino")


@dataclass(frozen=True)
class Compiling:
    """Compilation of finalists for a backend; for NumPy where it refuses them, if they are to run elsewhere.

    ONNX Runtime takes the original as the file or model it was given as, `source`, finalists at the `opset` that the
    result is written at, their own where it is None, and optimises at `level`.
    """

    backend: str
    source: Any
    threads: int
    plans: Mapping[str, Plan]
    tuned: Sequence[str]
    else_on_numpy: bool = False
    level: str = DEFAULT_LEVEL
    opset: int | None = None

    def copies_weights(self, graph: Graph) -> bool:
        """True of a graph of which each program holds much memory of its own: few are to be held beside each other."""
        from eqsat.language.onnx.files.apart import COPIED_BYTES

        return self.backend in IN_SESSIONS and sum(c.nbytes for c in graph.constants.values()) > COPIED_BYTES

    def check_safe(self, graph: Graph, original: Graph) -> None:
        """BackendError for a finalist of which ONNX Runtime, as users make sessions, would end the process."""
        from eqsat.runtime.onnxruntime.halves import fatal_product

        product = fatal_product(graph) if self.backend == "onnxruntime" else None
        if product is not None and fatal_product(original) is None:
            raise BackendError(f"ONNX Runtime 1.31 ends the process on {product!r}: a product of transposed halves")

    def program(self, name: str, graph: Graph) -> Program:
        """The program of a finalist; EqsatError where the backend refuses it."""
        if self.backend == "cupy":
            return gpu_program(self.plans.get(name) or expanded(graph, lacking_kernels()), self.tuned)
        if name == "original" and self.source is not None and self.backend == "openvino":
            from eqsat.language.onnx.files.reader import StoredModel
            from eqsat.runtime.openvino.session import OpenVinoProgram, compiled

            given = self.source.proto if isinstance(self.source, StoredModel) else self.source
            return OpenVinoProgram(graph, compiled(given, threads=self.threads, where=graph.name))
        if self.backend == "c":
            return tuned_program(graph, self.threads)
        if name == "original" and self.source is not None:
            nodes = len(graph.nodes)
            return SessionProgram.of_given(graph, self.source, threads=self.threads, nodes=nodes, level=self.level)
        try:
            if self.backend == "onnxruntime":
                made = expanded(graph, lacking())
                return SessionBackend().compile(made, threads=self.threads, level=self.level, opset=self.opset)
            return select(self.backend).compile(expanded(graph, lacking()), threads=self.threads)
        except BackendError:
            if not self.else_on_numpy or any(n.op == OPAQUE for n in graph.nodes):
                raise
        return select("numpy").compile(graph)


def tuned_program(graph: Graph, threads: int | None) -> Program:
    """A graph as a library of C, by the forms of its kernels that are measured to be fastest.

    Like calibration, measuring them is no part of a time limit: it is done once for a kernel, and for a program where
    ONNX Runtime may compute parts of it. It has no end either, unless the call is asked to end.
    """
    backend: Any = select("c")
    call = current()
    with call.paused(), call.unlimited():
        program: Program = backend.compile(graph, threads=threads, tuned=True)
    return program


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
