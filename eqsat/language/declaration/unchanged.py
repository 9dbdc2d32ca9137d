"""Rules for operators that may hand their first operand on as it is: of a node, the operand's type and the result's."""

from __future__ import annotations

from eqsat.language.terms import Node, TensorType


def always(node: Node, operand: TensorType, result: TensorType) -> bool:
    """True whatever the types."""
    return True


def same_type(node: Node, operand: TensorType, result: TensorType) -> bool:
    """True where the types are the same."""
    return operand == result


def same_shape(node: Node, operand: TensorType, result: TensorType) -> bool:
    """True where the types are the same and the shape is known."""
    return operand.shape is not None and operand == result


def without_axes(node: Node, operand: TensorType, result: TensorType) -> bool:
    """True where no axis is reduced."""
    return bool(node.attrs["axes"] == ())


def repeated_once(node: Node, operand: TensorType, result: TensorType) -> bool:
    """True where no axis is repeated."""
    return all(r == 1 for r in node.attrs["repeats"])


def in_order(node: Node, operand: TensorType, result: TensorType) -> bool:
    """True where the axes stay in their order."""
    return tuple(node.attrs["perm"]) == tuple(range(len(node.attrs["perm"])))


def uncut(node: Node, operand: TensorType, result: TensorType) -> bool:
    """True where all elements are taken in their order."""
    steps = node.attrs["steps"]
    return not node.attrs["axes"] or (same_shape(node, operand, result) and all(s == 1 for s in steps))


def unpadded(node: Node, operand: TensorType, result: TensorType) -> bool:
    """True where no side is padded."""
    return not any(node.attrs["pads"])


def alone(node: Node, operand: TensorType, result: TensorType) -> bool:
    """True where the operand is the only one, and so is the result."""
    return len(node.inputs) == len(node.outputs) == 1
