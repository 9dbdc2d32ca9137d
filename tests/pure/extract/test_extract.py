"""Extraction at its public surface: what is chosen, what is refused, how a search ends."""

from __future__ import annotations

import _thread
import dataclasses
import math
import random
import signal
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from eqsat.errors import ExtractionError, UsageError
from eqsat.extract import Conversion, Node, Problem, solve
from eqsat.extract.problem.program import unfounded
from eqsat.extract.solvers.flows import flow_cuts
from eqsat.extract.solvers.greedy import best_greedy, dag_greedy, greedy, tree_greedy
from eqsat.extract.solvers.highs import Clock, Solver
from eqsat.extract.solvers.model import IntegerProgram
from eqsat.extract.solvers.neighbourhood import solve_windows
from eqsat.extract.solvers.presolve import presolve
from eqsat.extract.solvers.search import IlpSearch
from eqsat.system.deadline import NEVER, Deadline


def random_problem(seed: int, classes: int, width: int, back: float = 0.0) -> Problem:
    """Layers of classes with `width` e-nodes each over earlier classes; a part `back` of the operands is anywhere."""
    draw = random.Random(seed)
    nodes = [Node(c, (), draw.uniform(1e-6, 1e-3)) for c in range(4)]
    for eclass in range(4, classes):
        for index in range(width):
            cyclic = index > 0 and draw.random() < back
            reach = range(classes) if cyclic else range(max(0, eclass - 12), eclass)
            operands = tuple((draw.choice(reach), 0) for _ in range(draw.randint(1, 3)))
            cost = 0.0 if draw.random() < 0.3 else draw.uniform(1e-6, 1e-3)
            nodes.append(Node(eclass, operands, cost, name=f"op{eclass}.{index}"))
    return Problem(nodes, [(classes - 1, 0), (classes - 2, 0)])


def hard_problem() -> Problem:
    """A vertex-cover-like problem, which takes far longer than a test to prove: many ties, no structure."""
    draw = random.Random(5)
    parts = [Node(c, (), 1.0) for c in range(240)]
    pairs = [Node(240 + i, ((draw.randrange(240), 0),), 0.0) for i in range(960) for _ in range(2)]
    top = Node(1200, tuple((240 + i, 0) for i in range(960)), 0.0)
    return Problem([*parts, *pairs, top], [(1200, 0)])


def test_a_shared_operand_is_paid_once() -> None:
    shared = Node(0, (), 10.0)
    nodes = [shared, Node(1, ((0, 0),), 1.0), Node(2, ((0, 0),), 1.0), Node(3, ((1, 0), (2, 0)), 1.0)]
    nodes += [Node(1, (), 7.0), Node(2, (), 7.0)]
    problem = Problem(nodes, [(3, 0)])
    solution = solve(problem)
    assert solution.cost == 13.0
    assert solution.chosen == {(0, 0): 0, (1, 0): 1, (2, 0): 2, (3, 0): 3}
    assert (solution.status, solution.lower_bound, solution.gap) == ("optimal", 13.0, 0.0)


def test_self_loop_is_never_chosen() -> None:
    problem = Problem([Node(0, ((0, 0),), 0.0), Node(0, (), 5.0)], [(0, 0)])
    assert solve(problem).chosen == {(0, 0): 1}


def test_two_classes_that_look_cheaper_by_needing_each_other() -> None:
    nodes = [Node(0, ((1, 0),), 0.0), Node(1, ((0, 0),), 0.0), Node(0, (), 5.0), Node(1, (), 4.0)]
    nodes.append(Node(2, ((0, 0), (1, 0)), 0.0))
    solution = solve(Problem(nodes, [(2, 0)]))
    assert solution.cost == 4.0
    assert solution.chosen == {(0, 0): 0, (1, 0): 3, (2, 0): 4}


def test_a_conversion_is_shared_by_all_consumers() -> None:
    nodes = [Node(0, (), 1.0, 0), Node(0, (), 9.0, 1), Node(1, ((0, 1),), 1.0), Node(2, ((0, 1),), 1.0)]
    problem = Problem(nodes, [(1, 0), (2, 0)], [Conversion(0, 0, 1, 3.0)], states=2)
    solution = solve(problem)
    solution.check(problem)
    assert solution.cost == 6.0
    assert solution.conversions == {0}
    assert solution.chosen == {(0, 0): 0, (1, 0): 2, (2, 0): 3}


def test_conversions_do_not_feed_each_other() -> None:
    conversions = [Conversion(0, 0, 1, 0.0), Conversion(0, 1, 0, 0.0), Conversion(0, 2, 0, 1.0)]
    problem = Problem([Node(0, (), 7.0, 2)], [(0, 1)], conversions, states=3)
    solution = solve(problem)
    solution.check(problem)
    assert solution.cost == 8.0
    assert solution.conversions == {0, 2}


def test_roots_keep_their_state_and_may_repeat() -> None:
    problem = Problem([Node(0, (), 2.0, 0), Node(0, (), 3.0, 1)], [(0, 0), (0, 1), (0, 0)], states=2)
    assert solve(problem).cost == 5.0


def test_zero_cost_everywhere() -> None:
    nodes = [Node(0, ((1, 0),), 0.0), Node(1, ((0, 0),), 0.0), Node(1, (), 0.0)]
    solution = solve(Problem(nodes, [(0, 0)]))
    assert (solution.cost, solution.lower_bound, solution.gap, solution.status) == (0.0, 0.0, 0.0, "optimal")


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_scale_of_the_costs_does_not_matter(scale: float) -> None:
    problem = random_problem(3, 36, 3, back=0.3)
    scaled = Problem([dataclasses.replace(n, cost=n.cost * scale) for n in problem.nodes], problem.roots)
    one, other = solve(problem), solve(scaled)
    other.check(scaled)
    assert other.status == one.status == "optimal"
    assert math.isclose(other.cost, one.cost * scale, rel_tol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_bigger_cyclic_problems_are_solved_and_no_worse_than_greedy(seed: int) -> None:
    problem = random_problem(seed, 60, 3, back=0.3)
    solution = solve(problem, time_limit=60)
    solution.check(problem)
    assert solution.status == "optimal"
    assert solution.cost <= min(tree_greedy(problem).cost, dag_greedy(problem).cost)


def test_the_same_problem_and_seed_give_the_same_choice() -> None:
    problem = random_problem(11, 50, 3, back=0.3)
    again = Problem(problem.nodes, problem.roots)
    one, other = solve(problem, seed=3), solve(again, seed=3)
    assert (one.chosen, one.conversions, one.cost) == (other.chosen, other.conversions, other.cost)


def test_greedies_are_acyclic_on_large_cyclic_graphs() -> None:
    problem = random_problem(1, 3000, 4, back=0.4)
    for solution in (tree_greedy(problem), dag_greedy(problem)):
        solution.check(problem)
        assert solution.status == "heuristic"


def test_dag_greedy_sees_sharing_that_tree_greedy_does_not() -> None:
    nodes = [Node(0, (), 10.0), Node(1, ((0, 0),), 0.0), Node(2, ((0, 0),), 0.0)]
    nodes += [Node(3, ((1, 0), (2, 0)), 0.0), Node(3, (), 15.0)]
    problem = Problem(nodes, [(3, 0)])
    assert tree_greedy(problem).cost == 15.0
    assert dag_greedy(problem).cost == 10.0


def test_greedy_sees_what_pays_only_if_several_choose_it() -> None:
    # Three products of 2 each, or slices of one product of 3 for all.
    nodes = [Node(0, (), 3.0)]
    for user in (1, 2, 3):
        nodes += [Node(user, (), 2.0), Node(user, ((0, 0),), 0.1)]
    problem = Problem(nodes, [(user, 0) for user in (1, 2, 3)])
    assert tree_greedy(problem).cost == dag_greedy(problem).cost == 6.0
    assert greedy(problem).cost == pytest.approx(3.3)
    alone = Problem(nodes, [(1, 0)])
    assert greedy(alone).cost == 2.0, "what nobody else reads is not shared"


@pytest.mark.parametrize("seed", range(8))
def test_greedy_is_the_cheapest_of_its_choices_and_acyclic(seed: int) -> None:
    problem = random_problem(seed, 60, 3, back=0.2)
    solution = greedy(problem)
    solution.check(problem)
    assert solution.cost <= min(tree_greedy(problem).cost, dag_greedy(problem).cost)


def test_time_limit_returns_the_best_found_with_an_honest_bound() -> None:
    problem = hard_problem()
    solution = solve(problem, time_limit=0.2)
    solution.check(problem)
    assert solution.status == "time_limit"
    assert 0 < solution.lower_bound < solution.cost <= min(tree_greedy(problem).cost, dag_greedy(problem).cost)


def test_no_time_at_all_still_returns_a_choice() -> None:
    problem = hard_problem()
    solution = solve(problem, time_limit=0)
    solution.check(problem)
    assert solution.status == "time_limit"


def test_relative_gap_ends_the_search() -> None:
    problem = hard_problem()
    solution = solve(problem, relative_gap=0.9)
    assert solution.status == "optimal"
    assert solution.gap <= 0.9


def test_stop_request_returns_the_best_found() -> None:
    problem = hard_problem()
    asked = iter([False] * 10)
    solution = solve(problem, should_stop=lambda: next(asked, True))
    solution.check(problem)
    assert solution.status == "interrupted"
    assert solution.lower_bound < solution.cost


def test_ctrl_c_returns_the_best_found() -> None:
    problem = hard_problem()
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.8, _thread.interrupt_main)
    timer.start()
    solution = solve(problem, time_limit=120)
    timer.join()
    solution.check(problem)
    assert solution.status == "interrupted"
    assert solution.lower_bound < solution.cost
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_is_heard_where_an_exception_would_be_lost() -> None:
    class Lost:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    pressed: list[Lost] = [Lost()]
    solution = solve(hard_problem(), progress=lambda *_: pressed.clear())
    assert solution.status == "interrupted"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_progress_reports_falling_costs_and_rising_bounds() -> None:
    seen: list[tuple[float, float]] = []
    solution = solve(random_problem(2, 60, 3, back=0.3), progress=lambda *now: seen.append(now))
    costs, bounds = [cost for cost, _ in seen], [bound for _, bound in seen]
    assert costs == sorted(costs, reverse=True)
    assert bounds == sorted(bounds)
    assert costs[-1] == pytest.approx(solution.cost)


def test_unknown_extractor_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="no extractor 'magic'\n  expected one of backtracking, greedy, ilp"):
        solve(Problem([Node(0, (), 1.0)], [(0, 0)]), extractor="magic")


@pytest.mark.parametrize(("name", "value"), [("time_limit", -1.0), ("time_limit", math.nan), ("relative_gap", 1.5)])
def test_arguments_outside_their_domain_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=name):
        solve(Problem([Node(0, (), 1.0)], [(0, 0)]), **{name: value})


LEAF = Node(0, (), 1.0, name="leaf")


@pytest.mark.parametrize(
    ("nodes", "roots", "conversions", "states", "message"),
    [
        ([], [(0, 0)], [], 1, "the extraction problem has no e-nodes"),
        ([LEAF], [], [], 1, "the extraction problem has no roots"),
        ([LEAF], [(0, 0)], [], 0, "the extraction problem has 0 states"),
        ([LEAF], [(4, 0)], [], 1, "root e-class 4 has no e-nodes"),
        ([LEAF], [(0, 1)], [], 1, "root e-class 0: state 1\n  expected a state from 0 to 0"),
        ([Node(0, (), -1.0, name="m")], [(0, 0)], [], 1, "e-node 'm' of e-class 0: cost -1.0\n  expected a finite"),
        ([Node(0, (), math.nan)], [(0, 0)], [], 1, "an e-node of e-class 0: cost nan"),
        ([Node(0, (), math.inf)], [(0, 0)], [], 1, "cost inf"),
        ([Node(0, ((9, 0),), 1.0, name="m")], [(0, 0)], [], 1, "e-node 'm' of e-class 0: operand e-class 9 has no"),
        (
            [Node(0, (), 1e308), Node(0, (), 9e307)],
            [(0, 0)],
            [],
            1,
            "an e-node of e-class 0: the costs add up to more than 1.8e308, with 1e+308 alone",
        ),
        (
            [Node(0, (), 1e308)],
            [(0, 0)],
            [Conversion(0, 0, 1, 1e308)],
            2,
            "expected costs whose sum is a finite number",
        ),
        ([LEAF], [(0, 0)], [Conversion(0, 0, 0, 1.0)], 2, "source and target state are the same"),
        ([LEAF], [(0, 0)], [Conversion(0, 0, 1, -2.0)], 2, "from state 0 to 1: cost -2.0"),
        ([LEAF], [(0, 0)], [Conversion(5, 0, 1, 2.0)], 2, "conversion of e-class 5 from state 0 to 1: e-class 5 has"),
        ([LEAF], [(0, 1)], [], 2, "e-class 0 in state 1 is a root that no acyclic choice of e-nodes delivers"),
        (
            [Node(0, ((1, 0),), 0.0), Node(1, ((0, 0),), 0.0)],
            [(0, 0)],
            [],
            1,
            "these depend on each other: e-class 0 -> e-class 1 -> e-class 0",
        ),
    ],
)
def test_malformed_problems_are_refused_with_a_reason(
    nodes: list[Node], roots: list[tuple[int, int]], conversions: list[Conversion], states: int, message: str
) -> None:
    with pytest.raises(ExtractionError) as caught:
        Problem(nodes, roots, conversions, states)
    assert message in str(caught.value)


NEEDS = Problem([Node(0, ((1, 0),), 1.0), Node(1, ((0, 0),), 1.0), Node(0, (), 5.0), Node(1, (), 4.0)], [(0, 0)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chosen": {(0, 0): 0, (1, 0): 1}}, "the solution is cyclic"),
        ({"chosen": {(0, 0): 0}}, "e-class 1: needed but not chosen"),
        ({"chosen": {(0, 0): 1}}, "chosen node 1 delivers e-class 1"),
        ({"chosen": {(0, 0): 77}}, "chosen node 77 does not exist"),
        ({"chosen": {(0, 0): 2, (1, 0): 3}}, "e-class 1: chosen but not needed by any root"),
        ({"conversions": frozenset({0})}, "chosen conversion 0 does not exist"),
        ({"cost": 4.0}, "the solution claims cost 4.0"),
        ({"lower_bound": 6.0}, "lower bound 6.0 exceeds the cost 5.0"),
    ],
)
def test_check_finds_what_is_wrong(change: dict[str, object], message: str) -> None:
    solution = solve(NEEDS)
    solution.check(NEEDS)
    with pytest.raises(ExtractionError) as caught:
        dataclasses.replace(solution, **change).check(NEEDS)
    assert message in str(caught.value)


def layered(layers: int) -> Problem:
    """Chains of operators in two states, where neighbours want to agree and every third wants to differ."""
    draw = random.Random(7)
    nodes, conversions = [Node(0, (), 0.0, 0)], [Conversion(0, 0, 1, 3.0)]
    for eclass in range(1, 3 * layers + 1):
        for operands in ((eclass - 1,), (eclass - 1, max(0, eclass - 3))):
            for state in range(2):
                cost = draw.uniform(4.0, 12.0)
                nodes.append(Node(eclass, tuple((c, state) for c in operands), cost, state))
        conversions += [Conversion(eclass, 0, 1, draw.uniform(1, 4)), Conversion(eclass, 1, 0, draw.uniform(1, 4))]
    return Problem(nodes, [(3 * layers, 0)], conversions, states=2)


def test_windows_improve_a_large_choice_and_keep_it_sound() -> None:
    problem = layered(40)
    begin = best_greedy(problem.program)
    search = IlpSearch(problem.program, begin, Clock(NEVER), 0.0, 0, set())
    before, reduction = search.cost, presolve(problem.program)
    solve_windows(search, reduction, np.zeros(len(reduction.program.provides)))
    assert search.cost < before
    assert not unfounded(problem.program, search.best())
    exact = solve(problem, time_limit=60)
    exact.check(problem)
    assert exact.status == "optimal"
    assert exact.cost <= search.cost * (1 + 1e-9)


def test_flow_cuts_count_a_source_once_where_two_ways_lead_to_it() -> None:
    nodes = [Node(0, (), 10.0), Node(1, ((0, 0),), 0.0), Node(2, ((0, 0),), 0.0), Node(3, ((1, 0),), 0.0)]
    problem = Problem([*nodes, Node(3, ((2, 0),), 0.0)], roots=[(3, 0)])
    model = IntegerProgram(problem.program)
    solver = Solver(model, problem.program.costs, seed=0)
    assert solver.relax(Clock(NEVER)).bound == pytest.approx(5.0)
    halves = solver.relax(Clock(NEVER)).values
    solver.add(flow_cuts(model, halves, [10.0] * 4))
    assert solver.relax(Clock(NEVER)).bound == pytest.approx(10.0)


def test_a_solver_that_does_not_hear_the_clock_is_left_behind() -> None:
    program = layered(2).program
    solver, heard = Solver(IntegerProgram(program), program.costs, seed=0), threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            solver,
            "_highs",
            SimpleNamespace(run=heard.wait, setOptionValue=lambda *option: None, getRunTime=lambda: 0.0),
        )
        outcome = solver.relax(Clock(Deadline(0.0)))
        heard.set()
    assert not outcome.finished


@pytest.mark.parametrize("unit", [1e-305, 1e-150, 1.0, 1e150, 1e300])
def test_costs_of_any_size_are_compared(unit: float) -> None:
    nodes = [Node(0, (), 2 * unit), Node(0, (), unit), Node(1, ((0, 0),), unit), Node(1, (), 3 * unit)]
    solution = solve(Problem(nodes, roots=[(1, 0), (0, 0)]))
    solution.check(Problem(nodes, roots=[(1, 0), (0, 0)]))
    assert (solution.cost, solution.status) == (2 * unit, "optimal")
