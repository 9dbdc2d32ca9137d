"""Extraction against enumeration of every choice, on small problems with cycles, sharing, states and conversions."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqsat.errors import ExtractionError
from eqsat.extract import EXTRACTORS, Conversion, Node, Problem, Solution, solve
from eqsat.extract.problem.landmarks import landmarks
from eqsat.extract.problem.program import closure, path_bounds, total, unfounded
from eqsat.extract.solvers import ilp
from eqsat.extract.solvers import search as searching
from eqsat.extract.solvers.bounds import Ascent, dual_ascent, ruled_out
from eqsat.extract.solvers.flows import flow_cuts
from eqsat.extract.solvers.greedy import best_greedy, dag_greedy, tree_greedy
from eqsat.extract.solvers.highs import Clock, Solver, SolverOutcome
from eqsat.extract.solvers.model import IntegerProgram, reduced_costs
from eqsat.extract.solvers.presolve import Dominance, presolve
from eqsat.extract.solvers.search import IlpSearch
from eqsat.system.deadline import NEVER, Deadline
from tests.support.choices import enumerate_choices

COSTS = st.sampled_from([0.0, 0.0, 1e-6, 2e-6, 3e-6, 5e-6, 1e-5, 1.7e-5])


def optimum(problem: Problem) -> float:
    return min(total(problem.program, choice) for choice in enumerate_choices(problem.program))


@st.composite
def problems(draw: st.DrawFn, *, classes: int = 6, states: int = 1, size: int = 12) -> Problem:
    count = draw(st.integers(1, classes))
    goals = st.tuples(st.integers(0, count - 1), st.integers(0, states - 1))
    nodes = [Node(c, (), draw(COSTS), 0) for c in range(count) if draw(st.booleans())]
    for _ in range(draw(st.integers(1, size))):
        operands = tuple(draw(st.lists(goals, max_size=3)))
        eclass, state = draw(goals)
        nodes.append(Node(eclass, operands, draw(COSTS), state))
    known = {node.eclass for node in nodes}
    nodes = [node for node in nodes if all(c in known for c, _ in node.operands)]
    known = {node.eclass for node in nodes}
    nodes = [node for node in nodes if all(c in known for c, _ in node.operands)]
    conversions = []
    if states > 1:
        for c in sorted({node.eclass for node in nodes}):
            for source in range(states):
                for target in range(states):
                    if source != target and draw(st.booleans()):
                        conversions.append(Conversion(c, source, target, draw(COSTS)))
    roots = draw(st.lists(goals, min_size=1, max_size=3))
    try:
        return Problem(nodes, roots, conversions, states)
    except ExtractionError:
        from hypothesis import reject

        reject()


def check(problem: Problem, solution: Solution) -> None:
    solution.check(problem)
    assert solution.lower_bound <= solution.cost
    assert 0 <= solution.gap <= 1


COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@settings(COMMON, max_examples=250)
@given(problems())
def test_ilp_finds_the_optimum_of_cyclic_problems(problem: Problem) -> None:
    solution = solve(problem, time_limit=60)
    check(problem, solution)
    assert solution.status == "optimal"
    assert math.isclose(solution.cost, optimum(problem), rel_tol=1e-8, abs_tol=1e-18)


@settings(COMMON, max_examples=120)
@given(problems(classes=4, states=2, size=10))
def test_ilp_finds_the_optimum_with_two_states(problem: Problem) -> None:
    solution = solve(problem, time_limit=60)
    check(problem, solution)
    assert math.isclose(solution.cost, optimum(problem), rel_tol=1e-8, abs_tol=1e-18)


@settings(COMMON, max_examples=80)
@given(problems(classes=3, states=3, size=8))
def test_ilp_finds_the_optimum_with_three_states(problem: Problem) -> None:
    solution = solve(problem, time_limit=60)
    check(problem, solution)
    assert math.isclose(solution.cost, optimum(problem), rel_tol=1e-8, abs_tol=1e-18)


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
@settings(COMMON, max_examples=40)
@given(problem=problems(classes=4, states=2, size=10))
def test_every_extractor_returns_a_sound_choice_and_bound(extractor: str, problem: Problem) -> None:
    solution = solve(problem, extractor=extractor)
    check(problem, solution)
    best = optimum(problem)
    assert solution.lower_bound <= best * (1 + 1e-9) <= solution.cost * (1 + 2e-9)
    baselines = [tree_greedy(problem).cost, dag_greedy(problem).cost]
    assert solution.cost <= (baselines[0] if extractor == "backtracking" else min(baselines))


@settings(COMMON, max_examples=150)
@given(problems())
def test_presolve_keeps_the_optimum_and_maps_choices_back(problem: Problem) -> None:
    reduction = presolve(problem.program)
    small = reduction.program
    costs = []
    for choice in enumerate_choices(small):
        back = closure(problem.program, reduction.expand(choice), problem.program.roots)
        assert not unfounded(problem.program, back)
        costs.append(total(problem.program, back))
        assert costs[-1] <= (total(small, choice) + reduction.paid) * (1 + 1e-9)
    assert math.isclose(min(costs), optimum(problem), rel_tol=1e-9, abs_tol=1e-18)


@settings(COMMON, max_examples=150)
@given(problems())
def test_dual_ascent_bounds_every_choice_and_what_it_rules_out_is_dearer(problem: Problem) -> None:
    program = problem.program
    choices = enumerate_choices(program)
    ascent = dual_ascent(program)
    costs = [total(program, choice) for choice in choices]
    limit = sorted(costs)[len(costs) // 2]
    out = set(ruled_out(program, ascent, limit))
    for choice, cost in zip(choices, costs, strict=True):
        used = set(choice.values())
        slack = sum(ascent.reduced[option] for option in used)
        assert cost >= (ascent.bound + slack) * (1 - 1e-9)
        assert all(used.intersection(support) for support in ascent.supports)
        if used & out:
            assert cost >= limit * (1 - 1e-9)


@settings(COMMON, max_examples=100)
@given(problems(classes=4, states=2, size=10), st.data())
def test_cuts_hold_for_every_acyclic_choice(problem: Problem, data: st.DataObject) -> None:
    program = problem.program
    model = IntegerProgram(program)
    loop = data.draw(st.sets(st.integers(0, program.goals - 1), min_size=1))
    rows = model.cut(loop)
    for choice in enumerate_choices(program):
        values = dict.fromkeys(choice.values(), 1.0) | {model.goal(goal): 1.0 for goal in choice}
        for columns, coefficients, upper in model.rows + rows:
            assert sum(values.get(c, 0.0) * a for c, a in zip(columns, coefficients, strict=True)) <= upper


def relaxed(problem: Problem) -> tuple[IntegerProgram, SolverOutcome]:
    """The linear relaxation, with flow cuts until it violates none."""
    program = problem.program
    model = IntegerProgram(program)
    solver = Solver(model, [cost * 1e6 for cost in program.costs], seed=0)
    depth = path_bounds(program, program.users(), program.costs)
    while True:
        outcome = solver.relax(Clock(NEVER))
        cuts = flow_cuts(model, outcome.values, depth)
        if not cuts:
            return model, outcome
        model.rows += cuts
        solver.add(cuts)


@settings(COMMON, max_examples=150)
@given(problems(classes=7, states=2, size=16))
def test_the_relaxation_with_flow_cuts_bounds_every_choice_and_what_it_rules_out_is_dearer(problem: Problem) -> None:
    program = problem.program
    choices = enumerate_choices(program)
    model, outcome = relaxed(problem)
    ascent = Ascent(outcome.bound / 1e6, reduced_costs(model, outcome.reduced / 1e6), [])
    costs = [total(program, choice) for choice in choices]
    limit = sorted(costs)[len(costs) // 2]
    out = set(ruled_out(program, ascent, limit * (1 - 1e-9)))
    for choice, cost in zip(choices, costs, strict=True):
        used = set(choice.values())
        assert cost >= ascent.bound * (1 - 1e-6) + sum(ascent.reduced[option] for option in used) * (1 - 1e-6) - 1e-12
        if used & out:
            assert cost >= limit * (1 - 1e-6)


@settings(COMMON, max_examples=150)
@given(problems(classes=7, states=2, size=16), st.randoms(use_true_random=False))
def test_flow_cuts_hold_for_every_acyclic_choice(problem: Problem, random: Random) -> None:
    program = problem.program
    model = IntegerProgram(program)
    values = np.array([random.choice([0.0, 0.25, 0.5, 1.0]) for _ in model.upper])
    rows = flow_cuts(model, values, path_bounds(program, program.users(), program.costs))
    for choice in enumerate_choices(program):
        point = dict.fromkeys(choice.values(), 1.0) | {model.goal(goal): 1.0 for goal in choice}
        for columns, coefficients, upper in rows:
            assert sum(point.get(c, 0.0) * a for c, a in zip(columns, coefficients, strict=True)) <= upper


def integer_optimum(problem: Problem) -> float:
    """By the integer program alone, with nothing reduced or bounded beforehand."""
    search = IlpSearch(problem.program, best_greedy(problem.program), Clock(NEVER), 0.0, 0, set())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "ruled_out", lambda program, ascent, cost: [])
        search.solve_integer(presolve(problem.program, passes=0))
    assert search.done()
    assert not unfounded(problem.program, search.best())
    return search.cost


@settings(COMMON, max_examples=150)
@given(problems(classes=5, states=2, size=14))
def test_integer_program_finds_the_optimum_without_reductions(problem: Problem) -> None:
    assert math.isclose(integer_optimum(problem), optimum(problem), rel_tol=1e-8, abs_tol=1e-18)


@settings(COMMON, max_examples=150)
@given(problems(classes=7, size=18))
def test_order_variables_find_the_optimum_where_cuts_are_withheld(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "LAZY_ROUNDS", 1)
        patch.setattr(IntegerProgram, "break_pairs", lambda self: [])
        patch.setattr(IntegerProgram, "cover", lambda self, supports, values=None: [])
        patch.setattr(IntegerProgram, "cut_point", lambda self, values: [])
        patch.setattr(searching, "flow_cuts", lambda model, values, depth: [])
        assert math.isclose(integer_optimum(problem), optimum(problem), rel_tol=1e-8, abs_tol=1e-18)


@settings(COMMON, max_examples=250)
@given(problems(classes=7, states=2, size=16))
def test_landmarks_are_what_all_choices_have_in_common(problem: Problem) -> None:
    program = problem.program
    choices = enumerate_choices(program)
    assert landmarks(program, range(program.goals)) == sorted(set.intersection(*(set(c) for c in choices)))


@settings(COMMON, max_examples=250)
@given(problems(classes=7, states=2, size=16), st.randoms(use_true_random=False))
def test_rows_for_landmarks_and_idle_goals_hold_for_every_acyclic_choice(problem: Problem, random: Random) -> None:
    program = problem.program
    model = IntegerProgram(program)
    values = np.array([random.choice([0.0, 0.25, 0.5, 1.0]) for _ in model.upper])
    rows = model.require(landmarks(program, range(program.goals))) + model.cut_idle(values)
    for choice in enumerate_choices(program):
        point = dict.fromkeys(choice.values(), 1.0) | {model.goal(goal): 1.0 for goal in choice}
        for columns, coefficients, upper in rows:
            assert sum(point.get(c, 0.0) * a for c, a in zip(columns, coefficients, strict=True)) <= upper


@settings(COMMON, max_examples=250)
@given(problems(classes=7, states=2, size=18))
def test_cores_and_windows_lead_to_the_optimum(problem: Problem) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(searching, "LARGE", 0)
        patch.setattr(ilp, "FAR", -1.0)
        patch.setattr(ilp, "MOST_KEPT", 1.0)
        patch.setattr(ilp, "CORE_GAP", 1.0)
        begin, clock = best_greedy(problem.program), Clock(Deadline(60.0))
        search = IlpSearch(problem.program, begin, clock, 0.0, 0, set(), improve=ilp.improve)
        search.solve_reduced(presolve(problem.program, passes=0))
    assert search.done()
    assert math.isclose(total(problem.program, search.best()), optimum(problem), rel_tol=1e-8, abs_tol=1e-18)


@settings(COMMON, max_examples=250)
@given(problems(classes=7, states=2, size=18), st.floats(0.0, 1.5))
def test_a_search_with_a_cutoff_finds_what_is_cheaper_or_proves_that_nothing_is(problem: Problem, part: float) -> None:
    best = optimum(problem)
    greedy = best_greedy(problem.program)
    search = IlpSearch(problem.program, greedy, Clock(NEVER), 0.0, 0, set())
    search.cutoff = part * search.cost
    search.run()
    assert search.done()
    assert search.bound() <= best * (1 + 1e-9)
    assert search.bound() >= min(best, search.cutoff) * (1 - 1e-8) - 1e-18


@settings(COMMON, max_examples=250)
@given(problems(classes=7, states=2, size=18))
def test_dominated_options_leave_an_optimum_behind(problem: Problem) -> None:
    program = problem.program
    out = set(Dominance(program).dominated(range(program.goals), lambda: False))
    choices = enumerate_choices(program)
    rest = [total(program, choice) for choice in choices if out.isdisjoint(choice.values())]
    assert math.isclose(min(rest), min(total(program, c) for c in choices), rel_tol=1e-9, abs_tol=1e-18)
