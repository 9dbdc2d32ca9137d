"""Operators that ONNX defines by others: the body of such a definition, as a graph over the operands of one node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TypeProto, ValueInfoProto, defs

from eqsat.errors import EqsatError
from eqsat.language.graphs.fold import Folder
from eqsat.language.onnx.control.scope import BodyScope, Budget
from eqsat.language.onnx.files.protos import attributes, subgraphs, type_proto
from eqsat.language.onnx.read.importing import Unsupported
from eqsat.language.onnx.read.opaque import is_sane
from eqsat.language.terms import OPAQUE, DType, Graph, Node, Sym, TensorType

#: Reads a body in a scope, with the opsets of a model around it.
Read = Callable[[GraphProto, BodyScope, ModelProto], Graph]

#: Operators read by the definition that ONNX gives them, by domain and name. ONNX Runtime runs that definition, or a
#: kernel that makes the same: `tests/backend/language/test_definitions.py` compares the two.
DEFINED = frozenset(
    {
        ("", "AffineGrid"),
        ("", "Attention"),
        ("", "BlackmanWindow"),
        ("", "CausalConvWithState"),
        ("", "CenterCropPad"),
        ("", "HammingWindow"),
        ("", "HannWindow"),
        ("", "LinearAttention"),
        ("", "NegativeLogLikelihoodLoss"),
        ("", "SoftmaxCrossEntropyLoss"),
        ("", "SpaceToDepth"),
        ("", "SwiGLU"),
        ("ai.onnx.preview", "FlexAttention"),
    }
)


@dataclass(frozen=True)
class Definition:
    """The nodes that make the outputs of a node, over its operands; `numbers` are constants that they read."""

    graph: Graph
    values: Mapping[str, str]

    def add_to(self, folder: Folder, outputs: Mapping[str, str], fresh: Callable[[str], str]) -> None:
        """Add the nodes to a graph; `outputs` names the outputs of the definition there."""
        graph, names = self.graph, dict(self.values)
        for value, constant in graph.constants.items():
            if value not in names:
                names[value] = fresh(value)
                folder.add_constant(names[value], constant)
        given = {value: outputs[name] for name, value in reversed(list(graph.outputs.items())) if value not in names}
        for node in graph.nodes:
            for output in node.outputs:
                names[output] = given.get(output) or fresh(output or "unused")
            inputs = tuple(None if v is None else names[v] for v in node.inputs)
            folder.add(Node(node.op, inputs, tuple(names[o] for o in node.outputs), node.attrs))
        for name, value in graph.outputs.items():
            if names[value] != outputs[name]:
                folder.add(Node("identity", (names[value],), (outputs[name],)))


def definition(
    node: NodeProto, versions: Mapping[str, int], folder: Folder, budget: Budget, read: Read, wanted: Sequence[int]
) -> Definition | None:
    """The definition of a node in operators of ours; None for an operator that ONNX does not define by others.

    `versions` are the opsets of the model by domain; `wanted` are the outputs that are there.
    Unsupported where an operator within has no counterpart.
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    opset = versions.get(domain, 0)
    if (domain, node.op_type) not in DEFINED or not defs.has(node.op_type, opset, domain):
        return None
    schema = defs.get_schema(node.op_type, opset, domain)
    _refuse(node, folder)
    function = _function(schema, node, opset, folder)
    if function is None:
        return None
    values = {f: v for f, v in zip(function.input, node.input, strict=False) if v}
    body = _body(function, schema, node, values)
    body.output.extend(ValueInfoProto(name=function.output[i]) for i in wanted)
    if not any(entry.domain == "" for entry in function.opset_import):
        function.opset_import.add(domain="", version=versions.get("", 0))
    try:
        graph = read(body, _scope(values, folder, budget), ModelProto(opset_import=function.opset_import))
    except EqsatError:
        # The fault of the node is for ONNX Runtime to report: nothing here rests on it.
        return None
    for inner in graph.nodes:
        if inner.op == OPAQUE:
            raise Unsupported(f"in its definition, {inner.attrs['op_type']}: {inner.attrs['reason']}")
    return Definition(graph, values)


def _refuse(node: NodeProto, folder: Folder) -> None:
    """Unsupported where ONNX Runtime computes something else than the definition."""
    if node.op_type != "Attention" or len(node.output) < 4 or not node.output[3]:
        return
    given = attributes(node)
    mask = folder.type(node.input[3]) if len(node.input) > 3 and node.input[3] else None
    masks = isinstance(mask, TensorType) and mask.dtype is DType.BOOL
    windows = any(given.get(f"{side}_window_size", -1) != -1 for side in ("left", "right"))
    counted = len(node.input) > 6 and bool(node.input[6])
    if given.get("qk_matmul_output_mode", 0) == 2 and (masks or windows or counted or given.get("is_causal", 0)):
        raise Unsupported("scores as a result whose masked ones ONNX Runtime gives as the lowest float, ONNX as -inf")


def _function(schema: defs.OpSchema, node: NodeProto, opset: int, folder: Folder) -> FunctionProto | None:
    """The function that defines an operator, for the types of a node's operands."""
    newest = [v for v in schema.function_opset_versions if v <= opset]
    if newest:
        return FunctionProto.FromString(schema.get_function_with_opset_version(max(newest)))
    newest = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    types = {value: _type(value, folder) for value in node.input if value}
    known = {value: proto for value, proto in types.items() if proto is not None}
    if not newest or len(known) < len(types) or not is_sane(node, known):
        return None
    given = [known[v].SerializeToString(deterministic=True) if v else b"" for v in node.input]
    try:
        data = schema.get_context_dependent_function_with_opset_version(
            max(newest), node.SerializeToString(deterministic=True), given
        )
    except (RuntimeError, ValueError, IndexError):
        # onnx has no body for these types or attributes.
        return None
    return FunctionProto.FromString(data) if data else None


def _type(value: str, folder: Folder) -> TypeProto | None:
    """The TypeProto of an operand, its dims numbered; None where the type is unknown."""
    shown: dict[Sym, str] = {}
    return type_proto(folder.type(value), lambda dim: shown.setdefault(dim, f"dim{len(shown)}"))


def _scope(values: Mapping[str, str], folder: Folder, budget: Budget) -> BodyScope:
    """The operands under the names that the definition has for them."""
    types, constants, dims = {}, {}, {}
    for formal, value in values.items():
        types[formal] = folder.type(value)
        constant, known = folder.constants.get(folder.resolve(value)), folder.dims(value)
        if constant is not None:
            constants[formal] = constant
        elif known is not None:
            dims[formal] = known
    return BodyScope(types, constants, folder.fresh, budget, dims)


def _body(function: FunctionProto, schema: defs.OpSchema, node: NodeProto, values: Mapping[str, str]) -> GraphProto:
    """The nodes of a function with the attributes of a call put in, and operands that are left out left out."""
    given = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    given |= {a.name: a for a in function.attribute_proto} | {a.name: a for a in node.attribute}
    missing = set(function.input) - set(values)
    body = GraphProto(name=function.name, input=[ValueInfoProto(name=v) for v in values])
    body.node.extend(function.node)
    _fill(body, given, missing)
    return body


def _fill(body: GraphProto, given: Mapping[str, AttributeProto], missing: set[str]) -> None:
    for inner in body.node:
        inner.input[:] = ["" if v in missing else v for v in inner.input]
        attributes = []
        for attribute in inner.attribute:
            if not attribute.ref_attr_name:
                attributes.append(attribute)
            elif attribute.ref_attr_name in given:
                filled = AttributeProto()
                filled.CopyFrom(given[attribute.ref_attr_name])
                filled.name = attribute.name
                attributes.append(filled)
        copies = [AttributeProto.FromString(a.SerializeToString()) for a in attributes]
        del inner.attribute[:]
        inner.attribute.extend(copies)
        for graph in subgraphs(inner):
            _fill(graph, given, missing)
