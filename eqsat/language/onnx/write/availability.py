"""The operators that an opset has."""

from __future__ import annotations

from functools import cache

from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.ops import OPS
from eqsat.language.terms import DType, Graph, Node, TensorType


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
#: The first opset with casts to float8.
FLOAT8_CASTS = 19
#: Element types that operators have come to take from one opset to the next, as ONNX names them.
_LATER = {DType.BFLOAT16: "tensor(bfloat16)", DType.FLOAT8E4M3FN: "tensor(float8e4m3fn)"}


def opset_of(graph: Graph) -> int:
    """The opset a graph is written at unless another one is asked for.

    That of the model it came from, or the first one that has the scales and the element types that were chosen for it.
    """
    own = graph.origin.opset or DEFAULT_OPSET if isinstance(graph.origin, OnnxOrigin) else DEFAULT_OPSET
    if own < CHANNEL_SCALES and any(_scales_channels(graph, node) for node in graph.nodes):
        own = CHANNEL_SCALES
    foreign = {
        (node.op, dtype) for node in graph.nodes for value in node.inputs if (dtype := _dtype(graph, value)) in _LATER
    }
    return max((_first(op, _LATER[dtype], own) for op, dtype in foreign), default=own)


@cache
def _first(op: str, type: str, opset: int) -> int:
    """The first opset, from one on, whose operator takes an element type; that one where none does."""
    from onnx import defs

    name = OPS[op].onnx if op in OPS else None
    for number in range(opset, defs.onnx_opset_version() + 1) if name is not None else ():
        try:
            schema = defs.get_schema(name, number, "")
        except defs.SchemaError:
            continue
        if any(type in one.types for one in schema.inputs):
            return number
    return opset


def _dtype(graph: Graph, value: str | None) -> DType | None:
    type = None if value is None else graph.type(value)
    return type.dtype if isinstance(type, TensorType) else None


def _scales_channels(graph: Graph, node: Node) -> bool:
    if node.op not in ("quantize_linear", "dequantize_linear") or node.inputs[1] is None:
        return False
    scale = graph.type(node.inputs[1])
    return isinstance(scale, TensorType) and scale.rank > 0


def lacking_kernels() -> frozenset[str]:
    """The operators that ONNX lacks, but for comprehensions: programs for GPUs have kernels of these."""
    from eqsat.language.comprehension.graphs.operators import function_of

    return frozenset(op for op in lacking() if function_of(op) is None)


def lacking() -> frozenset[str]:
    """The operators that cannot be written to ONNX at any opset."""
    from eqsat.language.onnx.operators.export_table import exporter_of

    return frozenset(op for op in OPS if exporter_of(op) is None)
