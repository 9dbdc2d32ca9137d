"""`If` with a condition known ahead: the branch that runs, in the place of the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx import GraphProto, NodeProto

from eqsat.language.constant import Constant
from eqsat.language.onnx.protos import rename_captured
from eqsat.language.onnx.tensors import ExternalData, constant_of, dense_of


@dataclass(frozen=True)
class Inlined:
    """Nodes in the place of one that holds bodies, and the tensors that those hold."""

    nodes: list[NodeProto]
    constants: Mapping[str, Constant]


def taken_branch(node: NodeProto, condition: bool, fresh: Callable[[str], str], where: str) -> Inlined | None:
    """The branch that a condition chooses, writing the outputs of the `If`; None where it is malformed.

    Values the branch defines get fresh names, since two branches may use one name for different things.
    """
    wanted = "then_branch" if condition else "else_branch"
    branch: GraphProto | None = next((a.g for a in node.attribute if a.name == wanted and a.HasField("g")), None)
    if branch is None or branch.input or len(node.output) > len(branch.output):
        return None
    names, body = inlined(branch, {}, fresh, where)
    for ours, inner_output in zip(node.output, branch.output, strict=False):
        if ours:
            source = names.get(inner_output.name, inner_output.name)
            body.nodes.append(NodeProto(op_type="Identity", input=[source], output=[ours]))
    return body


def inlined(
    body: GraphProto, given: Mapping[str, str], fresh: Callable[[str], str], where: str
) -> tuple[dict[str, str], Inlined]:
    """The nodes of a body with its inputs replaced by values `given`; and what each of its names has become."""
    external = ExternalData(None)
    held = {t.name: constant_of(t, f"{where}: initializer {t.name!r}", external) for t in body.initializer}
    for sparse in body.sparse_initializer:
        name = sparse.values.name
        held[name] = dense_of(sparse, f"{where}: sparse initializer {name!r}", external)
    made = {name for inner in body.node for name in inner.output if name} | set(held)
    names = {**{name: fresh(name) for name in sorted(made)}, **given}
    nodes = [_renamed(inner, names) for inner in body.node]
    return names, Inlined(nodes, {names[name]: constant for name, constant in held.items()})


def _renamed(node: NodeProto, names: dict[str, str]) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(v, v) for v in node.input]
    copy.output[:] = [names.get(v, v) for v in node.output]
    rename_captured(copy, names)
    return copy
