"""An optimiser for tensor graphs by equality saturation.

>>> import eqsat
>>> g = eqsat.Graph("twice")
>>> x = g.input("x", (2, 3))
>>> g.output("y", eqsat.relu(x + x))
>>> g.build()
Graph('twice', 2 nodes, inputs=['x'], outputs=['y'])

`optimize` takes a graph, an onnx.ModelProto or the path of an ONNX model. Parts are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from eqsat.errors import EqsatError
from eqsat.moved import find_moved

if TYPE_CHECKING:
    from eqsat.buckets.result import BucketedResult
    from eqsat.calls import optimize
    from eqsat.costs.kernels.precision import PrecisionPolicy
    from eqsat.explorer.explorer import Explorer, explore
    from eqsat.frontier import pareto
    from eqsat.language.comprehension.engine import comprehension
    from eqsat.language.graphs.builder import Builder as Graph
    from eqsat.language.graphs.builder import Tensor
    from eqsat.language.ops import op
    from eqsat.language.terms.state import State
    from eqsat.loading import LoadedGraph, inspect, load
    from eqsat.report.inspection import Inspection
    from eqsat.report.report import Progress, Report
    from eqsat.report.result import Result
    from eqsat.runtime.c.tuned import autotune, kernel
    from eqsat.runtime.emission import emit
    from eqsat.runtime.kernels.nests.options import MappingOptions

#: Public names and the module each comes from, with its name there.
_PUBLIC = {
    "BucketedResult": ("eqsat.buckets.result", "BucketedResult"),
    "Graph": ("eqsat.language.graphs.builder", "Builder"),
    "Tensor": ("eqsat.language.graphs.builder", "Tensor"),
    "op": ("eqsat.language.ops", "op"),
    "comprehension": ("eqsat.language.comprehension.engine", "comprehension"),
    "kernel": ("eqsat.runtime.c.tuned", "kernel"),
    "emit": ("eqsat.runtime.emission", "emit"),
    "autotune": ("eqsat.runtime.c.tuned", "autotune"),
    "MappingOptions": ("eqsat.runtime.kernels.nests.options", "MappingOptions"),
    "PrecisionPolicy": ("eqsat.costs.kernels.precision", "PrecisionPolicy"),
    "State": ("eqsat.language.terms.state", "State"),
    "Inspection": ("eqsat.report.inspection", "Inspection"),
    "LoadedGraph": ("eqsat.loading", "LoadedGraph"),
    "inspect": ("eqsat.loading", "inspect"),
    "load": ("eqsat.loading", "load"),
    "explore": ("eqsat.explorer.explorer", "explore"),
    "Explorer": ("eqsat.explorer.explorer", "Explorer"),
    "optimize": ("eqsat.calls", "optimize"),
    "pareto": ("eqsat.frontier", "pareto"),
    "Progress": ("eqsat.report.report", "Progress"),
    "Report": ("eqsat.report.report", "Report"),
    "Result": ("eqsat.report.result", "Result"),
}

#: Every other public name is an operator on tensors, such as softmax.
_OPERATORS = "eqsat.language.graphs.functions"

__all__ = [
    "BucketedResult",
    "EqsatError",
    "Explorer",
    "Graph",
    "Inspection",
    "LoadedGraph",
    "MappingOptions",
    "PrecisionPolicy",
    "Progress",
    "Report",
    "Result",
    "State",
    "Tensor",
    "autotune",
    "comprehension",
    "emit",
    "explore",
    "inspect",
    "kernel",
    "load",
    "op",
    "optimize",
    "pareto",
]


find_moved()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("eqsat")
    if name in _PUBLIC:
        module, attribute = _PUBLIC[name]
        return getattr(import_module(module), attribute)
    operator = None if name.startswith("_") else getattr(import_module(_OPERATORS), name, None)
    if getattr(operator, "__module__", None) != _OPERATORS:
        raise AttributeError(f"module 'eqsat' has no attribute {name!r}")
    return operator


def __dir__() -> list[str]:
    operators = import_module(_OPERATORS)
    named = [n for n in dir(operators) if getattr(getattr(operators, n), "__module__", None) == _OPERATORS]
    return sorted({*__all__, "__version__", *(n for n in named if not n.startswith("_"))})
