"""Pareto fronts against enumeration, on small problems with cycles and schedules."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

from eqsat.errors import ExtractionError
from eqsat.extract import PEAK, Problem
from eqsat.extract.limited.pareto import COST, front
from eqsat.extract.problem.limits import exceeds
from tests.support.choices import COMMON, amounts, bounds, enumerate_choices, limited, remembering


def agree(problem: Problem, x: str, y: str) -> None:
    pairs = []
    for choice in enumerate_choices(problem.program):
        used = amounts(problem, choice)
        if not any(exceeds(used[name], most) for name, most in bounds(problem).items()):
            # in decimals, 3e-6 + 2e-6 is 5e-6
            used[COST] = round(math.fsum(problem.program.costs[option] for option in choice.values()), 12)
            pairs.append((used[x], used[y]))
    best: list[tuple[float, float]] = []
    for pair in sorted(pairs):
        if not best or pair[1] < best[-1][1] * (1 - 1e-9):
            best.append(pair)
    if not best:
        with pytest.raises(ExtractionError, match="cannot be met"):
            front(problem, x, y)
        return
    found = front(problem, x, y)
    assert found.is_complete
    assert all(point.is_exact for point in found.points)
    assert len(found.points) == len(best)
    for point, (cost, amount) in zip(found.points, best, strict=True):
        point.solution.check(problem)
        assert math.isclose(point.x, cost, rel_tol=1e-6, abs_tol=1e-18)
        assert math.isclose(point.y, amount, rel_tol=1e-6, abs_tol=1e-18)


@settings(COMMON, max_examples=120)
@given(limited())
def test_cost_against_launches(problem: Problem) -> None:
    agree(problem, COST, "launches")


@settings(COMMON, max_examples=120)
@given(limited(classes=4, states=2))
def test_launches_against_cost_with_states(problem: Problem) -> None:
    agree(problem, "launches", COST)


@settings(COMMON, max_examples=120)
@given(remembering(weighted=True))
def test_cost_against_peak_memory(problem: Problem) -> None:
    agree(problem, COST, PEAK)
