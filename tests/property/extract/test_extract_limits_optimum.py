"""Limits and peak memory against enumeration of every choice and every order, on small cyclic problems."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.errors import ExtractionError
from eqsat.extract import EXTRACTORS, Problem, Solution, solve
from tests.support.choices import COMMON, limited, optimum, remembering


def agree(problem: Problem) -> None:
    best = optimum(problem)
    if math.isinf(best):
        with pytest.raises(ExtractionError, match="cannot be met"):
            solve(problem, time_limit=60)
        return
    solution: Solution = solve(problem, time_limit=60)
    solution.check(problem)
    assert solution.status == "optimal"
    assert math.isclose(solution.cost, best, rel_tol=1e-6, abs_tol=1e-18)
    assert solution.lower_bound <= best * (1 + 1e-9)


@settings(COMMON, max_examples=220)
@given(limited())
def test_the_optimum_within_limits(problem: Problem) -> None:
    agree(problem)


@settings(COMMON, max_examples=100)
@given(limited(classes=4, states=2))
def test_the_optimum_within_limits_with_two_states(problem: Problem) -> None:
    agree(problem)


@settings(COMMON, max_examples=150)
@given(remembering(weighted=False))
def test_the_optimum_within_a_limit_of_peak_memory(problem: Problem) -> None:
    agree(problem)


@settings(COMMON, max_examples=100)
@given(remembering(weighted=True, classes=4, states=2))
def test_the_optimum_where_peak_memory_has_a_price(problem: Problem) -> None:
    agree(problem)


@pytest.mark.parametrize("extractor", sorted(set(EXTRACTORS) - {"ilp"}))
@settings(COMMON, max_examples=30)
@given(problem=st.one_of(limited(), remembering(weighted=False)))
def test_heuristic_extractors_keep_the_limits_or_say_that_they_could_not(extractor: str, problem: Problem) -> None:
    best = optimum(problem)
    try:
        solution = solve(problem, extractor=extractor)
    except ExtractionError as error:
        assert "found no choice within the limits" in error.what
        return
    solution.check(problem)
    assert solution.lower_bound <= best * (1 + 1e-9) <= solution.cost * (1 + 2e-9)
