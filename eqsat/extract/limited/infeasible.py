"""Why no choice is within the limits: the least of every resource, alone or with the other limits kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from eqsat.errors import ExtractionError
from eqsat.extract.limited.limited import LimitedSearch
from eqsat.extract.problem.limits import PEAK, Memory, exceeds, written
from eqsat.extract.problem.problem import Problem
from eqsat.extract.solvers.highs import Clock
from eqsat.extract.solvers.ilp import solve_ilp
from eqsat.system.deadline import Deadline

LEAST_SECONDS = 2.0
"""Time for finding the tightest bounds, even if the search has used up its own."""


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
    return problem.variant(costs=costs, limits=limits, memory=memory if _used(memory) else None)


def _used(memory: Memory | None) -> bool:
    return memory is not None and memory.matters


def least_amount(problem: Problem, name: str, others: Sequence[str], clock: Clock, seed: int) -> tuple[float, bool]:
    """A bound on the least of a resource with the `others` kept, and whether it is reached; infinite for no choice."""
    only = reduced_to(problem, others, name)
    if not only.is_limited:
        found = solve_ilp(only, time_limit=clock.deadline, seed=seed, should_stop=clock.should_stop)
        return (found.cost, True) if found.status == "optimal" else (found.lower_bound, False)
    search = LimitedSearch(only, clock, seed=seed)
    search.run()
    if search.impossible:
        return math.inf, True
    return (search.cost, True) if search.choice is not None and search.done() else (search.bound(), False)


def cannot(problem: Problem, seed: int, clock: Clock) -> ExtractionError:
    """The error for limits that are proved impossible, with the tightest bounds that can be found in the time left."""
    least = clock.deadline if clock.deadline.counts_steps else Deadline(max(clock.left(), LEAST_SECONDS))
    clock = Clock(least, clock.should_stop)
    limits = finite(problem)
    alone = {name: least_amount(problem, name, (), clock, seed) for name in limits}
    over = {name: alone[name] for name, most in limits.items() if exceeds(alone[name][0], most)}
    if over:
        needs = ", ".join(f"{written(least)} of {name}" for name, (least, _) in over.items())
        if len(over) == 1:
            needs = written(next(iter(over.values()))[0])
        return ExtractionError(
            f"{_said(limits, list(over))} cannot be met: every choice needs at least {needs}",
            expected="limits that some choice keeps",
            remedy=" and ".join(
                f"raise {name} to {written(least)}"
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
        f"{name} of at least {written(least)} with {_said(limits, [other for other in names if other != name])}"
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
    return " and ".join(f"{name} <= {written(limits[name])}" for name in names)
