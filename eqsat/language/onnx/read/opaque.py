"""Result types of opaque nodes, as far as onnx itself can tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx import ModelProto, NodeProto, TensorProto, TypeProto, checker, defs, shape_inference

from eqsat.language.declaration.symbolic import is_shape_like
from eqsat.language.graphs.fold import Folder
from eqsat.language.onnx.control.inference import join
from eqsat.language.onnx.files.protos import type_proto, value_type
from eqsat.language.onnx.files.tensors import tensor_of
from eqsat.language.terms import UNKNOWN, Sym, TensorType, ValueType

#: Larger numbers in attributes are no sizes.
_LARGEST = 1 << 24


def result_types(node: NodeProto, model: ModelProto, opset: int, folder: Folder) -> Mapping[str, ValueType]:
    """The types of a node's outputs by onnx's own inference; without those it cannot tell."""
    if not defs.has(node.op_type, opset, node.domain if node.domain != "ai.onnx" else "") or _holds_graphs(node):
        return {}
    names: dict[str, Sym] = {}
    types: dict[str, TypeProto] = {}
    data: dict[str, TensorProto] = {}
    for value in node.input:
        proto = type_proto(folder.type(value), _numbered(names)) if value else None
        if value and proto is None:
            return {}
        if proto is not None:
            types[value] = proto
            constant = folder.constants.get(folder.resolve(value))
            if constant is not None and is_shape_like(constant.type):
                data[value] = tensor_of(value, constant)
    if not is_sane(node, types):
        return {}
    schema = defs.get_schema(node.op_type, opset, node.domain if node.domain != "ai.onnx" else "")
    try:
        inferred = shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=list(model.opset_import), ir_version=model.ir_version
        )
    except (shape_inference.InferenceError, checker.ValidationError, ValueError, RuntimeError, KeyError):
        # An operator that onnx cannot type stays untyped: nothing here depends on it.
        return {}
    return {
        name: value_type(proto, folder.fresh, lambda text: names.get(text) or folder.fresh())
        for name, proto in inferred.items()
        if proto.WhichOneof("value")
    }


def _numbered(names: dict[str, Sym]) -> Callable[[Sym], str]:
    """Names for dims under which they survive onnx's inference, whatever they are."""

    def show(dim: Sym) -> str:
        name = next((n for n, d in names.items() if d == dim), f"dim{len(names)}")
        names[name] = dim
        return name

    return show


def _holds_graphs(node: NodeProto) -> bool:
    return any(a.HasField("g") or a.graphs for a in node.attribute)


def is_sane(node: NodeProto, types: Mapping[str, TypeProto]) -> bool:
    """False for attributes that onnx's inference, written in C++, reads out of bounds with.

    Seen in onnx 1.23: an axis beyond the rank crashes the process. So axes must lie within the rank of the first
    operand, and other numbers within the sizes of a tensor.
    """
    first = types.get(node.input[0]) if node.input else None
    rank = len(first.tensor_type.shape.dim) if first is not None else 0
    for attribute in node.attribute:
        numbers = [attribute.i, *attribute.ints]
        bound = max(rank, 1) if "ax" in attribute.name else _LARGEST
        if not all(-bound <= n < bound for n in numbers):
            return False
    return True


def branch_types(node: NodeProto, fresh: Callable[[], Sym]) -> Mapping[str, ValueType]:
    """The result types of `If`, `Loop` and `Scan`, as their bodies state them; of loops the element types alone.

    A name of a dim means what it says inside one body alone.
    """
    graphs = {a.name: a.g for a in node.attribute if a.HasField("g")}
    if node.op_type == "If" and {"then_branch", "else_branch"} <= set(graphs):
        pairs = zip(graphs["then_branch"].output, graphs["else_branch"].output, strict=False)
        stated = [join(value_type(a.type, fresh), value_type(b.type, fresh), fresh) for a, b in pairs]
    elif node.op_type in ("Loop", "Scan") and "body" in graphs:
        inner = [value_type(v.type, fresh) for v in graphs["body"].output[node.op_type == "Loop" :]]
        stated = [t.with_shape(None) if isinstance(t, TensorType) else UNKNOWN for t in inner]
    else:
        return {}
    return dict(zip(node.output, stated, strict=False))
