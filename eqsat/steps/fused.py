"""Results written in operators of ONNX Runtime's own: the graphs that may be, and the warning about them."""

from __future__ import annotations

from dataclasses import replace

from eqsat.extract.tensors.assembly import Assembled
from eqsat.language.terms.graph import Graph


def for_onnxruntime(assembled: Assembled) -> Assembled:
    """The same, to be written in operators of ONNX Runtime's own."""
    from eqsat.language.onnx.fused import contrib

    return replace(assembled, plan=replace(assembled.plan, graph=contrib.for_onnxruntime(assembled.plan.graph)))


def may_be_written(graph: Graph) -> bool:
    """True if ONNX Runtime has an operator of its own for a part of a graph."""
    from eqsat.language.onnx.fused.operators import FUSED

    return any(node.op in FUSED for node in graph.nodes)


def warnings(graph: Graph, opset: int | None = None) -> list[str]:
    """Warnings about a result, written at its opset or another one, that other runtimes cannot run."""
    from eqsat.language.onnx.fused.contrib import fused_names

    names = fused_names(graph, opset) if may_be_written(graph) else []  # of an original as it came there are none
    if not names:
        return []
    return [
        f"written in ONNX Runtime's own {', '.join(names)}, which other runtimes lack; portable=True (--portable) does "
        "without"
    ]
