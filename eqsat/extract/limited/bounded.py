"""Extraction within limits, by the integer program or by any extractor under prices."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from eqsat.extract.limited.infeasible import cannot, not_found
from eqsat.extract.limited.lagrange import Prices
from eqsat.extract.limited.limited import LimitedSearch
from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.program import Choice
from eqsat.extract.problem.solution import Solution, Status, choice_of, decode
from eqsat.extract.solvers.highs import Clock, deadline_of
from eqsat.system.deadline import Deadline

PRICED_RUNS = 12
"""Runs of a heuristic extractor, each under other prices."""


def solve_limited(
    problem: Problem,
    *,
    time_limit: float | Deadline = 30.0,
    relative_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    start: Choice | None = None,
) -> Solution:
    """The choice of least cost within the limits, or the best found when time, the caller or Ctrl-C ends the search.

    It costs no more than `start`, if that is a choice within the limits.

    Raises ExtractionError with the tightest bounds where no choice is within the limits, and another where the search
    ended before it found one.
    """
    began = time.monotonic()
    clock = Clock(deadline_of(time_limit), should_stop)
    with clock.hearing_interrupts():
        search = LimitedSearch(problem, clock, relative_gap, seed)
        try:
            search.watch(progress)
            if start is not None:
                search.offer(start)
            search.run()
        except KeyboardInterrupt:
            clock.interrupted = True
    if search.choice is None:
        if search.impossible:
            raise cannot(problem, seed, clock)
        raise not_found(problem, time.monotonic() - began)
    status: Status = "optimal" if search.done() else "interrupted" if clock.interrupted else "time_limit"
    return decode(problem, search.choice, lower_bound=search.bound(), status=status, seconds=time.monotonic() - began)


def solve_priced(
    extractor: Callable[..., Solution],
    problem: Problem,
    *,
    time_limit: float | Deadline,
    relative_gap: float,
    seed: int,
    progress: Callable[[float, float], None] | None,
    should_stop: Callable[[], bool] | None,
) -> Solution:
    """The best choice within the limits that an extractor without limits finds under changing prices for them.

    Raises ExtractionError where all that it found break a limit, which does not mean that no choice keeps them.
    """
    began = time.monotonic()
    clock = Clock(deadline_of(time_limit), should_stop)
    search = LimitedSearch(problem, clock, relative_gap, seed)
    search.watch(progress)
    pressing = None if search.live is None else [search.live.sizes[goal] for goal in search.program.provides]
    prices = Prices(search.program, search.demands, pressing)
    rest: dict[str, Any] = {"relative_gap": relative_gap, "seed": seed, "progress": None, "should_stop": should_stop}
    bound = 0.0
    for run in range(PRICED_RUNS):
        priced = problem.variant(costs=prices.weights() if run else None)
        found = extractor(priced, time_limit=clock.deadline.part(1 / (PRICED_RUNS - run)), **rest)
        bound = bound if run else found.lower_bound + search.weight * search.least_peak
        choice = choice_of(priced, found)
        pressed = search.offer(choice)
        broken = [demand.broken(choice) for demand in search.demands]
        if clock.stop() or (not run and not any(broken) and not pressed):
            break
        prices.change(broken, bool(pressed))
    seconds = time.monotonic() - began
    if search.choice is None:
        raise not_found(problem, seconds, "this extractor found no choice within the limits")
    return decode(problem, search.choice, lower_bound=min(bound, math.inf), status="heuristic", seconds=seconds)
