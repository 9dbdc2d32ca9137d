"""The Pareto front of two terms: the choices for which nothing better in one is not worse in the other."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from eqsat.errors import UsageError
from eqsat.extract.limited.bounded import solve_limited
from eqsat.extract.problem.limits import PEAK, Limit
from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.solution import Solution, choice_of, decode
from eqsat.extract.solvers.highs import deadline_of
from eqsat.extract.solvers.ilp import solve_ilp
from eqsat.system.deadline import Deadline
from eqsat.system.extras import require
from eqsat.system.figure import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

COST = "cost"
"""The name of a problem's own cost among the terms of a front, without the price of peak memory."""

RESOLUTION = 1e-6
"""Relative: points that differ by less in both terms are one."""

PLOTS = (".png", ".svg", ".pdf")
"""How the names of files end that a front is drawn into."""


@dataclass(frozen=True, slots=True)
class Point:
    """A choice of the front, with its amounts of the two terms.

    `is_exact` where it is proved that no choice has less of one term and no more of the other.
    """

    x: float
    y: float
    solution: Solution
    is_exact: bool


@dataclass(frozen=True, slots=True)
class Front:
    """Points by rising x and falling y; `is_complete` where it is proved that there are no others."""

    terms: tuple[str, str]
    points: tuple[Point, ...]
    is_complete: bool
    seconds: float


def front(
    problem: Problem,
    x: str = COST,
    y: str = PEAK,
    *,
    time_limit: float | Deadline = 60.0,
    seed: int = 0,
    should_stop: Callable[[], bool] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Front:
    """The Pareto front of two terms, by the epsilon-constraint method: least x for ever smaller limits on y.

    A term is "cost", which the problem minimises; a resource among its limits, finite or not; or "peak_memory" where it
    has a memory. The limits of the problem hold. When time (seconds) is up, the points found so far are returned.
    `progress(points, share)` is told of each point: how many there are, and the share, from 0 to 1, of the range of y
    that is searched; how many there will be is not known before the end.
    Raises ExtractionError where no choice is within the limits, or none was found in the time given.

    >>> from eqsat.extract import Limit, Node, Problem
    >>> nodes = [Node(0, (), 1.0), Node(0, (), 3.0), Node(0, (), 4.0)]
    >>> found = front(Problem(nodes, [(0, 0)], limits=[Limit("launches", float("inf"), [5, 2, 2])]), y="launches")
    >>> [(p.x, p.y) for p in found.points], found.is_complete
    ([(1.0, 5.0), (3.0, 2.0)], True)
    """
    _check_terms(problem, x, y)
    began = time.monotonic()
    sweep = _Sweep(problem, x, y, deadline_of(time_limit), seed, should_stop, progress)
    complete = sweep.run()
    return Front((x, y), _undominated(sweep.points), complete, time.monotonic() - began)


#: The share of the time that is left that one search of a front may take.
_SHARE = 1 / 3


class _Sweep:
    def __init__(
        self,
        problem: Problem,
        x: str,
        y: str,
        deadline: Deadline,
        seed: int,
        should_stop: Callable[[], bool] | None,
        progress: Callable[[int, float], None] | None,
    ) -> None:
        self.problem, self.x, self.y = problem, x, y
        self.deadline, self.seed, self.should_stop, self.progress = deadline, seed, should_stop, progress
        self.points: list[Point] = []

    def run(self) -> bool:
        """Add points from the least x to the least y; whether that is all of them, proved."""
        low, proved = self._least(self.y, {}, None)
        floor, ceiling = self._value(low, self.y), math.inf
        while True:
            cheapest, least = self._least(self.x, {self.y: ceiling}, low)
            best, lowest = self._least(self.y, {self.x: self._value(cheapest, self.x), self.y: ceiling}, cheapest)
            point = Point(self._value(best, self.x), self._value(best, self.y), best, least and lowest)
            self.points.append(point)
            proved = proved and point.is_exact
            self._tell(floor)
            if point.y <= floor * (1 + RESOLUTION):
                return proved
            if self._late():
                self.points.append(Point(self._value(low, self.x), floor, low, False))
                return False
            ceiling = point.y * (1 - RESOLUTION)

    def _tell(self, floor: float) -> None:
        """Tell how many points there are, and how far down the range of y the last of them is."""
        if self.progress is not None:
            most, last = self.points[0].y, self.points[-1].y
            self.progress(len(self.points), (most - last) / (most - floor) if most > floor else 1.0)

    def _late(self) -> bool:
        return self.deadline.over or (self.should_stop is not None and self.should_stop())

    def _least(self, term: str, most: Mapping[str, float], start: Solution | None) -> tuple[Solution, bool]:
        """A choice of least `term` within the limits, and whether that is proved; no more of it than `start` has."""
        task = self._task(term, most)
        # A least value that cannot be proved would leave no time for any other point.
        rest: dict[str, Any] = {
            "time_limit": self.deadline.part(_SHARE),
            "seed": self.seed,
            "should_stop": self.should_stop,
        }
        if task.is_limited:
            known = None if start is None else choice_of(task, start)
            solution = solve_limited(task, start=known, **rest)
        else:
            solution = solve_ilp(task, **rest)
        choice = choice_of(task, solution)
        whole = decode(self.problem, choice, lower_bound=0.0, status=solution.status, seconds=solution.seconds)
        return whole, solution.status == "optimal"

    def _task(self, term: str, most: Mapping[str, float]) -> Problem:
        problem, natives = self.problem, len(self.problem.nodes)
        own = problem.program.costs
        limits = [
            dataclasses.replace(limit, most=min(limit.most, most.get(limit.name, math.inf))) for limit in problem.limits
        ]
        costs = next((limit.amounts(len(problem.conversions)) for limit in limits if limit.name == term), None)
        if COST in most:
            limits.append(Limit(COST, most[COST], own[:natives], own[natives:]))
        memory = problem.memory
        if memory is not None:
            bounded = min(memory.most, most.get(PEAK, math.inf))
            memory = dataclasses.replace(memory, most=bounded, weight=1.0 if term == PEAK else 0.0)
        if costs is None:
            costs = list(own) if term == COST else [0.0] * len(own)
        return problem.variant(costs=costs, limits=limits, memory=memory)

    def _value(self, solution: Solution, term: str) -> float:
        if term != COST:
            return solution.amounts[term]
        costs = self.problem.program.costs
        return math.fsum(costs[option] for option in choice_of(self.problem, solution).values())


def _undominated(points: Sequence[Point]) -> tuple[Point, ...]:
    points_left: list[Point] = []
    for point in sorted(points, key=lambda p: (p.x, p.y)):
        if not points_left or point.y < points_left[-1].y:
            points_left.append(point)
    return tuple(points_left)


def _check_terms(problem: Problem, x: str, y: str) -> None:
    known = [COST, *(limit.name for limit in problem.limits), *([PEAK] if problem.memory is not None else [])]
    for term in (x, y):
        if term not in known:
            raise UsageError(
                f"the problem has no term {term!r}",
                expected="one of " + ", ".join(known),
                remedy="add a Limit of that name, with most=math.inf where it only has to be added up",
            )
    check_two(x, y)


def check_two(x: str, y: str) -> None:
    """UsageError for a front of a term against itself."""
    if x == y:
        raise UsageError(f"a front of {x!r} against itself", expected="two terms")


def _plain(_term: str, value: float) -> str:
    return f"{value:.6g}"


def table(found: Front, show: Callable[[str, float], str] = _plain) -> Table:
    """The front as a rich table: a row for every point, with the other amounts of its solution.

    `show` gives the text of an amount of a term.
    """
    from rich.table import Table

    x, y = found.terms
    others = [name for name in found.points[0].solution.amounts if name not in found.terms]
    title = f"{x} against {y}" + ("" if found.is_complete else " (not all points)")
    rows = Table(title=title, min_width=len(title))  # else a narrow table would break it
    for name in (x, y, *others):
        rows.add_column(name, justify="right")
    rows.add_column("proved")
    for point in found.points:
        amounts = {**point.solution.amounts, x: point.x, y: point.y}
        cells = (show(name, amounts[name]) for name in (x, y, *others))
        rows.add_row(*cells, "yes" if point.is_exact else "no")
    return rows


def check_plot(path: str | os.PathLike[str]) -> None:
    """UsageError for a file that no plot can be drawn into, MissingExtraError without matplotlib."""
    if (kind := Path(path).suffix.lower()) not in PLOTS:
        raise UsageError(
            f"no plot of the kind {kind!r}", where=os.fspath(path), expected="a name that ends in " + ", ".join(PLOTS)
        )
    require("matplotlib")


def plot(
    found: Front, path: str | os.PathLike[str] | None = None, units: Mapping[str, str] = MappingProxyType({})
) -> Figure:
    """The front as a staircase, proved points filled; written to `path` (.png, .svg, .pdf) if given.

    `units` are those of the terms, for the labels of the axes.

    Raises MissingExtraError without matplotlib, UsageError for a file of another kind.
    """
    if path is not None:
        check_plot(path)
    drawn = figure(6.0, 4.0)
    axes = drawn.add_subplot()
    xs, ys = [p.x for p in found.points], [p.y for p in found.points]
    axes.step(xs, ys, where="post", color="0.7", zorder=1)
    for exact, label in ((True, "proved"), (False, "best found")):
        chosen = [p for p in found.points if p.is_exact is exact]
        if chosen:
            face = "C0" if exact else "none"
            axes.scatter([p.x for p in chosen], [p.y for p in chosen], facecolors=face, edgecolors="C0", label=label)
    labels = [f"{term} ({units[term]})" if term in units else term for term in found.terms]
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.legend()
    if path is not None:
        drawn.savefig(path)
    return drawn
