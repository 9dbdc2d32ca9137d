"""Values that count as finite before anything is known of them (docs/adr/0010)."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from eqsat.language.ops import spec
from eqsat.language.terms import OPAQUE, Constant, Graph, Node
from eqsat.system.deadline import check

#: Operators by which a model asks whether elements are numbers.
#: The same in the bodies of If, Loop and Scan.
_ASKED = (b"IsNaN", b"IsInf")
_SUMS = ("add", "sub")


def doubted_values(graph: Graph) -> frozenset[str]:
    """The inputs, and results of opaque nodes, that may be infinite or NaN.

    A model itself asks whether they, or what it makes of them element by element, are finite. Elements are followed
    through operators that act on each of them alone or only move them: a question about a product of matrices or a
    softmax guards that result, and is no sign that inputs hold infinities. Of an opaque node with a body, nothing is
    assumed either: the body may divide.
    """
    doubted: set[str] = set()
    unknown = set(graph.inputs)
    for node in reversed(graph.nodes):
        check()
        if node.op == OPAQUE:
            unknown.update(node.outputs)
            if _has_body(node):
                doubted.update(node.outputs)
            # A body may ask of values that it captures.
            if any(name in node.attrs["proto"] for name in _ASKED):
                doubted |= {v for v in node.inputs if v is not None}
            continue
        declared = spec(node.op)
        followed = declared.pointwise or declared.movement
        if declared.asks_finite or (followed and not doubted.isdisjoint(node.outputs)):
            doubted |= {v for v in node.inputs if v is not None}
    return frozenset(doubted & unknown)


def _has_body(node: Node) -> bool:
    from onnx import NodeProto

    from eqsat.language.onnx.files.protos import subgraphs

    return next(subgraphs(NodeProto.FromString(node.attrs["proto"])), None) is not None


def rounding_constants(graph: Graph) -> frozenset[str]:
    """The constants that a model adds to round: every number of ordinary size becomes an integer by it, or vanishes.

    Laws of real numbers do not hold for such sums: x + 12582912 - 12582912 is x to the nearest integer.
    """
    added = {v for n in graph.nodes if n.op in _SUMS for v in n.inputs if v in graph.constants}
    return frozenset(v for v in added if v is not None and _rounds(graph.constants[v]))


def _rounds(constant: Constant) -> bool:
    dtype = constant.type.dtype
    if not dtype.is_float or not constant.nbytes:
        return False
    # From here on neighbouring numbers of the type are 1 apart, or more.
    least = 2.0 ** int(ml_dtypes.finfo(dtype.numpy).nmant)
    size = np.abs(constant.array.ravel()[:1].astype(np.float64))
    # Most constants are told by one element.
    return bool(size[0] >= least and (np.abs(constant.array.astype(np.float64)) >= least).all() and constant.is_finite)
