"""ONNX Runtime without graph optimisations: what a model means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, numpy_helper

Feed = Mapping[str, Any]


@cache
def _options() -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


class Session:
    """A model made ready to run."""

    def __init__(self, model: ModelProto | bytes) -> None:
        data = model if isinstance(model, bytes) else model.SerializeToString()
        self.session = onnxruntime.InferenceSession(data, _options(), providers=["CPUExecutionProvider"])
        self.inputs = {i.name for i in self.session.get_inputs()}
        self.inputs |= {i.name for i in self.session.get_overridable_initializers()}

    def run(self, feed: Feed) -> list[Any]:
        """The outputs in their order, one of them twice where it is listed twice."""
        return list(self.session.run(None, {k: v for k, v in feed.items() if k in self.inputs}))


def run(model: ModelProto | bytes, feed: Feed) -> list[Any]:
    """The outputs of a model for one feed; whatever ONNX Runtime raises where it refuses it."""
    return Session(model).run(feed)


def arrays(values: Sequence[Any]) -> list[np.ndarray[Any, Any]] | None:
    """Results as arrays; None where one of them is no tensor."""
    if not all(isinstance(v, np.ndarray | np.generic) for v in values):
        return None
    return [np.asarray(v) for v in values]


def dense(model: ModelProto) -> ModelProto:
    """The model without sparse tensors, on which onnx's evaluator fails and its inference stops."""
    made = ModelProto()
    made.CopyFrom(model)
    for sparse in made.graph.sparse_initializer:
        flat = np.zeros(int(np.prod(sparse.dims)), np.float32)
        flat[numpy_helper.to_array(sparse.indices)] = numpy_helper.to_array(sparse.values)
        made.graph.initializer.append(numpy_helper.from_array(flat.reshape(sparse.dims), sparse.values.name))
    made.graph.ClearField("sparse_initializer")
    return made
