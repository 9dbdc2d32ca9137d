"""Limits, peak memory and fronts at their public surface: what is used, what is refused, what is said."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eqsat.errors import ExtractionError, MissingExtraError, UsageError
from eqsat.extract import PEAK, Conversion, Limit, Memory, Node, Problem, solve
from eqsat.extract.limited import pareto
from eqsat.extract.limited.pareto import Front, front, plot, table
from eqsat.system.figure import figure_class
from eqsat.system.terminal import captured

CHAIN = [Node(0, (), 1.0), Node(1, ((0, 0),), 1.0), Node(1, ((0, 0),), 3.0), Node(2, ((1, 0),), 1.0)]
SIZES = {(0, 0): 4.0, (1, 0): 5.0, (2, 0): 6.0}


def chain(*limits: Limit, memory: Memory | None = None) -> Problem:
    """An input, a cheap node of three launches or a dear one of two, and a result."""
    return Problem(CHAIN, [(2, 0)], limits=limits, memory=memory)


def launches(most: float) -> Limit:
    return Limit("launches", most, [1.0, 3.0, 2.0, 1.0])


def seconds(most: float) -> Limit:
    return Limit("time", most, [1.0, 1.0, 3.0, 1.0])


def test_a_limit_changes_the_choice_and_amounts_are_reported() -> None:
    free = solve(chain(launches(math.inf)))
    assert (free.cost, free.amounts) == (3.0, {"launches": 5.0})
    bound = solve(chain(launches(4), seconds(math.inf)))
    assert (bound.cost, bound.status, bound.amounts) == (5.0, "optimal", {"launches": 4.0, "time": 5.0})


def test_conversions_count_too() -> None:
    nodes = [Node(0, (), 1.0, 0), Node(0, (), 4.0, 1)]
    conversion = [Conversion(0, 0, 1, 1.0)]
    casts = Limit("casts", 0, [0.0, 0.0], [1.0])
    assert solve(Problem(nodes, [(0, 1)], conversion, states=2)).cost == 2.0
    assert solve(Problem(nodes, [(0, 1)], conversion, states=2, limits=[casts])).cost == 4.0


def test_a_shared_weight_is_counted_once_where_a_node_stands_for_it() -> None:
    nodes = [Node(0, (), 0.0, name="weight"), Node(1, ((0, 0),), 1.0), Node(2, ((0, 0),), 1.0)]
    weight = Limit("weight_memory", 8.0, [8.0, 0.0, 0.0])
    assert solve(Problem(nodes, [(1, 0), (2, 0)], limits=[weight])).amounts == {"weight_memory": 8.0}


def test_the_schedule_is_part_of_the_solution_and_lowers_the_peak() -> None:
    """Two branches, each with a large value in its middle: one after the other takes half of both at once."""
    nodes = [Node(0, (), 0.0)]
    for branch in (1, 4):
        nodes += [Node(branch, ((0, 0),), 1.0), Node(branch + 1, ((branch, 0),), 1.0)]
    nodes.append(Node(7, ((2, 0), (5, 0)), 1.0))
    sizes = {(0, 0): 1.0, (1, 0): 100.0, (2, 0): 1.0, (4, 0): 100.0, (5, 0): 1.0, (7, 0): 1.0}
    problem = Problem(nodes, [(7, 0)], memory=Memory(sizes))
    solution = solve(problem)
    solution.check(problem)
    assert solution.amounts == {PEAK: 102.0}
    worse = dataclasses.replace(solution, schedule=((0, 0), (1, 0), (4, 0), (2, 0), (5, 0), (7, 0)))
    with pytest.raises(ExtractionError, match=re.escape("claims peak_memory 102.0")):
        worse.check(problem)


def test_a_view_shares_the_storage_of_its_operand() -> None:
    nodes = [Node(0, (), 0.0), Node(1, ((0, 0),), 1.0), Node(2, ((1, 0),), 0.0), Node(3, ((2, 0),), 1.0)]
    sizes = {(c, 0): 10.0 for c in range(4)}
    copies = Problem(nodes, [(2, 0), (3, 0)], memory=Memory(sizes))
    views = Problem(nodes, [(2, 0), (3, 0)], memory=Memory(sizes, aliases={2: (1, 0)}))
    assert solve(copies).amounts[PEAK] == 20.0
    assert solve(views).amounts[PEAK] == 20.0
    kept = Problem(nodes, [(1, 0), (2, 0), (3, 0)], memory=Memory(sizes, aliases={2: (1, 0)}))
    assert solve(kept).amounts[PEAK] == 20.0
    assert solve(kept.variant(memory=Memory(sizes))).amounts[PEAK] == 30.0


def test_a_price_on_peak_memory_is_part_of_the_cost() -> None:
    nodes = [Node(0, (), 0.0), Node(1, ((0, 0),), 1.0), Node(2, ((1, 0),), 1.0), Node(3, ((0, 0),), 1.5)]
    nodes += [Node(4, ((2, 0),), 0.0), Node(4, ((3, 0),), 1.0)]
    sizes = {(0, 0): 1.0, (1, 0): 50.0, (2, 0): 1.0, (3, 0): 2.0, (4, 0): 1.0}
    for weight, cost, peak in ((0.0, 2.0, 51.0), (0.001, 2.051, 51.0), (0.1, 2.8, 3.0)):
        problem = Problem(nodes, [(4, 0)], memory=Memory(sizes, weight=weight))
        solution = solve(problem)
        solution.check(problem)
        assert math.isclose(solution.cost, cost)
        assert (solution.amounts[PEAK], solution.status) == (peak, "optimal")


@pytest.mark.parametrize(
    ("limits", "memory", "what", "expected"),
    [
        ([launches(3)], None, "launches <= 3 cannot be met: every choice needs at least 4", "limits that some"),
        ([seconds(2.5)], None, "time <= 2.5 cannot be met: every choice needs at least 3", "limits that some"),
        (
            [launches(3.5), seconds(2)],
            None,
            "launches <= 3.5 and time <= 2 cannot be met: every choice needs at least 4 of launches, 3 of time",
            "limits that some",
        ),
        (
            [launches(4), seconds(3)],
            None,
            "launches <= 4 and time <= 3 cannot be met together",
            "launches of at least 5 with time <= 3, or time of at least 5 with launches <= 4",
        ),
        ([], 10.0, "peak_memory <= 10 cannot be met: every choice needs at least 11", "limits that some"),
    ],
)
def test_an_impossible_limit_names_the_tightest_bound(
    limits: list[Limit], memory: float | None, what: str, expected: str
) -> None:
    with pytest.raises(ExtractionError) as error:
        solve(chain(*limits, memory=None if memory is None else Memory(SIZES, most=memory)))
    assert error.value.what == what
    assert error.value.expected.startswith(expected)
    assert error.value.remedy.startswith("raise ")


def test_limits_of_errors_are_told_as_errors_and_not_as_the_squares_that_are_added_up() -> None:
    """Errors of 0.3 and 0.4 together make 0.5; the choice of few launches has one of 0.8."""
    roundings = Limit("error", 0.3**2, [0.3**2, 0.4**2, 0.8**2 - 0.3**2, 0.0])
    with pytest.raises(ExtractionError) as error:
        solve(chain(roundings))
    assert error.value.what == "error <= 0.3 cannot be met: every choice needs at least 0.5"
    assert error.value.remedy == "raise error to 0.5"
    with pytest.raises(ExtractionError) as together:
        solve(chain(dataclasses.replace(roundings, most=0.5**2), launches(4)))
    assert together.value.what == "error <= 0.5 and launches <= 4 cannot be met together"
    assert "error of at least 0.8 with launches <= 4" in together.value.expected


def test_limits_that_matter_are_told_from_those_that_do_not() -> None:
    spare = Limit("spare", 1.0, [0.0, 0.5, 0.0, 0.0])
    with pytest.raises(ExtractionError) as error:
        solve(chain(spare, launches(4), seconds(3), memory=Memory(SIZES, most=12.0)))
    assert error.value.what == "launches <= 4 and time <= 3 cannot be met together"


@pytest.mark.parametrize("extractor", ["greedy", "backtracking"])
def test_a_heuristic_extractor_says_that_it_found_no_choice(extractor: str) -> None:
    with pytest.raises(ExtractionError) as error:
        solve(chain(launches(3)), extractor=extractor)
    assert re.fullmatch(
        r"this extractor found no choice within the limits in [\d.]+ s: launches <= 3", error.value.what
    )
    assert "not proved" in error.value.expected
    solution = solve(chain(launches(4)), extractor=extractor)
    assert solution.amounts == {"launches": 4.0}


def test_a_search_out_of_time_is_no_proof() -> None:
    """Two limits that pull apart, each easily kept without the other."""
    draw = random.Random(3)
    nodes, launch, second = [], [], []
    for c in range(60):
        for _ in range(4):
            nodes.append(Node(c, (), draw.uniform(1.0, 2.0)))
            launch.append(float(draw.randint(100, 10_000)))
            second.append(10_100.0 - launch[-1] + draw.randint(-3, 3))
    nodes.append(Node(60, tuple((c, 0) for c in range(60)), 0.0))
    middle = sum(launch) / 4
    limits = [Limit("launches", middle, [*launch, 0.0]), Limit("time", 60 * 10_100.0 - middle - 150, [*second, 0.0])]
    problem = Problem(nodes, [(60, 0)], limits=limits)
    with pytest.raises(ExtractionError) as error:
        solve(problem, time_limit=0.0)
    assert re.match(r"no choice within the limits was found in [\d.]+ s: launches <= ", error.value.what)
    assert error.value.expected == "limits that some choice keeps; it is not proved that none does"
    assert "time_limit" in error.value.remedy


def test_a_time_limit_returns_a_choice_within_the_limits_and_an_honest_bound() -> None:
    problem = knapsack()
    solution = solve(problem, time_limit=0.3)
    solution.check(problem)
    assert 0 < solution.lower_bound <= solution.cost
    assert solution.status == ("optimal" if solution.gap <= 1e-9 else "time_limit")


def knapsack() -> Problem:
    """Classes of many nodes that trade cost for launches, joined in layers."""
    draw = random.Random(7)
    nodes, amounts = [], []
    for c in range(120):
        for _ in range(6):
            operands = tuple({(draw.randrange(max(0, c - 8), c), 0) for _ in range(2)}) if c else ()
            nodes.append(Node(c, operands, draw.uniform(1.0, 2.0)))
            amounts.append(float(round(4000 - 1500 * nodes[-1].cost + draw.uniform(0, 800))))
    return Problem(nodes, [(119, 0), (118, 0)], limits=[Limit("launches", 80_000.0, amounts)])


def test_a_search_can_be_stopped_and_followed() -> None:
    seen: list[tuple[float, float]] = []
    solution = solve(
        knapsack(), time_limit=60, progress=lambda *now: seen.append(now), should_stop=lambda: len(seen) > 0
    )
    assert solution.status in ("interrupted", "optimal")
    assert all(bound <= cost for cost, bound in seen)
    assert [cost for cost, _ in seen] == sorted((cost for cost, _ in seen), reverse=True)


@pytest.mark.parametrize(
    ("make", "what", "where"),
    [
        (lambda: chain(Limit("n", 1.0, [1.0])), "1 amounts for 4 nodes", "limit 'n'"),
        (lambda: chain(Limit("n", 1.0, [0.0] * 4, [1.0])), "1 amounts for 0 conversions", "limit 'n'"),
        (lambda: chain(Limit("n", -1.0, [0.0] * 4)), "most=-1.0", "limit 'n'"),
        (lambda: chain(Limit("n", math.nan, [0.0] * 4)), "most=nan", "limit 'n'"),
        (lambda: chain(Limit("n", 1.0, [0.0, -2.0, 0.0, 0.0])), "amount -2.0 of node 1", "limit 'n'"),
        (lambda: chain(Limit("n", 1.0, [0.0, 0.0, math.inf, 0.0])), "amount inf of node 2", "limit 'n'"),
        (lambda: chain(Limit("", 1.0, [0.0] * 4)), "a limit has no name", ""),
        (lambda: chain(launches(1), launches(2)), "two limits of 'launches'", ""),
        (lambda: chain(Limit(PEAK, 1.0, [0.0] * 4)), "two limits of 'peak_memory'", ""),
        (lambda: chain(memory=Memory({(0, 0): -1.0})), "size -1.0", "e-class 0"),
        (lambda: chain(memory=Memory({}, most=-1.0)), "most=-1.0", "limit 'peak_memory'"),
        (lambda: chain(memory=Memory({}, weight=math.inf)), "cost inf", "the weight of peak memory"),
        (lambda: chain(memory=Memory({}, {9: (0, 0)})), "alias of node or conversion 9", ""),
        (
            lambda: chain(memory=Memory({}, {1: (2, 0)})),
            "a view of e-class 2, which is",
            "alias of node or conversion 1",
        ),
    ],
)
def test_malformed_limits_are_refused(make: Callable[[], Problem], what: str, where: str) -> None:
    with pytest.raises(ExtractionError) as error:
        make()
    assert error.value.what.startswith(what)
    assert error.value.where == where


def test_a_solution_that_breaks_a_limit_does_not_pass_its_check() -> None:
    free = solve(chain(launches(math.inf)))
    with pytest.raises(ExtractionError, match="the solution needs launches 5"):
        free.check(chain(launches(4)))
    with pytest.raises(ExtractionError, match="says what it uses of"):
        free.check(chain())
    with pytest.raises(ExtractionError, match=r"claims launches 4\.0"):
        dataclasses.replace(free, amounts={"launches": 4.0}).check(chain(launches(math.inf)))
    scheduled = chain(memory=Memory(SIZES))
    solution = solve(scheduled)
    for schedule, said in (
        (((0, 0), (1, 0)), "chosen but not scheduled"),
        (((0, 0), (2, 0), (1, 0)), "scheduled before e-class 1"),
        (((0, 0), (1, 0), (1, 0)), "scheduled but not chosen, or twice"),
    ):
        with pytest.raises(ExtractionError, match=said):
            dataclasses.replace(solution, schedule=schedule).check(scheduled)


@pytest.fixture
def trade() -> Front:
    return front(chain(launches(math.inf), seconds(math.inf)), y="launches")


def test_a_search_without_an_end_leaves_time_for_the_rest_of_a_front(
    trade: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least memory of a graph of 14 nodes took all the time, and the front lacked the fastest graph."""
    searches = []

    def endless(solve: Any) -> Any:
        def solved(*given: Any, **more: Any) -> Any:
            solution = solve(*given, **{**more, "time_limit": 10.0})
            searches.append(solution)
            while len(searches) == 1 and not more["time_limit"].over:
                time.sleep(0.01)
            assert not more["time_limit"].over or len(searches) == 1
            return solution

        return solved

    for name in ("solve_limited", "solve_ilp"):
        monkeypatch.setattr(pareto, name, endless(getattr(pareto, name)))
    problem = chain(launches(math.inf), seconds(math.inf))
    points = front(problem, y="launches", time_limit=3.0).points
    assert [(p.x, p.y) for p in points] == [(p.x, p.y) for p in trade.points]


def test_the_title_of_a_front_is_one_line_however_narrow_its_columns_are(trade: Front) -> None:
    text = captured(table(dataclasses.replace(trade, is_complete=False)))
    assert text.splitlines()[0].strip() == "cost against launches (not all points)"


def test_a_front_is_a_table(trade: Front) -> None:
    from rich.console import Console

    console = Console(width=100, record=True, file=None, quiet=True)
    console.print(table(trade))
    console.quiet = False
    with console.capture() as shown:
        console.print(table(trade))
    rows = [line.replace("│", " ").split() for line in shown.get().splitlines()]
    assert ["3", "5", "3", "yes"] in rows
    assert ["5", "4", "5", "yes"] in rows
    assert rows[0] == ["cost", "against", "launches"]


def test_the_search_for_a_front_tells_of_each_point_and_of_its_share_of_the_range() -> None:
    nodes = [Node(0, (), 1.0), Node(0, (), 3.0), Node(0, (), 4.0)]
    problem = Problem(nodes, [(0, 0)], limits=[Limit("launches", float("inf"), [6, 5, 2])])
    told: list[tuple[int, float]] = []
    assert len(front(problem, y="launches", progress=lambda *news: told.append(news)).points) == 3
    assert told == [(1, 0.0), (2, 0.25), (3, 1.0)]


def test_a_front_is_a_plot(trade: Front, tmp_path: Path) -> None:
    figure = plot(trade, tmp_path / "front.svg")
    axes = figure.axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("cost", "launches")
    assert [tuple(p) for p in axes.collections[0].get_offsets()] == [(3.0, 5.0), (5.0, 4.0)]
    assert (tmp_path / "front.svg").read_text(encoding="utf-8").count("<svg") == 1


def test_a_plot_without_matplotlib_says_what_to_install(trade: Front, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    figure_class.cache_clear()
    with pytest.raises(MissingExtraError) as error:
        plot(trade)
    assert error.value.remedy == "pip install 'eqsat[plot]'"


def test_a_front_of_unknown_terms_is_refused() -> None:
    with pytest.raises(UsageError, match="no term 'speed'"):
        front(chain(launches(5)), y="speed")
    with pytest.raises(UsageError, match="no term 'peak_memory'"):
        front(chain(launches(5)))
    with pytest.raises(UsageError, match="against itself"):
        front(chain(launches(5)), x="launches", y="launches")


def test_a_front_out_of_time_says_that_it_is_not_complete() -> None:
    problem = knapsack()
    free = problem.variant(limits=[dataclasses.replace(problem.limits[0], most=math.inf)])
    found = front(free, y="launches", time_limit=0.5)
    assert not found.is_complete
    for point in found.points:
        point.solution.check(free)
    assert list(found.points) == sorted(found.points, key=lambda p: (p.x, -p.y))
