"""Lower bounds that know cycles are forbidden: critical paths, added up by dual ascent, and what they rule out.

The dearest-operand bound of an option is its cost plus the largest bound of its operands; of a goal, the least over its
options. Computed in settling order it never uses a goal to support itself, so zero-cost cycles do not hurt it. If costs
are split, c = c1 + c2 + ..., the bounds under each part add up. Dual ascent takes from the costs only what the current
bound needs, adds that bound to the total, and repeats on what is left (compare Wong's dual ascent for Steiner trees).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.extract.program import Program

INFINITY = float("inf")


@dataclass(slots=True)
class Ascent:
    """`bound` holds for every acyclic choice, and one that uses option o costs at least bound + reduced[o]."""

    bound: float
    reduced: list[float]


def path_bounds(program: Program, users: list[list[int]], costs: Sequence[float]) -> list[float]:
    """For every goal the dearest-operand bound; infinite for goals that cannot be provided."""
    waiting = [len(needs) for needs in program.needs]
    bounds = [INFINITY] * program.goals
    provides = program.provides
    heap = [(costs[option], option) for option, count in enumerate(waiting) if count == 0]
    heapq.heapify(heap)
    while heap:
        bound, option = heapq.heappop(heap)
        goal = provides[option]
        if bounds[goal] != INFINITY:
            continue
        bounds[goal] = bound
        for user in users[goal]:
            waiting[user] -= 1
            if waiting[user] == 0 and bounds[provides[user]] == INFINITY:
                heapq.heappush(heap, (costs[user] + bound, user))
    return bounds


def tree_bound(program: Program) -> float:
    """The dearest root's bound."""
    bounds = path_bounds(program, program.users(), program.costs)
    return max(bounds[root] for root in program.roots)


def dual_ascent(program: Program, rounds: int = 200) -> Ascent:
    """Adds critical paths until nothing is left to add, or `rounds` are done."""
    reduced = list(program.costs)
    users = program.users()
    bound = 0.0
    smallest = 1e-12 * max(reduced, default=0.0)
    for _ in range(rounds):
        bounds = path_bounds(program, users, reduced)
        gained = 0.0
        for root in sorted(program.roots, key=lambda goal: -bounds[goal])[:1]:
            gained = bounds[root]
            if gained > smallest:
                _charge(program, root, bounds, reduced)
        if gained <= smallest:
            break
        bound += gained
    return Ascent(bound, reduced)


def _charge(program: Program, root: int, bounds: list[float], reduced: list[float]) -> None:
    """Takes from `reduced` a part under which the bound of `root` stays what it is, leaving what it does not need.

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
            best = max(needs, key=bounds.__getitem__) if needs else -1
            have = bounds[best] if needs else 0.0
            if have == INFINITY:
                continue
            rest = max(asked - reduced[option], 0.0)
            covered = any(demand.get(need, -1.0) >= rest for need in needs)
            reduced[option] = max(reduced[option] - asked, 0.0)
            if rest > 0 and not covered:
                demand[best] = max(demand.get(best, 0.0), rest)
                heapq.heappush(heap, (-demand[best], best))


def ruled_out(program: Program, ascent: Ascent, cost: float) -> list[int]:
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
