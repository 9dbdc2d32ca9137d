"""The interface of export functions: the node that each writes, and the model that grows with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, defs, helper

from eqsat.errors import ExportModelError
from eqsat.language.onnx.write.dims import DimsWriter
from eqsat.language.ops import OPS
from eqsat.language.terms import Attrs, Constant, Dim, DType, Graph, Names, Node, TensorType

Exporter = Callable[["ExportTarget"], None]


class Model:
    """Nodes and initializers of the model being written, every name used once: `fresh` gives one that no value has."""

    def __init__(self, graph: Graph, opset: int, reserved: Iterable[str]) -> None:
        self.graph = graph
        self.opset = opset
        self.nodes: list[NodeProto] = []
        self.initializers: dict[str, Constant] = {}
        self.dims = DimsWriter(self)
        self.fresh = Names(reserved)
        self._labels = Names()
        self._parameters: dict[tuple[DType, tuple[int, ...], bytes], str] = {}

    def label(self, name: str) -> str:
        """A name for a node; the empty string stays, others are made unique."""
        return self._labels(name) if name else ""

    def parameter(self, array: Any, dtype: DType) -> str:
        """An initializer that the translation needs; equal ones are one."""
        data = np.asarray(array).astype(dtype.numpy)
        key = (dtype, tuple(data.shape), data.tobytes())
        if key not in self._parameters:
            name = self.fresh("constant")
            self._parameters[key] = name
            self.initializers[name] = Constant.of(data, dtype)
        return self._parameters[key]

    def add(self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], label: str = "", **attrs: Any) -> None:
        """Add a node, of ONNX's own domain unless `domain` among the attributes names another."""
        operands = list(inputs)
        while operands and not operands[-1]:
            operands.pop()
        full = {key: value for key, value in attrs.items() if not isinstance(value, tuple | list) or value}
        made = helper.make_node(op_type, operands, list(outputs), name=self.label(label), **full)
        for key in attrs.keys() - full.keys():  # of no elements onnx cannot tell the type
            type = defs.get_schema(op_type, attrs.get("domain", "")).attributes[key].type.value
            made.attribute.append(helper.make_attribute(key, (), attr_type=type))
        self.nodes.append(made)


class ExportTarget:
    """One node to write: its operands under their names in the model, types and attributes."""

    def __init__(self, model: Model, node: Node, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.model = model
        self.node = node
        self.inputs = list(inputs)
        self.outputs = list(outputs)

    @property
    def opset(self) -> int:
        """The opset of the model."""
        return self.model.opset

    @property
    def attrs(self) -> Attrs:
        """The attributes of the node."""
        return self.node.attrs

    @property
    def onnx(self) -> str:
        """The operator of ONNX's that the node's is declared as."""
        return OPS[self.node.op].onnx or ""

    def input(self, index: int) -> str:
        """The name of an operand; the empty string for one left out."""
        return self.inputs[index] if index < len(self.inputs) else ""

    def type(self, index: int = 0) -> TensorType:
        """The type of an operand."""
        value = self.node.inputs[index]
        type = self.model.graph.type(value or "")
        if not isinstance(type, TensorType):
            raise self.refusal(f"the type of its operand {index} is {type}", "a tensor")
        return type

    def result(self, index: int = 0) -> TensorType:
        """The type of a result."""
        type = self.model.graph.type(self.node.outputs[index])
        if not isinstance(type, TensorType):
            raise self.refusal(f"the type of its result is {type}", "a tensor")
        return type

    def constant(self, index: int) -> Constant | None:
        """An operand that is a constant, or None."""
        value = self.node.inputs[index] if index < len(self.node.inputs) else None
        return None if value is None else self.model.graph.constants.get(value)

    def knows(self, op_type: str) -> bool:
        """True where the opset has the operator."""
        return bool(defs.has(op_type, self.opset, ""))

    def keeps(self, number: float | None) -> bool:
        """True if ONNX's attributes, which are float32, keep a number as precisely as the node computes."""
        return number is None or self.type(0).dtype is not DType.FLOAT64 or float(np.float32(number)) == number

    def make(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """Add a node whose result only this translation uses."""
        name = self.model.fresh(f"{self.outputs[0] or 'unused'}/{op_type}")
        self._check(op_type)
        self.model.add(op_type, inputs, [name], **attrs)
        return name

    def emit(self, op_type: str, *inputs: str, **attrs: Any) -> None:
        """Add the node that makes the results."""
        self._check(op_type)
        self.model.add(op_type, inputs, self.outputs, self.node.name, **attrs)

    def make_fused(self, domain: str, op_type: str, *inputs: str, **attrs: Any) -> str:
        """Add a node of another domain whose result only this translation uses."""
        name = self.model.fresh(f"{self.outputs[0] or 'unused'}/{op_type}")
        self.model.add(op_type, inputs, [name], domain=domain, **attrs)
        return name

    def emit_fused(self, domain: str, op_type: str, *inputs: str, **attrs: Any) -> None:
        """Add the node of another domain that makes the results."""
        self.model.add(op_type, inputs, self.outputs, self.node.name, domain=domain, **attrs)

    def ints(self, values: Iterable[int]) -> str:
        """A vector of int64 as an initializer."""
        return self.model.parameter(np.array(list(values), np.int64), DType.INT64)

    def number(self, value: Any, dtype: DType) -> str:
        """A scalar as an initializer."""
        return self.model.parameter(np.asarray(value), dtype)

    def shape(self, dims: Sequence[Dim]) -> str:
        """A vector of int64 that holds dims, computed from shapes of values where they have names."""
        return self.model.dims.vector(dims)

    def refusal(self, what: str, expected: str) -> ExportModelError:
        """The error for a node that cannot be written."""
        return ExportModelError(f"{self.node.describe()}: {what}", where=self.model.graph.name, expected=expected)

    def needs(self, opset: int, what: str = "") -> None:
        """ExportModelError where the opset of the model is older."""
        if self.opset < opset:
            raise ExportModelError(
                f"{self.node.describe()}{' with ' + what if what else ''} is not in opset {self.opset}",
                where=self.model.graph.name,
                expected=f"opset {opset} or newer",
                remedy=f"pass opset={opset}",
            )

    def _check(self, op_type: str) -> None:
        if not self.knows(op_type):
            first = min(
                s.since_version for s in defs.get_all_schemas_with_history() if s.name == op_type and not s.domain
            )
            self.needs(first)
