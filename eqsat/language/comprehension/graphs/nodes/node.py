"""Nodes of graphs as functions of the language, whichever definition says what they are."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from eqsat.language.comprehension.graphs.nodes.movements import movement
from eqsat.language.comprehension.graphs.nodes.stated import StatedNode
from eqsat.language.comprehension.graphs.nodes.sums import form_sum
from eqsat.language.comprehension.graphs.standard import function_of_node
from eqsat.language.declaration.registry import OPS
from eqsat.language.terms import Node, TensorType, ValueType


def stated_node(node: Node, operands: Sequence[ValueType | None], result: ValueType) -> StatedNode | None:
    """A node with one result as a function; None of one that is not stated.

    Functions of single elements and along axes are texts, movements what their references make, and products and
    windows what their index forms say.
    """
    known = [one for one in operands if isinstance(one, TensorType) and one.shape is not None]
    if len(known) < len(operands) or not isinstance(result, TensorType) or result.shape is None:
        return None
    return _stated(Node(node.op, tuple(f"x{place}" for place in range(len(known))), ("y",), node.attrs), *known, result)


@cache
def _stated(node: Node, *types: TensorType) -> StatedNode | None:
    *operands, result = types
    function = function_of_node(node, operands, result)
    if function is not None:
        return StatedNode(function)
    if node.op not in OPS or OPS[node.op].random:
        return None
    return movement(node, operands, result) or form_sum(node, operands, result)


def is_product(op: str) -> bool:
    """True of an operator that is stated as a sum of products."""
    return op in OPS and OPS[op].product


def is_window(op: str) -> bool:
    """True of an operator that is stated by windows that slide over axes."""
    return op in OPS and OPS[op].windowed and not OPS[op].product


def is_movement(op: str) -> bool:
    """True of an operator that moves elements, as it is stated."""
    return op in OPS and (OPS[op].movement or OPS[op].view)
