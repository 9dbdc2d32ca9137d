"""Graphs on the operators' own references, in NumPy; opaque nodes on ONNX's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eqsat.errors import BackendError, first_line
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.terms.graph import Graph
from eqsat.runtime.inputs import checked_inputs
from eqsat.runtime.numpy.opaque import OpaqueNodes


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
    """A graph run node by node."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._interpretation = Floats()
        self._opaque = OpaqueNodes(graph)

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, as `run` has it."""
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name; BackendError for inputs that do not fit the graph."""
        return self._run(checked_inputs(self.graph, inputs))

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        """A call that runs the graph on these inputs, checked once."""
        checked = checked_inputs(self.graph, inputs)
        return lambda: self._run(checked)

    def _run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            made = run(self.graph, inputs, self._interpretation, opaque=self._opaque)
        except (IndexError, ValueError, ZeroDivisionError) as error:
            raise BackendError(
                f"NumPy failed: {first_line(error)}",
                where=self.graph.name,
                expected="inputs this graph can be run on",
                remedy="indices and sizes among the inputs must lie within what the graph declares",
            ) from error
        return {name: np.asarray(value) if np.isscalar(value) else value for name, value in made.items()}
