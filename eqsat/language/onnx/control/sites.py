"""Nodes of a graph that hold bodies: these read as graphs, and others put in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from eqsat.language.graphs.fold import Folder
from eqsat.language.onnx.control.inference import Body, Control, control
from eqsat.language.onnx.control.scope import BodyScope, Budget
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.files.protos import captured, names_bound, names_within, rename_captured
from eqsat.language.onnx.files.tensors import tensor_of
from eqsat.language.onnx.read.importer import load_body
from eqsat.language.onnx.write.exporter import assemble
from eqsat.language.terms import OPAQUE, Attrs, Constant, Graph, Names, Node, Sym

#: Constants from this size on stand in the outermost graph, where equal ones are one; a node captures at most so many
#: values for that.
_OUTSIDE_BYTES, _MOST_CAPTURED = 1 << 10, 512


@dataclass(frozen=True)
class Site:
    """A node that holds bodies, with its names those of the graph it stands in, and the bodies read of it."""

    node: Node
    proto: NodeProto
    control: Control

    @property
    def place(self) -> str:
        """The name of the node in messages."""
        return f"{self.proto.op_type} {self.node.name or self.node.outputs[0]!r}"


def names_in(graph: Graph) -> Names:
    """The names in a graph and in bodies within it: a body must not hide a name from outside."""
    taken = {*graph.inputs, *graph.outputs, *graph.constants, *graph.producers}
    for node in graph.nodes:
        if node.op == OPAQUE:
            proto = NodeProto.FromString(node.attrs["proto"])
            taken |= {*names_within(proto), *names_bound(proto)}
    return Names(taken)


def holds_bodies(graph: Graph) -> bool:
    """True if some node is an If, a Loop or a Scan of ONNX."""
    return any(
        n.op == OPAQUE and n.attrs["op_type"] in ("If", "Loop", "Scan") and n.attrs["domain"] in ("", "ai.onnx")
        for n in graph.nodes
    )


def sites(graph: Graph, fresh: Callable[[], Sym]) -> Iterator[Site]:
    """The nodes of a graph whose bodies can be read, in order, each with the bodies in its scope."""
    origin = graph.origin
    if not isinstance(origin, OnnxOrigin) or not holds_bodies(graph):
        return
    around = ModelProto.FromString(origin.model)
    folder = Folder(fresh)
    for value in graph.inputs:
        folder.add_input(value, graph.type(value))
    for value, constant in graph.constants.items():
        folder.add_constant(value, constant, merge=False)
    for node in graph.nodes:
        if node.op == OPAQUE:
            proto = _renamed(node)
            budget = Budget.of(helper.make_graph([proto], "", [], []))

            def read(body: GraphProto, scope: BodyScope) -> Graph:
                return load_body(body, scope, around, graph.name)

            typed = control(proto, origin.opset, folder, budget, read)
            if typed is not None:
                yield Site(node, proto, typed)
        folder.add(node)
        for output in node.outputs:
            if output:
                folder.declare(output, graph.type(output))


def _renamed(node: Node) -> NodeProto:
    """The node as ONNX has it, with the names that its values have in the graph."""
    proto = NodeProto.FromString(node.attrs["proto"])
    explicit = len(node.inputs) - node.attrs["captures"]
    outer = {o: n for o, n in zip(captured(proto), node.inputs[explicit:], strict=True) if n is not None and o != n}
    if outer:
        rename_captured(proto, outer)
    proto.input[:] = [v or "" for v in node.inputs[:explicit]]
    proto.output[:] = node.outputs
    return proto


def replaced(site: Site, bodies: Mapping[str, GraphProto]) -> Node:
    """The node with other bodies, by the names of their attributes."""
    proto = NodeProto()
    proto.CopyFrom(site.proto)
    for attribute in proto.attribute:
        if attribute.name in bodies:
            attribute.g.CopyFrom(bodies[attribute.name])
    outer = captured(proto)
    attrs = Attrs({**site.node.attrs, "proto": proto.SerializeToString(deterministic=True), "captures": len(outer)})
    return Node(OPAQUE, tuple(v or None for v in (*proto.input, *outer)), site.node.outputs, attrs, site.node.name)


def written(
    graph: Graph, body: Body, outside: Mapping[str, Constant], names: Names
) -> tuple[GraphProto, dict[str, Constant]]:
    """A graph in the place of a body, under names that nothing else has; and constants for the graph around it.

    Stated types of its inputs and outputs stay. ExportModelError where the opset cannot express the graph.
    """
    model, tensors = assemble(graph)
    made, own = model.graph, {v.name: names(v.name) for v in body.proto.input}
    known = {id(constant): name for name, constant in outside.items()}
    types = {constant.type for constant in tensors.values()}
    equal = {(c.type, c.digest): name for name, c in outside.items() if c.type in types}
    new = {name: names(name) for node in made.node for name in node.output if name}
    new |= own
    added: dict[str, Constant] = {}
    result = GraphProto(name=body.proto.name)
    for name, constant in tensors.items():
        shared = known.get(id(constant)) or equal.get((constant.type, constant.digest))
        new[name] = shared or names(name)
        if shared is None and constant.nbytes >= _OUTSIDE_BYTES and len(added) < _MOST_CAPTURED:
            added[new[name]] = constant
        elif shared is None:
            result.initializer.append(tensor_of(new[name], constant))
    for sparse in made.sparse_initializer:
        copy = result.sparse_initializer.add()
        copy.CopyFrom(sparse)
        new[sparse.values.name] = copy.values.name = names(sparse.values.name)
    for node in made.node:
        node.input[:] = [new.get(v, v) for v in node.input]
        node.output[:] = [new.get(v, v) for v in node.output]
        rename_captured(node, new)
        result.node.append(node)
    for stated in body.proto.input:
        result.input.append(_called(stated, own[stated.name]))
    produced = {name for node in result.node for name in node.output}
    for stated, output in zip(body.proto.output, made.output, strict=True):
        name = new.get(output.name, output.name)
        if name not in produced:  # an input, a constant or a value from outside is no output by itself
            source, name = name, names(output.name)
            result.node.append(helper.make_node("Identity", [source], [name]))
        result.output.append(_called(stated, name))
    return result, added


def _called(stated: ValueInfoProto, name: str) -> ValueInfoProto:
    info = ValueInfoProto()
    info.CopyFrom(stated)
    info.name = name
    return info
