"""Opaque nodes run by ONNX's own reference evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eqsat.errors import BackendError
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.terms.graph import Graph, Node

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


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
            made = iter(evaluator.run(None, feeds))
        except Exception as error:
            raise self._refusal(node, error) from error
        return [next(made) if output else None for output in node.outputs]

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
        text = str(error).strip().splitlines()
        return BackendError(
            f"{node.describe()}, {node.attrs['op_type']}, fails: {text[0] if text else type(error).__name__}",
            where=self._graph.name,
            expected="an operator that onnx.reference implements",
            remedy="run it on the backend 'onnxruntime'",
        )
