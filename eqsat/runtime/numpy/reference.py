"""Graphs on the operators' own references, in NumPy; opaque nodes on ONNX's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat.errors import BackendError, first_line
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.terms.graph import Graph, Node
from eqsat.runtime.inputs import checked_inputs
from eqsat.runtime.numpy.call_list import CallList, has_call_list

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


class ReferenceBackend:
    """The meaning of every operator, run as it is declared; slow, always there."""

    name = "numpy"

    def available(self) -> str | None:
        """None: NumPy is always there."""
        return None

    def compile(self, graph: Graph, *, threads: int | None = None) -> ReferenceProgram:
        """The graph as it is; `threads` is left to NumPy's own settings."""
        return ReferenceProgram(graph)


class ReferenceProgram:
    """A graph as one list of calls, made when it is bound to inputs or runs again.

    It runs node by node the first time, since a list takes as long to make as it saves in some ten runs, and always
    where sizes are known in a run only.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._opaque = OpaqueNodes(graph)
        self._has_run = False

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, as `run` has it."""
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name; BackendError for inputs that do not fit the graph."""
        return self._run(checked_inputs(self.graph, inputs))

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        """A call that runs the graph on these inputs, checked once."""
        checked = checked_inputs(self.graph, inputs)
        self._has_run = self._calls is not None
        return lambda: self._run(checked)

    @cached_property
    def _calls(self) -> CallList | None:
        return CallList(self.graph, self._opaque) if has_call_list(self.graph) else None

    def _run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            if self._has_run and self._calls is not None:
                outputs = dict(zip(self.graph.outputs, self._calls(*inputs.values()), strict=True))
            else:
                self._has_run = True
                outputs = run(self.graph, inputs, Floats(), opaque=self._opaque)
        except (IndexError, ValueError, ZeroDivisionError) as error:
            raise BackendError(
                f"NumPy failed: {first_line(error)}",
                where=self.graph.name,
                expected="inputs this graph can be run on",
                remedy="indices and sizes among the inputs must lie within what the graph declares",
            ) from error
        return {name: np.asarray(value) if np.isscalar(value) else value for name, value in outputs.items()}


class OpaqueNodes:
    """Runs the opaque nodes of a graph, each as a model of its own that reads operands and captured values."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._ready: dict[Node, tuple[list[str], Any]] = {}

    def __call__(self, node: Node, operands: list[Any]) -> list[Any]:
        """The outputs of a node; BackendError where the evaluator cannot run it."""
        names, evaluator = self._evaluator(node)
        feeds = {name: value for name, value in zip(names, operands, strict=True) if name}
        try:
            outputs = iter(evaluator.run(None, feeds))
        except Exception as error:
            raise self._refusal(node, error) from error
        return [next(outputs) if output else None for output in node.outputs]

    def _evaluator(self, node: Node) -> tuple[list[str], Any]:
        if node not in self._ready:
            from onnx import NodeProto
            from onnx.reference import ReferenceEvaluator

            from eqsat.language.onnx.files.protos import captured

            proto = NodeProto.FromString(node.attrs["proto"])
            names = [*proto.input, *captured(proto)]
            try:
                self._ready[node] = names, ReferenceEvaluator(self._model(proto, names))
            except Exception as error:
                raise self._refusal(node, error) from error
        return self._ready[node]

    def _model(self, proto: NodeProto, names: list[str]) -> ModelProto:
        """A model of the node alone, with the opsets and local functions of the model it comes from."""
        from onnx import ModelProto, ValueInfoProto

        model = ModelProto()
        if isinstance(self._graph.origin, OnnxOrigin):
            model.ParseFromString(self._graph.origin.model)
        model.graph.Clear()
        model.graph.name = "opaque"
        model.graph.node.append(proto)
        model.graph.input.extend(ValueInfoProto(name=n) for n in dict.fromkeys(names) if n)
        model.graph.output.extend(ValueInfoProto(name=o) for o in proto.output if o)
        return model

    def _refusal(self, node: Node, error: Exception) -> BackendError:
        return BackendError(
            f"{node.describe()}, {node.attrs['op_type']}, fails: {first_line(error)}",
            where=self._graph.name,
            expected="an operator that onnx.reference implements",
            remedy="run it on the backend 'onnxruntime'",
        )
