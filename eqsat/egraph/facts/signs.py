"""Zeros that a model adds, or multiplies by, and whose sign it can tell: x + 0 is x but where x is -0.0.

x * 0 is -0.0 where x is negative. 1 / x tells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eqsat.language.ops import OPS
from eqsat.language.terms import OPAQUE, Array, Graph, Node
from eqsat.system.deadline import check

#: Operators outside the language that divide by operands, or hold graphs that may.
_OPAQUE_DIVISORS = ("Div", "If", "Loop", "Pow", "Reciprocal", "Scan", "SequenceMap")


def signing_zeros(graph: Graph, *, heard: bool = False) -> frozenset[str]:
    """The constants of zeros that change the sign of a zero which the graph divides by, or, `heard`, what reads it.

    Adding 0.0 makes 0.0 of -0.0, as taking -0.0 away does; -0.0 is neutral. A product with 0 has its other factor's
    sign. The sign shows where an infinity is made of it. A result that is merely rounded otherwise, as a sum in another
    order, may have a zero of another sign as it may be another number.
    """
    told: set[str] = set(graph.outputs.values()) if heard else set()
    zeros: set[str] = set()
    for node in reversed(graph.nodes):
        check()
        told.update(_divisors(graph, node))
        if node.op == OPAQUE or told.isdisjoint(node.outputs):
            continue
        zeros.update(_signing(graph, node))
        told.update(_heard(graph, node))
    return frozenset(zeros)


def _divisors(graph: Graph, node: Node) -> Iterator[str]:
    """The operands whose zeros a node makes infinities of that have their sign."""
    match node.op:
        case "reciprocal":
            operands = node.inputs[:1]
        case "div":
            operands = node.inputs[1:2]
        case "pow" if not _is_positive(graph, node.inputs[1]):
            operands = node.inputs[:1]
        case op if op == OPAQUE and (node.attrs["domain"] or node.attrs["op_type"] in _OPAQUE_DIVISORS):
            operands = node.inputs
        case _:
            operands = ()
    yield from (v for v in operands if v is not None and v not in graph.constants)


def _heard(graph: Graph, node: Node) -> Iterator[str]:
    """The operands whose zeros have a sign that the results of a node have too."""
    operands = [v for v in node.inputs if v is not None]
    if (node.op in OPS and OPS[node.op].hides_sign) or (node.op == "mul" and len(set(operands)) == 1):
        return
    if node.op in ("add", "sub") and any(_is_nonzero(graph, v) for v in operands):
        return
    yield from (v for v in operands if v not in graph.constants)


def _signing(graph: Graph, node: Node) -> Iterator[str]:
    """The zeros that a sum or difference does not merely hand its other operand on for, and those of a product."""
    if node.op == "mul":
        yield from (v for v in node.inputs if v is not None and _is_zero(graph, v))
    if node.op not in ("add", "sub"):
        return
    for place, value in enumerate(node.inputs):
        zeros = _elements(graph, value)
        if value is not None and zeros is not None and not zeros.any():
            neutral = np.signbit(zeros) != (node.op == "sub" and place == 1)
            if not neutral.all():
                yield value


def _is_positive(graph: Graph, value: str | None) -> bool:
    elements = _elements(graph, value)
    return elements is not None and bool((elements > 0).all())


def _is_zero(graph: Graph, value: str) -> bool:
    elements = _elements(graph, value)
    return elements is not None and not elements.any()


def _is_nonzero(graph: Graph, value: str) -> bool:
    elements = _elements(graph, value)
    return elements is not None and bool(elements.all())


def _elements(graph: Graph, value: str | None) -> Array | None:
    """The elements of a constant of floats."""
    constant = graph.constants.get(value or "")
    if constant is None or not constant.type.dtype.is_float:
        return None
    return constant.array if constant.array.dtype.kind == "f" else constant.array.astype(np.float32)
