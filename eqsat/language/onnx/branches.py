"""`If` with a condition known ahead: the branch that runs, in the place of the node."""

from __future__ import annotations

from collections.abc import Callable

from onnx import GraphProto, NodeProto

from eqsat.language.onnx.protos import rename_captured


def taken_branch(node: NodeProto, condition: bool, fresh: Callable[[str], str]) -> list[NodeProto] | None:
    """The nodes of the branch, writing the outputs of the `If`; None where it holds tensors of its own.

    Values the branch defines get fresh names, since two branches may use one name for different things.
    """
    wanted = "then_branch" if condition else "else_branch"
    branch: GraphProto | None = next((a.g for a in node.attribute if a.name == wanted), None)
    if branch is None or branch.initializer or branch.sparse_initializer or branch.input:
        return None
    made = {name for inner in branch.node for name in inner.output if name}
    names = {name: fresh(name) for name in sorted(made)}
    nodes = [_renamed(inner, names) for inner in branch.node]
    for ours, inner_output in zip(node.output, branch.output, strict=True):
        if ours:
            source = names.get(inner_output.name, inner_output.name)
            nodes.append(NodeProto(op_type="Identity", input=[source], output=[ours]))
    return nodes


def _renamed(node: NodeProto, names: dict[str, str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(v, v) for v in node.input]
    copy.output[:] = [names.get(v, v) for v in node.output]
    rename_captured(copy, names)
    return copy
