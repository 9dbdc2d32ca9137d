"""The calls `load` and `inspect`, and the graph that `load` returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from eqsat.errors import UsageError
from eqsat.language.onnx.files.foreign import no_model
from eqsat.language.onnx.read.model import ModelArgument, read
from eqsat.language.pytorch.kinds import check_extra, is_torch_model
from eqsat.language.terms.graph import Graph
from eqsat.report.inspection import Inspection
from eqsat.report.result import program_of
from eqsat.runtime.backend import Program

if TYPE_CHECKING:
    import torch

    TorchModel: TypeAlias = torch.nn.Module | torch.export.ExportedProgram | torch.onnx.ONNXProgram


@dataclass(frozen=True, eq=False, repr=False)
class LoadedGraph(Graph):
    """A model as eqsat reads it: shapes inferred, constants folded.

    It is run by `run`, inspected by `eqsat.inspect`, and optimised by `eqsat.optimize`.
    """

    @classmethod
    def of(cls, graph: Graph) -> LoadedGraph:
        """A graph that can be run."""
        return cls(**{one.name: getattr(graph, one.name) for one in fields(Graph)})

    @cached_property
    def _program(self) -> Program:
        return program_of(self)

    def run(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, as NumPy arrays, computed by ONNX Runtime.

        BackendError for inputs that do not fit.
        """
        return self._program.run(inputs)


def load(model: ModelArgument | TorchModel, example_inputs: Any = None, dynamic_shapes: Any = None) -> LoadedGraph:
    """A model as a graph, from all that `optimize` takes: a path, a ModelProto, a graph, or a model of PyTorch.

    `example_inputs` and `dynamic_shapes` are those of a torch.nn.Module, as in `optimize`. ImportModelError or
    GraphError for a model that cannot be read, UsageError for arguments that do not go with it.

    >>> import eqsat
    >>> g = eqsat.Graph("twice")
    >>> x = g.input("x", (2,))
    >>> g.output("y", x + x)
    >>> eqsat.load(g).run(x=[1.0, 2.0])["y"]
    array([2., 4.], dtype=float32)
    """
    if is_torch_model(model):
        return LoadedGraph.of(_traced(model, example_inputs, dynamic_shapes))
    check_no_examples(model, example_inputs, dynamic_shapes)
    return LoadedGraph.of(read(model).graph)


def inspect(
    model: ModelArgument | TorchModel,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    *,
    sizes: Mapping[str, int] | None = None,
) -> Inspection:
    """The content of a model: operators, types, FLOPs and bytes, named dims, and opaque nodes with reasons.

    It is printed as text, shown in Jupyter, or written by `to_json`. `sizes` are those of named dims that work is
    counted at. Arguments and errors are those of `load`, and UsageError for a dim that the model does not have.

    >>> import eqsat
    >>> g = eqsat.Graph("twice")
    >>> x = g.input("x", ("batch", 4))
    >>> g.output("y", eqsat.relu(x + x))
    >>> eqsat.inspect(g, sizes={"batch": 8})
    Inspection('twice', 2 nodes, 2 operators, 0 opaque)
    """
    graph = model if isinstance(model, LoadedGraph) else load(model, example_inputs, dynamic_shapes)
    return Inspection.of(graph, sizes)


def check_no_examples(model: Any, example_inputs: Any, dynamic_shapes: Any) -> None:
    """UsageError for example inputs of a model that needs none; ImportModelError where it is none that is read."""
    from pathlib import Path

    from onnx import ModelProto

    from eqsat.language.graphs.builder import Builder

    if not isinstance(model, str | Path | ModelProto | Graph | Builder):
        raise no_model(model)
    if example_inputs is not None or dynamic_shapes is not None:
        raise UsageError(
            f"example inputs for a {type(model).__name__}",
            expected="example_inputs and dynamic_shapes with a torch.nn.Module alone",
        )


def _traced(model: TorchModel, example_inputs: Any, dynamic_shapes: Any) -> Graph:
    check_extra()
    from eqsat.language.pytorch.reading import program_of as exported
    from eqsat.language.pytorch.reading import read_torch

    return read_torch(model, exported(model, example_inputs, dynamic_shapes))
