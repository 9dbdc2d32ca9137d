"""Landmarks: goals that every choice provides, whatever options it takes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from eqsat.extract.problem.program import ExtractionProgram

MOST_STEPS = 40
"""Visits per option after which the search gives up; cycles are rarely so entangled."""


def landmarks(program: ExtractionProgram, candidates: Iterable[int]) -> list[int]:
    """Those of `candidates` that every acyclic choice provides, sorted; none where finding out takes too long.

    A goal has itself for a landmark and those that all its options share; an option has those of the goals it needs.
    The greatest such sets are found from above, as bits of an integer.
    """
    wanted = sorted(set(candidates))
    own = [0] * program.goals
    for place, goal in enumerate(wanted):
        own[goal] = 1 << place
    below = propagated(program, own)
    if below is None:
        return []
    shared = 0
    for root in program.roots:
        shared |= below[root] or 0
    return [goal for goal in wanted if own[goal] & shared]


def propagated(program: ExtractionProgram, own: list[int]) -> list[int | None] | None:
    """For every goal its landmarks, None where no choice provides it; None instead of the list after too many steps.

    `own` has the bits of every goal itself.
    """
    needs, provides, users = program.needs, program.provides, program.users()
    below: list[int | None] = [None] * program.goals
    waiting = [len(n) for n in needs]
    queue = deque(option for option, count in enumerate(waiting) if count == 0)
    queued = [count == 0 for count in waiting]
    steps = MOST_STEPS * len(needs)
    while queue:
        steps -= 1
        if steps < 0:
            return None
        option = queue.popleft()
        queued[option] = False
        goal = provides[option]
        mine, first = own[goal], below[goal] is None
        for need in needs[option]:
            mine |= below[need] or 0
        before = below[goal]
        if before is not None:
            mine &= before
            if mine == before:
                continue
        below[goal] = mine
        for user in users[goal]:
            if first:
                waiting[user] -= 1
            if waiting[user] == 0 and not queued[user]:
                queued[user] = True
                queue.append(user)
    return below
