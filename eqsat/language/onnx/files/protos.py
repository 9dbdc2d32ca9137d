"""Types, attributes and captured values of ONNX's messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

from eqsat.language.onnx.files.tensors import dtype_of, number_of
from eqsat.language.terms import UNKNOWN, Dim, Sym, TensorType, ValueType
from eqsat.language.terms.types import OpaqueType

FreshDim = Callable[[], Sym]
DimOfName = Callable[[str], Dim]


def value_type(proto: TypeProto, fresh: FreshDim, named: DimOfName = Sym.named) -> ValueType:
    """The type a TypeProto states; dims without a name, and negative ones, become anonymous."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return UNKNOWN
    if kind != "tensor_type":
        return OpaqueType(kind.removesuffix("_type").replace("_", " "), proto.SerializeToString(deterministic=True))
    dtype = dtype_of(proto.tensor_type.elem_type)
    if dtype is None:
        return UNKNOWN
    if not proto.tensor_type.HasField("shape"):
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(_dim(d, fresh, named) for d in proto.tensor_type.shape.dim))


def _dim(proto: Any, fresh: FreshDim, named: DimOfName) -> Dim:
    kind = proto.WhichOneof("value")
    if kind == "dim_value" and proto.dim_value >= 0:
        return int(proto.dim_value)
    if kind == "dim_param" and proto.dim_param and not proto.dim_param.startswith("?"):
        return named(proto.dim_param)
    return fresh()


def type_proto(type: ValueType, show: Callable[[Sym], str]) -> TypeProto | None:
    """The TypeProto of a value type, or None where there is none; `show` names a symbolic dim, "" for no name."""
    if isinstance(type, OpaqueType):
        return TypeProto.FromString(type.proto) if type.proto else None
    proto = TypeProto()
    proto.tensor_type.elem_type = number_of(type.dtype)
    if type.shape is None:
        return proto
    proto.tensor_type.shape.SetInParent()
    for dim in type.shape:
        added = proto.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            added.dim_value = dim
        elif name := show(dim):
            added.dim_param = name
    return proto


def plain_name(dim: Sym) -> str:
    """The name of a dim that is one name as the model gave it, else the empty string."""
    text = str(dim)
    return "" if dim.is_anonymous or dim != Sym.named(text) else text


def value_info(name: str, type: ValueType, show: Callable[[Sym], str] = plain_name) -> ValueInfoProto:
    """A ValueInfoProto for a value; without a type where none is known."""
    proto = type_proto(type, show)
    return ValueInfoProto(name=name, type=proto) if proto is not None else ValueInfoProto(name=name)


def attributes(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node as Python values: numbers, strings, tuples of them, and messages as they are."""
    return {a.name: _attribute(a) for a in node.attribute}


def _attribute(proto: AttributeProto) -> Any:
    match proto.type:
        case AttributeProto.FLOAT:
            return float(proto.f)
        case AttributeProto.INT:
            return int(proto.i)
        case AttributeProto.STRING:
            return proto.s.decode("utf-8", "replace")
        case AttributeProto.FLOATS:
            return tuple(float(f) for f in proto.floats)
        case AttributeProto.INTS:
            return tuple(int(i) for i in proto.ints)
        case AttributeProto.STRINGS:
            return tuple(s.decode("utf-8", "replace") for s in proto.strings)
        case AttributeProto.TENSOR:
            return proto.t
        case AttributeProto.SPARSE_TENSOR:
            return proto.sparse_tensor
    return proto


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs a node holds as attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every dense tensor of a graph: its initializers, those that attributes hold, and those of inner graphs."""
    yield from graph.initializer
    for node in graph.node:
        yield from tensors_within(node)


def tensors_within(node: NodeProto) -> Iterator[TensorProto]:
    """Every dense tensor that the attributes of a node hold, inner graphs included."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
    for inner in subgraphs(node):
        yield from tensors(inner)


def captured(node: NodeProto) -> list[str]:
    """The outer values that the subgraphs of a node read, each once, in order of their first use."""
    names: dict[str, None] = {}
    for graph in subgraphs(node):
        for name in free(graph):
            names.setdefault(name)
    return list(names)


def free(graph: GraphProto) -> Iterator[str]:
    """The outer values that a graph reads, as often as it does."""
    bound = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    bound |= {s.values.name for s in graph.sparse_initializer}
    for node in graph.node:
        for name in (*node.input, *captured(node)):
            if name and name not in bound:
                yield name
        bound |= set(node.output)
    for output in graph.output:
        if output.name not in bound:
            yield output.name


def rename_captured(node: NodeProto, names: dict[str, str]) -> None:
    """Rename outer values inside the subgraphs of a node, in place."""
    for graph in subgraphs(node):
        _rename(graph, names)


def _rename(graph: GraphProto, names: dict[str, str]) -> None:
    bound = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    live = {k: v for k, v in names.items() if k not in bound}
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = live.get(name, name)
        rename_captured(node, live)
        live = {k: v for k, v in live.items() if k not in node.output}
    for output in graph.output:
        output.name = live.get(output.name, output.name)


def names_within(node: NodeProto) -> Iterator[str]:
    """Every value name that occurs inside the subgraphs of a node."""
    for graph in subgraphs(node):
        for value in (*graph.input, *graph.output):
            yield value.name
        for tensor in graph.initializer:
            yield tensor.name
        for inner in graph.node:
            yield from inner.input
            yield from inner.output
            yield from names_within(inner)


def names_bound(node: NodeProto) -> Iterator[str]:
    """Every value name that the subgraphs of a node define."""
    for graph in subgraphs(node):
        for value in graph.input:
            yield value.name
        for tensor in graph.initializer:
            yield tensor.name
        for inner in graph.node:
            yield from (o for o in inner.output if o)
            yield from names_bound(inner)


def names_in(model: ModelProto) -> Iterator[str]:
    """Every name of a value in a model, also within the graphs of its nodes; some more than once."""
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
    for tensor in graph.initializer:
        yield tensor.name
    for node in graph.node:
        yield from node.input
        yield from node.output
        yield from names_within(node)
