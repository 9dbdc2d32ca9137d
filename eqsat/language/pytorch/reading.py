"""Models of PyTorch as exported programs, and the graphs of these."""

from __future__ import annotations

from typing import Any

import torch

from eqsat.errors import UsageError
from eqsat.language.pytorch.exporting import check_pure, exported, onnx_program
from eqsat.language.pytorch.onnx_program import graph_of
from eqsat.language.terms.graph import Graph


def program_of(model: Any, example_inputs: Any = None, dynamic_shapes: Any = None) -> torch.export.ExportedProgram:
    """The exported program of a model; UsageError for a module without example inputs, or a program with some."""
    where = type(model).__name__
    if isinstance(model, torch.nn.Module):
        return exported(model, example_inputs, dynamic_shapes)
    if example_inputs is not None or dynamic_shapes is not None:
        raise UsageError(
            "example inputs for a program that is exported already",
            where=where,
            expected="example_inputs and dynamic_shapes with a torch.nn.Module alone",
        )
    program = model if isinstance(model, torch.export.ExportedProgram) else model.exported_program
    if program is None:
        raise UsageError(
            "it was exported without dynamo=True",
            where=where,
            expected="an ONNXProgram that knows its exported program",
            remedy="save it and pass the path",
        )
    return program


def read_torch(model: Any, program: torch.export.ExportedProgram) -> Graph:
    """The graph of a model, given its exported program; ImportModelError where it cannot be had."""
    where = type(model).__name__
    if not isinstance(model, torch.onnx.ONNXProgram):
        return graph_of(onnx_program(program, where), where)
    check_pure(model, where)
    return graph_of(model, where)
