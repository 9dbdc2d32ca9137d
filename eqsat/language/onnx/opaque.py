"""Types of what opaque nodes make, as far as onnx itself can tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from onnx import ModelProto, NodeProto, TensorProto, TypeProto, defs, shape_inference

from eqsat.language.dims import Sym
from eqsat.language.fold import Folder
from eqsat.language.onnx.protos import type_proto, value_type
from eqsat.language.onnx.tensors import tensor_of
from eqsat.language.symbolic import is_shape_like
from eqsat.language.types import ValueType


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
    schema = defs.get_schema(node.op_type, opset, node.domain if node.domain != "ai.onnx" else "")
    try:
        found = shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=list(model.opset_import), ir_version=model.ir_version
        )
    except (shape_inference.InferenceError, ValueError, RuntimeError, KeyError):
        # An operator that onnx cannot type stays untyped: nothing here depends on it.
        return {}
    return {
        name: value_type(proto, folder.fresh, lambda text: names.get(text) or folder.fresh())
        for name, proto in found.items()
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


def whole_model_types(model: ModelProto) -> Mapping[str, TypeProto]:
    """The types of inner values by onnx's inference over a whole model, control flow included; best effort."""
    try:
        inferred = shape_inference.infer_shapes(model, data_prop=False)
    except (shape_inference.InferenceError, ValueError, RuntimeError):
        return {}
    return {v.name: v.type for v in inferred.graph.value_info if v.type.WhichOneof("value")}
