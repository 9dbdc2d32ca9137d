"""Dominance among the options of one goal: which of them have a cheaper stand-in, whatever else is chosen."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from eqsat.extract.problem.program import ExtractionProgram, cheapest_trees, components
from eqsat.system.deadline import spend

MOST_PAIRS = 200
"""An option is compared with at most this many cheaper ones that need something besides, and per operand."""


class Dominance:
    """Finds dominated options of a program.

    An option dominates another of the same goal if it costs no more together with the cheapest trees of the goals that
    it needs besides; none of those may be able to reach the goal, or the stand-in could close a cycle.
    """

    def __init__(self, program: ExtractionProgram) -> None:
        self.program = program
        self.needs = [frozenset(needs) for needs in program.needs]
        self.component = components([{n for o in members for n in program.needs[o]} for members in program.by_goal])
        _, self.trees = cheapest_trees(program, program.costs)

    def dominated(self, goals: Iterable[int], stop: Callable[[], bool]) -> Iterator[int]:
        """The dominated options of `goals`; fewer where `stop` says so."""
        for goal in goals:
            if stop():
                return
            spend(1 + len(self.program.by_goal[goal]))
            if len(self.program.by_goal[goal]) > 1:
                yield from self._among(self.program.by_goal[goal])

    def _among(self, members: Sequence[int]) -> Iterator[int]:
        costs = self.program.costs
        alike: dict[int, list[int]] = defaultdict(list)  # options kept, by their first operand
        dearer: list[tuple[float, int]] = []  # options kept, by what they cost with their cheapest operand's tree
        for option in sorted(members, key=lambda o: (costs[o], len(self.needs[o]), o)):
            if self._contains_one(option, alike) or self._pays_for_one(option, dearer):
                yield option
                continue
            needs = self.program.needs[option]
            alike[needs[0] if needs else -1].append(option)
            if needs:
                entry = (costs[option] + min(self.trees[need] for need in needs), option)
                dearer.insert(bisect_right(dearer, entry), entry)

    def _contains_one(self, option: int, alike: dict[int, list[int]]) -> bool:
        """Return whether the needs of some cheaper option are among those of this one."""
        if -1 in alike:
            return True
        mine = self.needs[option]
        for need in self.program.needs[option]:
            if any(self.needs[other] <= mine for other in alike.get(need, ())[:MOST_PAIRS]):
                return True
        return False

    def _pays_for_one(self, option: int, dearer: list[tuple[float, int]]) -> bool:
        """Return whether some cheaper option costs no more even with its additional needs."""
        cost, mine = self.program.costs[option], self.needs[option]
        place = self.component[self.program.provides[option]]
        for least, other in dearer[:MOST_PAIRS]:
            if least > cost:
                return False
            missing = self.needs[other] - mine
            if self.program.costs[other] + sum(self.trees[need] for need in sorted(missing)) <= cost and all(
                self.component[need] != place for need in missing
            ):
                return True
        return False
