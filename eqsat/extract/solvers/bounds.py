"""Lower bounds without cycles: critical paths, added up by dual ascent, and the options that they rule out.

The dearest-operand bound of an option is its cost plus the largest bound of its operands; of a goal, the least over its
options. Computed in settling order it never uses a goal to support itself, so zero-cost cycles do not hurt it. If costs
are split, c = c1 + c2 + ..., the bounds under each part add up. Dual ascent takes from the costs only the part that the
current bound needs, adds that bound to the total, and repeats on the rest (compare Wong's dual ascent for Steiner
trees).
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat.extract.problem.program import INFINITY, ExtractionProgram, path_bounds
from eqsat.system.deadline import spend

MOST_SUPPORTS = 2000
"""Support sets kept, to become cuts."""


@dataclass(slots=True)
class Ascent:
    """`bound` holds for every acyclic choice, and one that uses option o costs at least bound + reduced[o].

    Every acyclic choice uses an option of each set in `supports`.
    """

    bound: float
    reduced: list[float]
    supports: list[tuple[int, ...]]


def tree_bound(program: ExtractionProgram) -> float:
    """The dearest root's bound."""
    bounds = path_bounds(program, program.users(), program.costs)
    return max(bounds[root] for root in program.roots)


def dual_ascent(
    program: ExtractionProgram,
    costs: Sequence[float] | None = None,
    rounds: int = 200,
    stop: Callable[[], bool] = lambda: False,
) -> Ascent:
    """Add critical paths until nothing is left to add, `rounds` are done, or `stop()`."""
    reduced = list(program.costs if costs is None else costs)
    users = program.users()
    bound = 0.0
    supports: dict[tuple[int, ...], None] = {}
    smallest = 1e-12 * max(reduced, default=0.0)
    for _ in range(rounds):
        if stop():
            break
        spend(len(reduced))
        bounds = path_bounds(program, users, reduced)
        root = max(program.roots, key=bounds.__getitem__, default=-1)
        if root < 0 or bounds[root] <= smallest:
            break
        bound += bounds[root]
        demand = _charge(program, root, bounds, reduced)
        if len(supports) < MOST_SUPPORTS:
            supports.update(dict.fromkeys(_supports(program, demand, smallest)))
    return Ascent(bound, reduced, list(supports))


def _charge(program: ExtractionProgram, root: int, bounds: list[float], reduced: list[float]) -> dict[int, float]:
    """Take from `reduced` a part under which the bound of `root` does not change; return every goal's demand.

    Every option of a goal that has to reach a demand pays what it can and passes the rest to one operand: one that
    is asked for as much already, or else the one with the largest bound.
    """
    demand: dict[int, float] = {root: bounds[root]}
    heap = [(-bounds[root], root)]
    done: set[int] = set()
    while heap:
        negative, goal = heapq.heappop(heap)
        if goal in done:
            continue
        done.add(goal)
        asked = -negative
        for option in program.by_goal[goal]:
            needs = program.needs[option]
            best = max(needs, key=bounds.__getitem__, default=-1)
            if needs and bounds[best] == INFINITY:
                continue
            rest = max(asked - reduced[option], 0.0)
            covered = any(demand.get(need, -1.0) >= rest for need in needs)
            reduced[option] = max(reduced[option] - asked, 0.0)
            if needs and rest > 0 and not covered:
                demand[best] = max(demand.get(best, 0.0), rest)
                heapq.heappush(heap, (-demand[best], best))
    return demand


def _supports(program: ExtractionProgram, demand: dict[int, float], smallest: float) -> list[tuple[int, ...]]:
    """For every level, the options that lift the goals at or above it from goals below it."""
    levels = sorted({value for value in demand.values() if value > smallest})
    members: list[list[int]] = [[] for _ in levels]
    for goal, top in demand.items():
        for option in program.by_goal[goal]:
            below = max((demand.get(need, 0.0) for need in program.needs[option]), default=0.0)
            for index in range(bisect_right(levels, below), bisect_right(levels, top)):
                members[index].append(option)
    return [tuple(sorted(level)) for level in members]


def ruled_out(program: ExtractionProgram, ascent: Ascent, cost: float) -> list[int]:
    """Options that only occur in choices of at least `cost`, by the reduced cost of a path through them.

    A choice with option o has a path from a root down to o and a dearest path below o; they are disjoint.
    """
    users = program.users()
    below = path_bounds(program, users, ascent.reduced)
    above = [INFINITY] * program.goals
    heap = [(0.0, root) for root in program.roots]
    while heap:
        distance, goal = heapq.heappop(heap)
        if distance >= above[goal]:
            continue
        above[goal] = distance
        for option in program.by_goal[goal]:
            step = distance + ascent.reduced[option]
            for need in program.needs[option]:
                if step < above[need]:
                    heapq.heappush(heap, (step, need))
    room = cost - ascent.bound
    out = []
    for option, goal in enumerate(program.provides):
        deepest = max((below[need] for need in program.needs[option]), default=0.0)
        if above[goal] + ascent.reduced[option] + deepest >= room:
            out.append(option)
    return out
