"""`optimize` for modules, exported programs and ONNXProgram of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from eqsat.errors import UsageError
from eqsat.language.pytorch.exporting import exported, onnx_program
from eqsat.language.pytorch.onnx_program import graph_of
from eqsat.language.terms.graph import Graph
from eqsat.options.options import Options
from eqsat.pytorch.calling import Convention
from eqsat.pytorch.result import TorchResult
from eqsat.run import Run


def read_torch(model: Any, example_inputs: Any = None, dynamic_shapes: Any = None) -> tuple[Graph, Convention]:
    """The graph of a module, an exported program or an ONNXProgram, and how it is called."""
    where = type(model).__name__
    if isinstance(model, torch.nn.Module):
        exportable = exported(model, example_inputs, dynamic_shapes)
    elif example_inputs is not None or dynamic_shapes is not None:
        raise UsageError(
            "example inputs for a program that is exported already",
            where=where,
            expected="example_inputs and dynamic_shapes with a torch.nn.Module alone",
        )
    elif isinstance(model, torch.export.ExportedProgram):
        exportable = model
    else:
        exportable = model.exported_program
    converted = model if isinstance(model, torch.onnx.ONNXProgram) else onnx_program(exportable, where)
    graph = graph_of(converted, where)
    return graph, Convention.of(exportable, list(graph.inputs), list(graph.outputs), where)


def optimize_torch(model: Any, example_inputs: Any, dynamic_shapes: Any, options: Mapping[str, Any]) -> TorchResult:
    """The optimised model, called as the module is; errors as in `optimize`."""
    checked = Options.of("optimize", options)
    graph, convention = read_torch(model, example_inputs, dynamic_shapes)
    return TorchResult.of(Run.read(graph, checked).with_bodies().result(), convention)
