"""The operators that an opset has."""

from __future__ import annotations

from functools import cache

from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.ops import OPS
from eqsat.language.terms import Graph


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


def opset_of(graph: Graph) -> int:
    """The opset a graph is written at unless another one is asked for."""
    from eqsat.language.onnx.write.exporter import DEFAULT_OPSET

    return graph.origin.opset or DEFAULT_OPSET if isinstance(graph.origin, OnnxOrigin) else DEFAULT_OPSET


def lacking() -> frozenset[str]:
    """The operators that cannot be written to ONNX at any opset."""
    from eqsat.language.onnx.operators.export_table import exporter_of

    return frozenset(op for op in OPS if exporter_of(op) is None)
