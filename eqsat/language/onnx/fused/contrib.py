"""Operators of ONNX Runtime's own domain that a graph may be written in, where it is to run there."""

from __future__ import annotations

from dataclasses import replace

from eqsat.language.onnx.fused.operators import DOMAIN
from eqsat.language.onnx.write.exporter import assemble, origin_of
from eqsat.language.terms import OPAQUE, Graph


def for_onnxruntime(graph: Graph) -> Graph:
    """The graph, to be written in operators of ONNX Runtime's own where it has one for several of ONNX's.

    >>> from eqsat.language.graphs.builder import Builder
    >>> g = Builder("g")
    >>> g.output("y", g.apply("attention", *(g.input(n, (1, 2, 3, 4)) for n in "qkv"), hidden="nan"))
    >>> from eqsat.language.onnx.write.exporter import to_model
    >>> {n.domain for n in to_model(for_onnxruntime(g.build())).graph.node if n.domain}
    {'com.microsoft'}
    """
    return replace(graph, origin=replace(origin_of(graph), contrib=True))


def fused_names(graph: Graph, opset: int | None = None) -> list[str]:
    """The operators of ONNX Runtime's own in which a graph is written, at its opset or another one, each once."""
    written = assemble(graph, opset)[0].graph.node
    return sorted({node.op_type for node in written if node.domain == DOMAIN} - _given(graph))


def _given(graph: Graph) -> set[str]:
    """Those that the model came with, and that are kept as they are or written back."""
    opaque = {str(n.attrs["op_type"]) for n in graph.nodes if n.op == OPAQUE and n.attrs["domain"] == DOMAIN}
    return opaque | {record.op_type for record in origin_of(graph).records if record.domain == DOMAIN}
