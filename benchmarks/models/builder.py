"""A small writer of ONNX graphs, for models built from their published description instead of exported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import (
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

OPSET = 17
IR_VERSION = 8


class GraphWriter:
    """Collects nodes and seeded random weights, and closes them into a model.

    Weights are drawn in the order they are asked for, so one seed gives one model, byte for byte.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._rng = np.random.Generator(np.random.SFC64(seed))
        self._nodes: list[NodeProto] = []
        self._initializers: list[TensorProto] = []
        self._inputs: list[ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[int]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
        return name

    def constant(self, name: str, value: NDArray[Any]) -> str:
        self._initializers.append(numpy_helper.from_array(value, name))
        return name

    def shared_constant(self, name: str, value: NDArray[Any]) -> str:
        """`constant`, made once for all the places that ask for this name."""
        if any(tensor.name == name for tensor in self._initializers):
            return name
        return self.constant(name, value)

    def weight(self, name: str, shape: Sequence[int], fan_in: int | None = None) -> str:
        """A matrix or filter with standard deviation 1/√fan_in, so that activations stay of order one.

        `fan_in` is the number of products in one output element; the rows of a matrix when not given.
        """
        scale = np.float32(np.sqrt(1.0 / (fan_in or shape[0])))
        return self.constant(name, self._uniform(shape) * scale)

    def bias(self, name: str, shape: Sequence[int]) -> str:
        return self.constant(name, self._uniform(shape) * np.float32(0.1))

    def _uniform(self, shape: Sequence[int]) -> NDArray[np.float32]:
        """Values of mean 0 and standard deviation 1."""
        return (self._rng.random(tuple(shape), dtype=np.float32) - np.float32(0.5)) * np.float32(np.sqrt(12))

    def op(self, op_type: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """Append a node with one output and return the name of that output."""
        output = name or f"{op_type.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [output], name=output, **attributes))
        return output

    def model(self, outputs: dict[str, Sequence[int]]) -> ModelProto:
        """The finished model; `outputs` gives the shape of each float output by name."""
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
        graph = helper.make_graph(self._nodes, self._name, self._inputs, results, self._initializers)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION, producer_name="eqsat")
