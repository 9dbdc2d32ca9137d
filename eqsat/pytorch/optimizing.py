"""`optimize` for modules, exported programs and ONNXProgram of PyTorch."""

from __future__ import annotations

from typing import Any

from eqsat.language.pytorch.reading import program_of, read_torch
from eqsat.options.options import Options
from eqsat.pytorch.calling import Convention
from eqsat.pytorch.result import TorchResult
from eqsat.run import Opened


def optimize_torch(model: Any, example_inputs: Any, dynamic_shapes: Any, options: Options) -> TorchResult:
    """The optimised model, called as the module is; errors as in `optimize`."""
    program = program_of(model, example_inputs, dynamic_shapes)
    graph = read_torch(model, program)
    convention = Convention.of(program, graph.inputs, list(graph.outputs), type(model).__name__)
    return TorchResult.of(Opened.of(graph, options).optimised(), convention)
