"""Masks of a graph, and the keys they let queries of attention look at."""

from __future__ import annotations

from eqsat.language.ops import OPS
from eqsat.language.terms import Graph, TensorType


def is_known_finite(graph: Graph, value: str) -> bool:
    """True where a value holds no infinity, whatever the inputs of the graph that are floats hold.

    As in an e-graph, operators without poles make finite results of finite operands.
    """
    pending, seen = [value], set[str]()
    while pending:
        name = pending.pop()
        type, node = graph.type(name), graph.producers.get(name)
        if name in seen or (isinstance(type, TensorType) and not type.dtype.is_float):
            continue
        seen.add(name)
        if name in graph.constants:
            if not graph.constants[name].is_finite:
                return False
            continue
        if node is None or node.op not in OPS:
            return False
        operands = [v for v in node.inputs if v is not None]
        types = [t if isinstance(t := graph.type(v), TensorType) else None for v in operands]
        if OPS[node.op].is_partial(types, node.attrs):
            return False
        pending += operands
    return True


def attends(graph: Graph, mask: str | None, *, causal: bool = False) -> bool:
    """True where a mask of a graph, if any, is known to let each query look at something.

    With `causal`, queries see no key after their own, so that each is sure of its first key alone.
    """
    if mask is None:
        return True
    if mask in graph.constants and not causal:
        return graph.constants[mask].attends
    type = graph.type(mask)
    return isinstance(type, TensorType) and type.dtype.is_float and is_known_finite(graph, mask)
