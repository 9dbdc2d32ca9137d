"""Noise on what nodes within functions and bodies make: one factor a result, the same at each run of the body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, inliner
from onnx import shape_inference as inference

#: Types of floats that get noise.
_FLOATS = {TensorProto.FLOAT: np.float32, TensorProto.DOUBLE: np.float64, TensorProto.FLOAT16: np.float16}


def inlined(model: ModelProto) -> ModelProto:
    """The model with its functions in the places of their calls."""
    return inliner.inline_local_functions(model) if model.functions else model


def stir_bodies(model: ModelProto) -> dict[str, Any]:
    """Multiplies each float that nodes of bodies make by a further input of no dims; these inputs with their types."""
    try:
        known = inference.infer_shapes(model)
    except Exception:  # noqa: BLE001 - then the types in bodies are those that they declare
        known = model
    added: dict[str, Any] = {}
    for node, like in zip(model.graph.node, known.graph.node, strict=True):
        for body, typed in zip(_bodies(node), _bodies(like), strict=True):
            _stir(body, typed, added)
    model.graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), [])
        for name, kind in added.items()
    )
    return added


def _stir(body: GraphProto, typed: GraphProto, added: dict[str, Any]) -> None:
    """Puts noise on one body, and on those within."""
    kinds = {v.name: v.type.tensor_type.elem_type for v in (*typed.value_info, *typed.output)}
    nodes: list[NodeProto] = []
    for node, like in zip(body.node, typed.node, strict=True):
        for inner, inner_typed in zip(_bodies(node), _bodies(like), strict=True):
            _stir(inner, inner_typed, added)
        nodes.append(node)
        for i, name in enumerate(node.output):
            kind = _FLOATS.get(kinds.get(name, 0))
            if name and kind is not None and node.op_type != "Constant":
                noise = f"{name}/inner/{len(added)}"
                added[noise] = kind
                node.output[i] = f"{name}/exact/{len(added)}"
                nodes.append(helper.make_node("Mul", [node.output[i], noise], [name]))
    made = [NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del body.node[:]
    body.node.extend(made)


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else attribute.graphs
