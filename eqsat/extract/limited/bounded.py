"""Extraction within limits, by the integer program or by any extractor under prices, and the tightest limits."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from eqsat.errors import ExtractionError
from eqsat.extract.limited.limited import LimitedSearch
from eqsat.extract.problem.limits import PEAK, exceeds, written
from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.program import Choice
from eqsat.extract.problem.solution import Solution, Status, choice_of, decode
from eqsat.extract.solvers.highs import Clock, deadline_of
from eqsat.extract.solvers.ilp import solve_ilp
from eqsat.system.deadline import Deadline

PRICED_RUNS = 12
"""Runs of a heuristic extractor, each under other prices."""

LEAST_SECONDS = 2.0
"""Time for finding the tightest bounds, even if the search has used up its own."""


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
            raise cannot(problem, seed, clock, time.monotonic() - began)
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
    prices = search.new_prices()
    rest: dict[str, Any] = {"relative_gap": relative_gap, "seed": seed, "progress": None, "should_stop": should_stop}
    bound = 0.0
    for run in range(PRICED_RUNS):
        priced = problem.variant(costs=prices.weights() if run else None)
        solution = extractor(priced, time_limit=clock.deadline.part(1 / (PRICED_RUNS - run)), **rest)
        bound = bound if run else solution.lower_bound + search.weight * search.least_peak
        choice = choice_of(priced, solution)
        pressed = search.offer(choice)
        broken = [demand.broken(choice) for demand in search.demands]
        if clock.stop() or (not run and not any(broken) and not pressed):
            break
        prices.change(broken, bool(pressed))
    seconds = time.monotonic() - began
    if search.choice is None:
        raise not_found(problem, seconds, "this extractor found no choice within the limits")
    return decode(problem, search.choice, lower_bound=min(bound, math.inf), status="heuristic", seconds=seconds)


def finite(problem: Problem) -> dict[str, float]:
    """The limits of a problem that are finite, by name."""
    limits = {limit.name: limit.most for limit in problem.limits if limit.most < math.inf}
    if problem.memory is not None and problem.memory.most < math.inf:
        limits[PEAK] = problem.memory.most
    return limits


def reduced_to(problem: Problem, names: Sequence[str], least: str = "") -> Problem:
    """The problem with these limits only, and the amount of `least` for its cost; nothing costs anything without it."""
    count = len(problem.conversions)
    costs = [0.0] * (len(problem.nodes) + count)
    for limit in problem.limits:
        if limit.name == least:
            costs = limit.amounts(count)
    limits = [limit for limit in problem.limits if limit.name in names]
    memory = problem.memory
    if memory is not None:
        bounded = memory.most if PEAK in names else math.inf
        memory = dataclasses.replace(memory, most=bounded, weight=1.0 if least == PEAK else 0.0)
        memory = memory if memory.matters else None
    return problem.variant(costs=costs, limits=limits, memory=memory)


def least_amount(problem: Problem, name: str, others: Sequence[str], clock: Clock, seed: int) -> tuple[float, bool]:
    """A bound on the least of a resource with the `others` kept, and whether it is reached; infinite for no choice."""
    only = reduced_to(problem, others, name)
    if not only.is_limited:
        solution = solve_ilp(only, time_limit=clock.deadline, seed=seed, should_stop=clock.should_stop)
        return (solution.cost, True) if solution.status == "optimal" else (solution.lower_bound, False)
    search = LimitedSearch(only, clock, seed=seed)
    search.run()
    if search.impossible:
        return math.inf, True
    return (search.cost, True) if search.choice is not None and search.done() else (search.bound(), False)


def cannot(problem: Problem, seed: int, clock: Clock, spent: float = math.inf) -> ExtractionError:
    """The error for limits that are proved impossible, with the tightest bounds that can be found.

    Finding them takes the time left, but no longer than the proof did, which took the seconds `spent`.
    """
    left = max(min(clock.left(), spent), LEAST_SECONDS)
    least = clock.deadline if clock.deadline.counts_steps else Deadline(left)
    clock = Clock(least, clock.should_stop)
    limits = finite(problem)
    alone = {name: least_amount(problem, name, (), clock, seed) for name in limits}
    over = {name: alone[name] for name, most in limits.items() if exceeds(alone[name][0], most)}
    if over:
        needs = ", ".join(f"{written(name, least)} of {name}" for name, (least, _) in over.items())
        if len(over) == 1:
            needs = ", ".join(written(name, least) for name, (least, _) in over.items())
        return ExtractionError(
            f"{_said(limits, list(over))} cannot be met: every choice needs at least {needs}",
            expected="limits that some choice keeps",
            remedy=" and ".join(
                f"raise {name} to {written(name, least)}"
                + ("" if reached else " or more, the proof of the least was cut short")
                for name, (least, reached) in over.items()
            ),
        )
    names = _irreducible(problem, list(limits), clock, seed)
    if len(names) == 1:  # proved to be impossible, but the proof of the least that is possible was cut short
        (name,) = names
        return ExtractionError(
            f"{_said(limits, names)} cannot be met: every choice needs more",
            expected="limits that some choice keeps",
            remedy=f"raise {name}; how far was not found out in the time there was",
        )
    together = {
        name: least_amount(problem, name, [other for other in names if other != name], clock, seed) for name in names
    }
    bounds = [
        f"{name} of at least {written(name, least)} with {_said(limits, [other for other in names if other != name])}"
        for name, (least, _) in together.items()
        if math.isfinite(least)
    ]
    return ExtractionError(
        f"{_said(limits, names)} cannot be met together",
        expected=", or ".join(bounds),
        remedy="raise one of these limits",
    )


def _irreducible(problem: Problem, names: list[str], clock: Clock, seed: int) -> list[str]:
    """Limits that cannot be met together, as few as leaving one out after the other gives."""
    for name in list(names):
        fewer = [other for other in names if other != name]
        search = LimitedSearch(reduced_to(problem, fewer), clock, seed=seed)
        if fewer and search.problem.is_limited:
            search.find()
        if search.impossible:
            names = fewer
    return names


def not_found(problem: Problem, seconds: float, what: str = "no choice within the limits was found") -> ExtractionError:
    """The error for a search that ended before it found a choice or proved that there is none."""
    limits = finite(problem)
    return ExtractionError(
        f"{what} in {seconds:.1f} s: {_said(limits, list(limits))}",
        expected="limits that some choice keeps; it is not proved that none does",
        remedy="raise time_limit, or a limit",
    )


def _said(limits: dict[str, float], names: Sequence[str]) -> str:
    return " and ".join(f"{name} <= {written(name, limits[name])}" for name in names)
