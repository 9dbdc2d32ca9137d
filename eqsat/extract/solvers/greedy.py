"""Greedy extraction: bottom-up by tree cost, and bottom-up by DAG cost with shared parts counted once.

Neither sees what pays only if several goals choose it: each slice of a merged product costs more than a product of its
own. So the second is also made under costs divided by a power of the number of goals that could read what they pay for,
and the choice that costs least is kept.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
import time
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.program import Choice, ExtractionProgram, cheapest_trees, closure, total
from eqsat.extract.problem.solution import Solution, decode
from eqsat.extract.solvers.bounds import tree_bound
from eqsat.system.deadline import check

#: The powers of the number of readers by which costs are divided.
_SHARED = (0.5, 0.75, 1.0)


def tree_greedy(problem: Problem) -> Solution:
    """The choice of least tree cost, which counts a shared operand once for every e-node that uses it."""
    start = time.monotonic()
    choice, _ = cheapest_trees(problem.program, problem.program.costs)
    return _finish(problem, choice, start)


def dag_greedy(problem: Problem) -> Solution:
    """Like tree_greedy, but an e-node costs the union of its operands' choices."""
    start = time.monotonic()
    return _finish(problem, cheapest_dags(problem.program), start)


def greedy(problem: Problem) -> Solution:
    """The cheapest of tree_greedy, dag_greedy, and the latter under costs that readers share."""
    start = time.monotonic()
    return _finish(problem, shared_greedy(problem.program), start)


def best_greedy(program: ExtractionProgram, weights: list[float] | None = None) -> Choice:
    """The cheaper of the two greedy choices, pruned to the options that the roots use.

    `weights` steer the choices instead of the costs.
    """
    guide = program if weights is None else dataclasses.replace(program, costs=weights)
    return _cheapest(program, (cheapest_trees(guide, guide.costs)[0], cheapest_dags(guide)))


def shared_greedy(program: ExtractionProgram) -> Choice:
    """The cheapest of the greedy choices, and of those by DAG cost under costs that readers share, pruned likewise."""
    shared = (cheapest_dags(dataclasses.replace(program, costs=costs)) for costs in _shared_costs(program))
    return _cheapest(program, (best_greedy(program), *shared))


def _cheapest(program: ExtractionProgram, choices: Iterable[Choice]) -> Choice:
    """The cheapest of some choices, pruned to the options that the roots use."""
    used = [closure(program, choice, program.roots) for choice in choices]
    return min(used, key=lambda choice: total(program, choice))


def _shared_costs(program: ExtractionProgram) -> Iterator[list[float]]:
    """Costs divided among the goals that could read what they pay for, by powers of the number of these."""
    provides, readers = program.provides, [len({program.provides[o] for o in users}) for users in program.users()]
    if max(readers, default=0) < 2:
        return
    for power in _SHARED:
        share = [max(count, 1) ** -power for count in readers]
        yield [cost * share[goal] for cost, goal in zip(program.costs, provides, strict=True)]


def _finish(problem: Problem, choice: Choice, start: float) -> Solution:
    bound = tree_bound(problem.program)
    return decode(problem, choice, lower_bound=bound, status="heuristic", seconds=time.monotonic() - start)


def cheapest_dags(program: ExtractionProgram) -> Choice:
    """For every derivable goal the option whose union of operand choices costs least, settled cheapest first."""
    return GreedyDags(program).choice


class GreedyDags:
    """The `choice` of cheapest_dags, and what goals cost together under it.

    The goals a choice uses are bits of an integer, numbered in the order they were settled, so that early sets are
    small. Acyclic for the reason given at cheapest_trees.
    """

    def __init__(self, program: ExtractionProgram) -> None:
        self.choice: Choice = {}
        self._used = [0] * program.goals
        self._value = [0.0] * program.goals
        self._prices = np.zeros(program.goals + 8)
        waiting = [len(needs) for needs in program.needs]
        users = program.users()
        heap = [(program.costs[option], option, 0) for option, count in enumerate(waiting) if count == 0]
        heapq.heapify(heap)
        while heap:
            cost, option, below = heapq.heappop(heap)
            goal = program.provides[option]
            if goal in self.choice:
                continue
            rank = len(self.choice)
            check(1 + rank // 4096)
            self._prices[rank] = program.costs[option]
            self.choice[goal], self._value[goal], self._used[goal] = option, cost, below | (1 << rank)
            for user in users[goal]:
                waiting[user] -= 1
                if waiting[user] == 0 and program.provides[user] not in self.choice:
                    union, price = _union(program.needs[user], self._used, self._value, self._prices)
                    heapq.heappush(heap, (program.costs[user] + price, user, union))

    def together(self, goals: Sequence[int]) -> float:
        """The cost of the choices for some goals, with what they share once; infinite if one has none."""
        if any(goal not in self.choice for goal in goals):
            return math.inf
        return _union(goals, self._used, self._value, self._prices)[1] if goals else 0.0


def _union(
    needs: Sequence[int], used: list[int], value: list[float], prices: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[int, float]:
    """The goals that any of `needs` uses, and their cost together."""
    dearest = max(needs, key=lambda need: (value[need], need))
    union, price = used[dearest], value[dearest]
    for need in needs:
        extra = used[need] & ~union
        if extra:
            price += _price(extra, prices)
            union |= extra
    return union, price


def _price(bits: int, prices: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    if bits.bit_count() <= 8:
        price = 0.0
        while bits:
            low = bits & -bits
            price += float(prices[low.bit_length() - 1])
            bits ^= low
        return price
    size = (bits.bit_length() + 7) // 8
    mask = np.unpackbits(np.frombuffer(bits.to_bytes(size, "little"), dtype=np.uint8), bitorder="little")
    return float(prices[: len(mask)] @ mask)
