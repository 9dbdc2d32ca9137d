"""Evaluation of a graph whose outputs are taken one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.interpret import run
from eqsat.language.terms import Graph


def several() -> Graph:
    """Outputs that a node makes, twice, that others read too, and that are an input or a constant."""
    g = Builder("several")
    x = g.input("x", (2,))
    one = g.constant(np.float32([1, 2]))
    first = x + one
    second = g.apply("relu", first * x)
    for name, value in {"b": second, "a": first, "x again": x, "a again": first, "one": one}.items():
        g.output(name, value)
    return g.build()


def test_outputs_that_are_taken_one_by_one_are_those_that_are_returned() -> None:
    graph, feeds = several(), {"x": np.float32([3, -4])}
    taken: dict[str, Any] = {}

    def take(name: str, array: Any) -> None:
        assert name not in taken
        taken[name] = array

    together = run(graph, feeds, Floats())
    assert list(together) == list(graph.outputs)
    assert run(graph, feeds, Floats(), each=take) == {}
    assert {name: array.tolist() for name, array in taken.items()} == {
        name: array.tolist() for name, array in together.items()
    }
    made = graph.outputs["a"]
    kept = run(graph, feeds, Floats(), keep=frozenset((made,)), each=lambda name, array: None)
    assert {name: array.tolist() for name, array in kept.items()} == {made: together["a"].tolist()}
