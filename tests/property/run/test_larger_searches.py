"""A larger search never ends with a dearer graph than a smaller one."""

from __future__ import annotations

from itertools import pairwise

import pytest

import eqsat
from benchmarks.random_graphs import random_graph
from eqsat.language.terms.graph import Graph

#: Limits of counted steps, each ten times the one before.
BUDGETS = (300, 3_000, 30_000, 300_000)
#: Rounding of sums of costs.
ROUNDING = 1e-9


def costs(graph: Graph, device: str) -> list[float]:
    def cost(steps: int) -> float:
        return eqsat.optimize(graph, device=device, measure=False, cache=False, steps=steps).report.cost_after

    return [cost(steps) for steps in BUDGETS]


def assert_falling(found: list[float]) -> None:
    assert all(more <= (1 + ROUNDING) * less for less, more in pairwise(found)), found


@pytest.mark.parametrize("seed", range(6))
def test_random_graphs(seed: int) -> None:
    assert_falling(costs(random_graph(seed, steps=6), "nvidia-h200"))


@pytest.mark.parametrize("device", ["onnxruntime-cpu", "nvidia-h200"])
def test_sums_with_more_orders_than_a_search_can_hold(device: str) -> None:
    g = eqsat.Graph("sums")
    factor, *others = (g.input(f"x{n}", (64, 128)) for n in range(9))
    g.output("y", sum((factor * one for one in others[1:]), factor * others[0]))
    found = costs(g.build(), device)
    assert_falling(found)
    assert found[-1] < 0.6 * found[0]


def test_a_recurrence() -> None:
    g = eqsat.Graph("recurrence")
    x, h = g.input("x", (6, 1, 32)), g.input("h", (1, 32))
    w, u = (g.input(f"w{n}", (32, 32)) for n in range(2))
    for t in range(6):
        h = eqsat.tanh(x[t] @ w + h @ u)
    g.output("y", h)
    found = costs(g.build(), "nvidia-h200")
    assert_falling(found)
    assert found[-1] < found[0]
