"""The corpus of comprehensions as one graph, each program with inputs and outputs of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import eqsat
from eqsat.language.terms import Graph
from tests.support.comprehensions.comprehension_cases import Right, check_equal


@dataclass(frozen=True)
class GraphCase:
    """A program of the graph, the arguments it is called with, and the names of its outputs."""

    program: Right
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    outputs: tuple[str, ...]

    def check(self, output: Callable[[str], Any]) -> None:
        """Fail unless the outputs, found by name, are those of the reference."""
        function = self.program.function
        made = function.deliver(tuple(map(output, self.outputs)), self.arguments, self.named)
        check_equal(made, self.program.reference(*self.arguments, **self.named))


def corpus_graph(programs: Sequence[Right]) -> tuple[Graph, dict[str, Any], list[GraphCase]]:
    """The graph, its inputs, and its programs; what has no tensors is computed as it is called, and left out."""
    g = eqsat.Graph("corpus")
    inputs: dict[str, Any] = {}
    cases = []
    for number, program in enumerate(programs):
        function = program.function
        arguments, named = program.arguments(function)
        parameters = [one.name for one in function.scope.function.parameters]
        if not function.operands:
            continue
        tensors: dict[Any, Any] = {}
        for place, value in [*enumerate(arguments), *named.items()]:
            name = parameters[place] if isinstance(place, int) else str(place)
            if name in function.needs:
                tensors[place] = int(value)
                continue
            array = np.asarray(value, function.types[name].numpy)
            inputs[f"p{number}_{place}"] = array
            tensors[place] = g.input(f"p{number}_{place}", array.shape, array.dtype.name)
        places = {k: v for k, v in tensors.items() if isinstance(k, str)}
        made = function(*(tensors[k] for k in range(len(arguments))), **places)
        outputs = tuple(f"o{number}_{k}" for k in range(len(function.results)))
        for name, one in zip(outputs, made if isinstance(made, tuple) else (made,), strict=True):
            g.output(name, one)
        cases.append(GraphCase(program, tuple(arguments), named, outputs))
    return g.build(), inputs, cases
