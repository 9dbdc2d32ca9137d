"""Constants derived from others: computed once for all graphs that need them, rounded once, and dropped when read."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from eqsat.egraph.derived import DerivedConstants, fold_derived
from eqsat.egraph.facts.ranges import evaluated
from eqsat.language.graphs.builder import Builder
from eqsat.language.terms import Constant, Graph

WEIGHT = np.random.default_rng(0).normal(size=(256, 256)).astype(np.float32)


def chain(length: int, weight: Constant) -> Graph:
    """A product of x by a weight that is scaled by a third, so often, each time by a node of its own."""
    g = Builder("chain")
    value = g.constant(weight.array)
    third = g.constant(np.float32(1 / 3))
    for _ in range(length):
        value = g.apply("mul", value, third)
    g.output("y", g.apply("matmul", g.input("x", (4, 256)), value))
    graph = g.build()
    name = next(v for v, c in graph.constants.items() if c.type == weight.type)
    return Graph(
        graph.name,
        graph.inputs,
        graph.outputs,
        graph.nodes,
        {**graph.constants, name: weight},
        graph.types,
        graph.origin,
    )


def the_weight(graph: Graph) -> Constant:
    """The weight that a folded chain multiplies by."""
    assert [n.op for n in graph.nodes] == ["matmul"]
    (constant,) = graph.constants.values()
    return constant


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that are evaluated, in order."""
    seen: list[str] = []

    def counting(interpretation: Any, node: Any, *rest: Any) -> Any:
        seen.append(node.op)
        return evaluated(interpretation, node, *rest)

    monkeypatch.setattr("eqsat.egraph.derived.evaluated", counting)
    return seen


def test_a_chain_is_rounded_once() -> None:
    exact = WEIGHT.astype(np.float64)
    for _ in range(3):
        exact = exact * np.float64(np.float32(1 / 3))
    np.testing.assert_array_equal(
        the_weight(fold_derived(chain(3, Constant.of(WEIGHT)))).array, exact.astype(np.float32)
    )


def test_what_one_graph_derived_another_has_without_computing_it(counted: list[str]) -> None:
    known, graph = DerivedConstants(), chain(3, Constant.of(WEIGHT))
    first = the_weight(fold_derived(graph, known))
    assert counted == ["mul"] * 3
    assert the_weight(fold_derived(graph, known)) is first
    assert counted == ["mul"] * 3


def test_a_longer_chain_goes_on_from_what_was_not_rounded(counted: list[str]) -> None:
    known, weight = DerivedConstants(), Constant.of(WEIGHT)
    short, long = chain(2, weight), chain(3, weight)
    third = next(c for c in short.constants.values() if c is not weight)
    scalar = next(v for v, c in long.constants.items() if c is not weight)
    long = Graph(
        long.name, long.inputs, long.outputs, long.nodes, {**long.constants, scalar: third}, long.types, long.origin
    )
    fold_derived(short, known)
    alone = the_weight(fold_derived(long))
    counted.clear()
    np.testing.assert_array_equal(the_weight(fold_derived(long, known)).array, alone.array)


def test_given_constants_are_told_apart_though_one_takes_the_place_of_another_in_memory() -> None:
    known = DerivedConstants()
    for number in range(20):
        made = the_weight(fold_derived(chain(1, Constant.of(WEIGHT + number)), known))
        np.testing.assert_array_equal(
            made.array, ((WEIGHT + number).astype(np.float64) * np.float32(1 / 3)).astype(np.float32)
        )


def test_float64_is_not_held_beyond_the_node_that_reads_it_last() -> None:
    """Ten weights of 0.25 MB are scaled twice: 2.5 MB are kept of what took 10 MB in float64."""
    g = Builder("many")
    x = g.input("x", (4, 256))
    for index in range(10):
        weight = g.constant(WEIGHT + np.float32(index))
        scaled = g.apply("mul", g.apply("mul", weight, g.constant(np.float32(3))), g.constant(np.float32(5)))
        g.output(f"y{index}", g.apply("matmul", x, scaled))
    graph = g.build()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        folded = fold_derived(graph)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert [n.op for n in folded.nodes] == ["matmul"] * 10
    kept = 2 * 10 * WEIGHT.nbytes  # rounded results on the way are constants of their own
    assert peak < kept + 8 * WEIGHT.nbytes
