"""The backtracking search: which graphs it visits for an alpha, what it fills in, how it ends, what it refuses."""

from __future__ import annotations

import _thread
import itertools
import math
import threading

import pytest

from eqsat.errors import UsageError
from eqsat.extract import EXTRACTORS, Conversion, Node, Problem, solve
from eqsat.extract.problem.program import unfounded
from eqsat.extract.solvers.backtracking import BacktrackingSearch, solve_backtracking
from eqsat.extract.solvers.greedy import tree_greedy
from eqsat.extract.solvers.highs import Clock
from eqsat.system.deadline import NEVER
from tests.pure.extract.test_extract import hard_problem, random_problem

ROOT, A, C, D, P, T, S = range(7)

#: Two values of 5 each may share a part of 5.1, which only pays when both do; a third saves 0.1 by itself.
SHARING = Problem(
    [
        Node(ROOT, ((A, 0), (C, 0), (D, 0)), 0.0),
        Node(A, (), 5.0),
        Node(A, ((P, 0),), 0.2),
        Node(C, (), 5.0),
        Node(C, ((T, 0),), 0.2),
        Node(D, (), 1.0),
        Node(D, (), 0.9),
        Node(P, ((S, 0),), 0.1),
        Node(T, ((S, 0),), 0.1),
        Node(S, (), 5.1),
    ],
    roots=[(ROOT, 0)],
)
ORIGINAL = (0, 1, 3, 5)


def visited(problem: Problem, alpha: float, start: tuple[int, ...] | None = None) -> list[float]:
    """The costs of the graphs taken out of the queue, in turn, each of which is acyclic."""
    search = BacktrackingSearch(problem, alpha, start, 0, Clock(NEVER))
    costs = []
    for graph in search.visits():
        assert not unfounded(problem.program, graph.choice)
        assert graph.cost == pytest.approx(math.fsum(problem.program.costs[o] for o in graph.choice.values()))
        costs.append(round(graph.cost, 6))
    return costs


@pytest.mark.parametrize(
    ("alpha", "costs"),
    [
        (0.95, [11.0]),
        (1.0, [11.0, 10.9]),
        (1.02, [11.0, 10.9]),
        # Through a graph of 11.3, in which one of the two shares with nobody yet.
        (1.05, [11.0, 10.9, 11.3, 6.6, 6.7]),
    ],
)
def test_alpha_says_which_graphs_are_visited_and_in_which_order(alpha: float, costs: list[float]) -> None:
    assert visited(SHARING, alpha, ORIGINAL) == costs
    solution = solve(SHARING, extractor="backtracking", alpha=alpha, start=ORIGINAL)
    solution.check(SHARING)
    assert solution.cost == pytest.approx(min(costs))


def test_alpha_of_one_only_ever_goes_down() -> None:
    problem = random_problem(4, 60, 4, back=0.3)
    costs = visited(problem, 1.0, _original(problem))
    assert len(costs) > 3
    assert all(after < before for before, after in itertools.pairwise(costs))


def _original(problem: Problem) -> tuple[int, ...]:
    """The first node of every class, each over earlier classes."""
    first: dict[int, int] = {}
    for index, node in enumerate(problem.nodes):
        first.setdefault(node.eclass, index)
    return tuple(first.values())


def test_more_alpha_finds_no_dearer_graph() -> None:
    for seed in range(4):
        problem = random_problem(seed, 30, 3, back=0.3)
        found = [
            solve(problem, extractor="backtracking", alpha=alpha, start=_original(problem)).cost
            for alpha in (0.9, 1.0, 1.1)
        ]
        assert found == sorted(found, reverse=True)
        assert solve(problem).cost <= found[-1] * (1 + 1e-9)


def test_it_begins_at_the_cheapest_tree_where_no_start_is_given() -> None:
    problem = random_problem(2, 60, 3, back=0.3)
    search = BacktrackingSearch(problem, 1.05, None, 0, Clock(NEVER))
    assert next(search.visits()).cost == pytest.approx(tree_greedy(problem).cost)


def test_operands_that_come_in_are_those_of_the_start() -> None:
    root, middle, leaf = range(3)
    nodes = [Node(root, ((middle, 0),), 0.0), Node(middle, ((leaf, 0),), 1.0), Node(leaf, (), 3.0)]
    nodes += [Node(middle, (), 1.5), Node(middle, ((leaf, 0),), 0.5), Node(leaf, (), 2.9)]
    # From 1.5, where no leaf is left, the leaf of 3.0 comes back, not the cheaper one: 3.5 is met before 3.4.
    assert visited(Problem(nodes, roots=[(root, 0)]), 3.0, (0, 1, 2)) == [4.0, 1.5, 3.5, 3.4, 3.9]


def test_a_substitution_with_two_outputs_is_one_step() -> None:
    """Two products of 10 become halves of one of 12: either half alone is dearer than what alpha lets pass."""
    first, second, both, top = range(4)
    nodes = [Node(first, (), 10.0), Node(first, ((both, 0),), 0.5), Node(second, (), 10.0)]
    nodes += [Node(second, ((both, 0),), 0.5), Node(both, (), 12.0), Node(top, ((first, 0), (second, 0)), 0.0)]
    assert visited(Problem(nodes, roots=[(top, 0)]), 1.0) == [20.0, 13.0]


def test_a_state_and_its_conversion_come_in_together() -> None:
    nodes = [Node(0, (), 1.0, 0), Node(1, ((0, 0),), 9.0), Node(1, ((0, 1),), 2.0), Node(2, ((1, 0), (0, 1)), 0.0)]
    nodes.append(Node(2, ((1, 0),), 3.0))
    problem = Problem(nodes, [(2, 0)], [Conversion(0, 0, 1, 4.0)], states=2)
    solution = solve(problem, extractor="backtracking", start=[0, 1, 4])
    solution.check(problem)
    assert (solution.cost, solution.conversions) == (7.0, {0})


A_, B_, AB, RELU, AR, BOTH, JOINED = range(7)

#: A@B and A@relu(A@B) with the rule that merges products with a common operand: A@concat(B, relu(A@B)) is in a cycle.
MERGED = Problem(
    [
        Node(A_, (), 0.0, name="A"),
        Node(B_, (), 0.0, name="B"),
        Node(AB, ((A_, 0), (B_, 0)), 10.0, name="matmul"),
        Node(AB, ((JOINED, 0),), 0.0, name="split[0]"),
        Node(RELU, ((AB, 0),), 1.0, name="relu"),
        Node(AR, ((A_, 0), (RELU, 0)), 10.0, name="matmul"),
        Node(AR, ((JOINED, 0),), 0.0, name="split[1]"),
        Node(BOTH, ((B_, 0), (RELU, 0)), 0.1, name="concat"),
        Node(JOINED, ((A_, 0), (BOTH, 0)), 5.0, name="matmul"),
    ],
    roots=[(AR, 0)],
)


@pytest.mark.parametrize("extractor", sorted(EXTRACTORS))
def test_a_rule_that_merges_a_product_with_what_depends_on_it_gives_no_cycle(extractor: str) -> None:
    solution = solve(MERGED, extractor=extractor)
    solution.check(MERGED)
    # The first product by itself, and the second as a part of the merged one, which is cheaper here.
    assert {MERGED.nodes[n].name for n in solution.chosen.values()} >= {"matmul", "relu"}
    assert solution.cost == pytest.approx(16.1)


def test_no_cyclic_graph_enters_the_queue() -> None:
    costs = visited(MERGED, 1e9, (0, 1, 2, 4, 5))
    assert sorted(costs) == [16.1, 21.0]


def test_a_time_limit_ends_the_search_with_the_best_so_far() -> None:
    problem = hard_problem()
    solution = solve(problem, extractor="backtracking", alpha=1.1, time_limit=0.2)
    solution.check(problem)
    assert solution.status == "time_limit"
    assert solution.lower_bound < solution.cost <= tree_greedy(problem).cost


def test_no_time_at_all_gives_the_start() -> None:
    solution = solve(SHARING, extractor="backtracking", start=ORIGINAL, time_limit=0)
    solution.check(SHARING)
    assert (solution.status, solution.cost) == ("time_limit", 11.0)


def test_a_stop_request_ends_the_search_with_the_best_so_far() -> None:
    problem = hard_problem()
    asked = iter([False] * 6)
    solution = solve(problem, extractor="backtracking", alpha=1.1, should_stop=lambda: next(asked, True))
    solution.check(problem)
    assert solution.status == "interrupted"
    assert solution.cost < tree_greedy(problem).cost


def test_ctrl_c_ends_the_search_with_the_best_so_far() -> None:
    problem = hard_problem()
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    solution = solve(problem, extractor="backtracking", alpha=1.1, time_limit=120)
    timer.join()
    solution.check(problem)
    assert solution.status == "interrupted"
    assert solution.cost <= tree_greedy(problem).cost


def test_it_ends_as_optimal_where_its_bound_is_met() -> None:
    solution = solve(Problem([Node(0, (), 2.0), Node(0, (), 1.0)], roots=[(0, 0)]), extractor="backtracking", start=[0])
    assert (solution.cost, solution.lower_bound, solution.status) == (1.0, 1.0, "optimal")


def test_a_relative_gap_ends_the_search() -> None:
    solution = solve(SHARING, extractor="backtracking", start=ORIGINAL, relative_gap=0.6)
    assert (solution.cost, solution.status) == (11.0, "optimal")
    assert solution.gap <= 0.6


def test_progress_tells_of_every_better_graph() -> None:
    seen: list[tuple[float, float]] = []
    solve(SHARING, extractor="backtracking", start=ORIGINAL, progress=lambda *now: seen.append(now))
    assert [round(cost, 6) for cost, _ in seen] == [11.0, 10.9, 6.6]
    assert all(bound == 5.0 for _, bound in seen)


def test_the_queue_and_the_graphs_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(0, 60, 4, back=0.3)
    monkeypatch.setattr("eqsat.extract.solvers.backtracking.MOST_QUEUED", 8)
    monkeypatch.setattr("eqsat.extract.solvers.backtracking.MOST_MET", 300)
    search = BacktrackingSearch(problem, 1.5, _original(problem), 0, Clock(NEVER))
    for _ in search.visits():
        assert len(search.queue) <= 8
    assert len(search.met) == 300
    assert not unfounded(problem.program, search.best())


@pytest.mark.parametrize("alpha", [0.0, -1.0, math.nan, math.inf])
def test_an_alpha_that_is_no_factor_is_refused(alpha: float) -> None:
    with pytest.raises(UsageError) as caught:
        solve(SHARING, extractor="backtracking", alpha=alpha)
    assert str(caught.value) == f"alpha={alpha!r}\n  expected a factor above 0, such as 1.05"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [({"alpha": 1.05}, "alpha=1.05 with"), ({"start": [0]}, "start with")],
    ids=["alpha", "start"],
)
@pytest.mark.parametrize("extractor", ["greedy", "ilp"])
def test_arguments_of_backtracking_are_refused_elsewhere(
    extractor: str, arguments: dict[str, object], what: str
) -> None:
    with pytest.raises(UsageError) as caught:
        solve(SHARING, extractor=extractor, **arguments)
    assert str(caught.value) == (
        f"{what} extractor={extractor!r}\n"
        "  expected alpha and start for the search that reads them: extractor='backtracking'\n"
        f"  leave it out: extractor={extractor!r} finds its own way"
    )


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ([99], "start names node 99\n  expected nodes from 0 to 9"),
        ([-1], "start names node -1\n  expected nodes from 0 to 9"),
        (
            [0, 1, 3],
            "start does not deliver e-class 0\n"
            "  expected nodes that are a whole graph: of each operand's e-class there is one\n"
            "  add the nodes that the roots need, or leave start out",
        ),
    ],
)
def test_a_start_that_is_no_graph_is_refused(start: list[int], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        solve_backtracking(SHARING, start=start)
    assert str(caught.value) == message
