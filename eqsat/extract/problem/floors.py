"""Memory that an option needs in every choice and every order: its working set, and what must wait meanwhile."""

from __future__ import annotations

import functools
import heapq
import math
import operator
from collections.abc import Mapping, Sequence

from eqsat.extract.problem.landmarks import propagated
from eqsat.extract.problem.program import ExtractionProgram, connected, path_bounds

MOST_WAITING = 1000
"""Options of which it is found out what waits while they run."""


class MemoryFloors:
    """Lower bounds on live bytes, given the size of every goal's value and the goals whose storage options share.

    A value lies in the storage of the last goal of a chain of views, which depends on the choice: it takes no less than
    the smallest value that views lead to, and values that no views connect never lie in the same storage.
    """

    def __init__(self, program: ExtractionProgram, sizes: Sequence[float], aliases: Mapping[int, int]) -> None:
        self.program, self.sizes, self.aliases = program, sizes, aliases
        provides = program.provides
        self.users = program.users()
        self.family = connected(program.goals, [(provides[o], operand) for o, operand in aliases.items()])
        self.least = self._least()
        self.working = [self._working(option) for option in range(len(provides))]
        self.needed = self._needed()

    def floor(self) -> float:
        """Memory that every choice needs: the results, and the least largest need of the options that deliver them."""
        return max(self._apart(self.program.roots), self._bottleneck(self.needed))

    def _bottleneck(self, needed: Sequence[float]) -> float:
        program = self.program
        bounds = path_bounds(program, self.users, needed, max)
        return max((bounds[root] for root in program.roots), default=0.0)

    def _least(self) -> list[float]:
        """The least bytes of the storage that the value of each goal lies in."""
        least = [
            math.inf if all(o in self.aliases for o in options) else size
            for options, size in zip(self.program.by_goal, self.sizes, strict=True)
        ]
        changed = True
        while changed:
            changed = False
            for option, operand in self.aliases.items():
                goal = self.program.provides[option]
                if least[operand] < least[goal]:
                    least[goal], changed = least[operand], True
        return [size if size < math.inf else 0.0 for size in least]

    def _apart(self, goals: Sequence[int]) -> float:
        """The least bytes of some values together: one of each family."""
        largest: dict[int, float] = {}
        for goal in goals:
            family = self.family[goal]
            largest[family] = max(largest.get(family, 0.0), self.least[goal])
        return math.fsum(largest.values())

    def _working(self, option: int) -> float:
        """Operands and result: a result that is no view lies in a storage of its own."""
        result = 0.0 if option in self.aliases else self.sizes[self.program.provides[option]]
        return result + self._apart(self.program.needs[option])

    def _needed(self) -> list[float]:
        """The working set of every option, with what must wait while it runs where the bottleneck is that option.

        Any other option may need more than this says, but the bottleneck would be the same.
        """
        below = propagated(self.program, [1 << goal for goal in range(self.program.goals)])
        needed = list(self.working)
        known: set[int] = set()
        while below is not None and len(known) < MOST_WAITING:
            least = self._bottleneck(needed)
            fresh = [o for o, size in enumerate(needed) if size == least and self.program.needs[o] and o not in known]
            if not fresh or not least:
                break
            for option in fresh[: MOST_WAITING - len(known)]:
                known.add(option)
                needed[option] += self._waiting(option, below)
        return needed

    def _waiting(self, option: int, below: Sequence[int | None]) -> float:
        """The bytes of one value outside the working set that is live while `option` runs, in every choice that has it.

        On the way from its goal to a root, every option waits for its other operands.
        """
        program = self.program
        goal = program.provides[option]
        taken = {self.family[other] for other in (goal, *program.needs[option])}
        sizes = [0.0 if f in taken else size for f, size in zip(self.family, self.least, strict=True)]
        waits = self._waits(sizes, goal, functools.reduce(operator.or_, (below[n] or 0 for n in program.needs[option])))
        roots = set(program.roots)
        distance = {goal: 0.0}
        heap = [(0.0, goal)]
        while heap:
            largest, other = heapq.heappop(heap)
            if other in roots:
                return max([largest, *(waits[root] for root in program.roots if root != other)])
            if largest > distance[other]:
                continue
            for user in self.users[other]:
                mine = max([largest, *(waits[need] for need in program.needs[user] if need != other)])
                above = program.provides[user]
                if mine < distance.get(above, math.inf):
                    distance[above] = mine
                    heapq.heappush(heap, (mine, above))
        return 0.0

    def _waits(self, sizes: Sequence[float], goal: int, earlier: int) -> list[float]:
        """For every goal, bytes of one value that is live while `goal` is made, if the goal is needed after that.

        Its value is there already, and waits, or it is made later: then what it is made from waits. `earlier` has the
        goals that are there in any case, as bits; `sizes` are the bytes that count.
        """
        program = self.program
        bounds = [math.inf] * program.goals
        missing = [len(needs) for needs in program.needs]
        heap = [(0.0 if g == goal else size, g) for g, size in enumerate(sizes) if program.by_goal[g]]
        heapq.heapify(heap)
        while heap:
            bound, other = heapq.heappop(heap)
            if bounds[other] < math.inf:
                continue
            bounds[other] = bound
            for user in self.users[other]:
                missing[user] -= 1
                above = program.provides[user]
                if not missing[user] and bound < sizes[above] and not earlier >> above & 1:
                    heapq.heappush(heap, (bound, above))
        return bounds
