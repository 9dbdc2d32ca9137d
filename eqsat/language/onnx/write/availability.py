"""The operators that an opset has."""

from __future__ import annotations

from functools import cache

from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.ops import OPS
from eqsat.language.terms import Graph, Node, TensorType


@cache
def has(op: str, opset: int) -> bool:
    """True where ONNX has an operator of ours as one of its own at an opset, and need not write it as several.

    >>> has("gelu", 17), has("gelu", 20)
    (False, True)
    """
    from onnx import defs

    name = OPS[op].onnx
    if name is None:
        return True
    try:
        return bool(defs.get_schema(name, opset, "").since_version <= opset)
    except defs.SchemaError:
        return False


#: The opset of graphs that were built in Python.
DEFAULT_OPSET = 21
#: The first opset whose operators that quantise have a scale for each channel.
CHANNEL_SCALES = 13


def opset_of(graph: Graph) -> int:
    """The opset a graph is written at unless another one is asked for.

    That of the model it came from, or the first one that has the scales of a graph with kernels on integers.
    """
    own = graph.origin.opset if isinstance(graph.origin, OnnxOrigin) else None
    if own is not None and own < CHANNEL_SCALES and any(_scales_channels(graph, node) for node in graph.nodes):
        return CHANNEL_SCALES
    return own or DEFAULT_OPSET


def _scales_channels(graph: Graph, node: Node) -> bool:
    if node.op not in ("quantize_linear", "dequantize_linear") or node.inputs[1] is None:
        return False
    scale = graph.type(node.inputs[1])
    return isinstance(scale, TensorType) and scale.rank > 0


def lacking() -> frozenset[str]:
    """The operators that cannot be written to ONNX at any opset."""
    from eqsat.language.onnx.operators.export_table import exporter_of

    return frozenset(op for op in OPS if exporter_of(op) is None)
