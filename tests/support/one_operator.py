"""Models of one operator, run on ONNX Runtime as they are, by eqsat's references, and as eqsat writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, helper

from eqsat.language.onnx.files.tensors import tensor_of
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_bytes
from eqsat.language.terms import OPAQUE, Constant, Graph, TensorType
from eqsat.runtime.backend import select

OPSETS = {"": 21, "com.microsoft": 1, "ai.onnx.ml": 3}


def model(
    node: NodeProto | Sequence[NodeProto],
    inputs: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 21,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    outputs: Sequence[str] | None = None,
) -> ModelProto:
    """A model of nodes over inputs of the shapes of arrays, or of the named dims of `shapes`, and constants."""
    nodes = [node] if isinstance(node, NodeProto) else list(node)
    stated = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), (shapes or {}).get(name, a.shape))
        for name, a in inputs.items()
    ]
    made = outputs if outputs is not None else [o for o in nodes[-1].output if o]
    graph = helper.make_graph(
        nodes,
        "one",
        stated,
        [helper.make_empty_tensor_value_info(o) for o in made],
        [tensor_of(name, Constant.of(np.asarray(a))) for name, a in (constants or {}).items()],
    )
    versions = OPSETS | {"": opset}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*v) for v in versions.items()], ir_version=10)


def session_run(proto: ModelProto | bytes, feeds: Mapping[str, Any], *, optimised: bool = False) -> list[Any]:
    """The outputs on ONNX Runtime, by default without its own optimisations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = proto if isinstance(proto, bytes) else proto.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def opaque(graph: Graph) -> list[str]:
    """Why nodes of a graph stayed opaque."""
    return [str(n.attrs["reason"]) for n in graph.nodes if n.op == OPAQUE]


def is_lowered(proto: ModelProto, feeds: Mapping[str, Any], **tolerance: float) -> Graph:
    """Checks that a model is read without opaque nodes, that the references compute what ONNX Runtime does, in types
    and values, and so does the model as it is written; the graph as it was read."""
    graph = load(proto)
    assert not opaque(graph)
    wanted = session_run(proto, feeds)
    made = select("numpy").compile(graph).run(feeds)
    written = session_run(to_bytes(graph), feeds)
    for value, want, again in zip(made.values(), wanted, written, strict=True):
        agree(value, want, **tolerance)
        agree(again, want, **tolerance)
    for value, want in zip(graph.outputs.values(), wanted, strict=True):
        fits(graph, value, want)
    return graph


def fits(graph: Graph, value: str, array: Any) -> None:
    """Checks that what is known of a value's type agrees with an array; its rank must be known."""
    type = graph.type(value)
    assert isinstance(type, TensorType)
    assert type.dtype.numpy == array.dtype
    assert type.shape is not None and len(type.shape) == array.ndim
    assert all(d == n or not isinstance(d, int) for d, n in zip(type.shape, array.shape, strict=True))


def agree(made: Any, wanted: Any, **tolerance: float) -> None:
    """Checks shape, element type and values: integers and booleans exactly, floats within a tolerance."""
    made = np.asarray(made)
    assert made.shape == wanted.shape and made.dtype == wanted.dtype
    if wanted.dtype.kind in "iub" or not tolerance:
        np.testing.assert_array_equal(made, wanted)
    else:
        np.testing.assert_allclose(made.astype(np.float64), wanted.astype(np.float64), **tolerance)
