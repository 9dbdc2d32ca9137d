"""Rows of the integer program on problems too large to enumerate: they admit every choice that was not ruled out.

Choices are drawn by greedy extraction under random prices. A row that cuts one off is unsound, and so is a bound above
the cost of one; the optimum is that of the program without cuts, reductions and bounds.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from eqsat.errors import ExtractionError
from eqsat.extract import Problem
from eqsat.extract.problem.program import Choice, ExtractionProgram, closure, total, unfounded
from eqsat.extract.solvers import search as searching
from eqsat.extract.solvers.bounds import dual_ascent
from eqsat.extract.solvers.greedy import best_greedy, cheapest_dags
from eqsat.extract.solvers.highs import Clock, Solver
from eqsat.extract.solvers.model import IntegerProgram
from eqsat.extract.solvers.presolve import presolve
from eqsat.extract.solvers.search import IlpSearch
from eqsat.system.deadline import NEVER
from tests.support.choices import COMMON, parts

#: Choices drawn for a program.
SAMPLES = 25


@st.composite
def large(draw: st.DrawFn, *, classes: int = 60) -> tuple[Problem, random.Random]:
    """A problem of 10 classes or more in one to three states, with cycles, shared operands and conversions."""
    source = random.Random(draw(st.integers(0, 2**32)))
    try:
        problem = parts(source, source.randint(10, classes), source.randint(1, 3), source.randint(1, 3))
    except ExtractionError:
        reject()
    return problem, source


def drawn(program: ExtractionProgram, source: random.Random) -> Iterator[Choice]:
    """Acyclic choices that hold nothing the roots do not use: near the cheapest, and far from it."""
    for number in range(SAMPLES):
        spread = (0.0, 0.5, 2.0, 5.0)[number % 4]
        least = 1e-9 + max(program.costs, default=0.0) * (0.1 if number % 4 == 3 else 0.0)
        weights = [(cost + least) * math.exp(spread * source.uniform(-1, 1)) for cost in program.costs]
        priced = dataclasses.replace(program, costs=weights)
        yield closure(program, cheapest_dags(priced), program.roots)


@contextmanager
def recorded() -> Iterator[list[IntegerProgram]]:
    """The integer programs of all searches, with the rows that were added to them on the way."""
    models: list[IntegerProgram] = []

    class Recorder(Solver):
        def __init__(self, model: IntegerProgram, costs: Sequence[float], *, seed: int) -> None:
            super().__init__(model, costs, seed=seed)
            models.append(model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "Solver", Recorder)
        yield models


def admits(model: IntegerProgram, choice: Choice) -> bool:
    """Return whether all rows hold for a choice, for some values of the columns that are no options."""
    used = set(choice.values())
    solver = Solver(model, model.program.costs, seed=0)
    solver.exclude([option for option in range(model.binary) if option not in used])
    return solver.relax(Clock(NEVER)).finished


def searched(problem: Problem, *, is_reduced: bool) -> IlpSearch:
    search = IlpSearch(problem.program, best_greedy(problem.program), Clock(NEVER), 0.0, 0, set())
    if is_reduced:
        search.run()
    else:
        search.solve_integer(presolve(problem.program, passes=0))
    return search


@pytest.mark.parametrize("is_reduced", [False, True], ids=["as-given", "reduced"])
@settings(COMMON, max_examples=60)
@given(drawn_problem=large())
def test_rows_admit_every_choice_that_is_not_ruled_out(
    is_reduced: bool, drawn_problem: tuple[Problem, random.Random]
) -> None:
    problem, source = drawn_problem
    with recorded() as models:
        search = searched(problem, is_reduced=is_reduced)
    assert search.done()
    for choice in drawn(problem.program, source):
        assert search.bound() <= search.cost <= total(problem.program, choice) * (1 + 1e-8)
    for model in models:
        for choice in drawn(model.program, source):
            assert not unfounded(model.program, choice)
            assert admits(model, choice) or model.gone.intersection(choice.values())


@settings(COMMON, max_examples=100)
@given(drawn_problem=large())
def test_dual_ascent_bounds_every_choice_drawn_and_all_meet_its_supports(
    drawn_problem: tuple[Problem, random.Random],
) -> None:
    problem, source = drawn_problem
    ascent = dual_ascent(problem.program)
    for choice in drawn(problem.program, source):
        used = set(choice.values())
        slack = sum(ascent.reduced[option] for option in used)
        assert total(problem.program, choice) >= (ascent.bound + slack) * (1 - 1e-9)
        assert all(used.intersection(support) for support in ascent.supports)


@settings(COMMON, max_examples=60)
@given(drawn_problem=large())
def test_the_optimum_is_that_of_the_program_without_cuts_and_reductions(
    drawn_problem: tuple[Problem, random.Random],
) -> None:
    problem, _ = drawn_problem
    search = searched(problem, is_reduced=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "LAZY_ROUNDS", 1)
        patch.setattr(searching, "ruled_out", lambda program, ascent, cost: [])
        patch.setattr(searching, "landmarks", lambda program, candidates: [])
        patch.setattr(searching, "flow_cuts", lambda model, values, depth: [])
        for name in ("break_pairs", "cover", "cut_point", "cut_idle", "strengthen"):
            patch.setattr(IntegerProgram, name, lambda self, *given: [])
        plain = searched(problem, is_reduced=False)
    assert search.done()
    assert plain.done()
    assert math.isclose(search.cost, plain.cost, rel_tol=1e-8, abs_tol=1e-18)
