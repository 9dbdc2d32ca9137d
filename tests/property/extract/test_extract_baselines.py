"""The backtracking search on random problems: sound at every step, and never better than the integer program."""

from __future__ import annotations

import math

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from eqsat.errors import ExtractionError
from eqsat.extract import Problem, solve
from eqsat.extract.problem.program import closure, total, unfounded
from eqsat.extract.solvers.backtracking import BacktrackingSearch
from eqsat.extract.solvers.greedy import dag_greedy, tree_greedy
from eqsat.extract.solvers.highs import Clock
from eqsat.system.deadline import NEVER
from tests.property.extract.test_extract_optimum import COMMON, optimum, problems

ALPHAS = st.sampled_from([0.8, 1.0, 1.05, 1.5, 1e6])


@settings(COMMON, max_examples=150)
@given(problem=st.one_of(problems(), problems(classes=4, states=2, size=10)), alpha=ALPHAS)
def test_every_graph_visited_is_closed_acyclic_and_new_and_has_the_cost_it_was_queued_with(
    problem: Problem, alpha: float
) -> None:
    program = problem.program
    search = BacktrackingSearch(problem, alpha, None, 0, Clock(NEVER))
    met = set()
    for graph in search.visits():
        assert graph.choice == closure(program, graph.choice, program.roots)
        assert not unfounded(program, graph.choice)
        for goal, option in graph.choice.items():
            for need in program.needs[option]:
                assert graph.position[need] < graph.position[goal]
                assert graph.level[need] < graph.level[goal]
        assert graph.key in search.met
        for cost, _, packed, changes in search.queue:
            queued = search.graph_of(search.unpacked(packed, changes))
            assert math.isclose(queued.cost, cost, rel_tol=1e-9, abs_tol=1e-18)
            assert queued.key in search.met
            assert not unfounded(program, queued.choice)
        assert frozenset(graph.choice.values()) not in met
        met.add(frozenset(graph.choice.values()))
    assert math.isclose(search.cost, total(program, search.best()), rel_tol=1e-9, abs_tol=1e-18)


@settings(COMMON, max_examples=120)
@given(problem=st.one_of(problems(), problems(classes=4, states=2, size=10)), alpha=ALPHAS)
def test_the_integer_program_is_never_worse_than_greedy_or_backtracking(problem: Problem, alpha: float) -> None:
    found = solve(problem, extractor="backtracking", alpha=alpha)
    found.check(problem)
    best = solve(problem, time_limit=60).cost
    assert found.cost <= tree_greedy(problem).cost * (1 + 1e-9)
    for other in (found, tree_greedy(problem), dag_greedy(problem)):
        assert best <= other.cost * (1 + 1e-9)


@settings(COMMON, max_examples=120)
@given(problem=problems(classes=5, states=2, size=12))
def test_with_an_alpha_that_forbids_nothing_the_optimum_is_found_where_there_are_no_cycles(problem: Problem) -> None:
    """Every graph can be made from any other from the roots down, and no step on the way closes a cycle."""
    nodes = [node for node in problem.nodes if all(eclass < node.eclass for eclass, _ in node.operands)]
    conversions = [c for c in problem.conversions if c.source < c.target]
    try:
        problem = Problem(nodes, problem.roots, conversions, problem.states)
    except ExtractionError:
        reject()
    found = solve(problem, extractor="backtracking", alpha=1e12)
    assert math.isclose(found.cost, optimum(problem), rel_tol=1e-9, abs_tol=1e-18)
