"""Peak memory of the choices of a problem: schedules, lower bounds, and small parts that already need too much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from eqsat.extract.problem.floors import MemoryFloors
from eqsat.extract.problem.limits import Memory
from eqsat.extract.problem.program import Choice, ExtractionProgram
from eqsat.extract.problem.schedule import (
    MOST_MOVES,
    Dataflow,
    Schedule,
    always_exceeds,
    around,
    least_peak,
    live_bytes,
    peaks,
    simulate,
)

PROOF_MOVES = 5_000
"""Moves looked at to prove that a part of a choice needs too much; few, as many parts are tried."""

WINDOW_MOVES = 200
"""Moves looked at for one part near a peak: what needs too much there mostly does so in every order at once."""

WINDOWS = (2, 6, 18)
"""Steps on each side of a peak among which a part that needs too much is looked for, one after the other."""

MOST_PARTS = 100
"""Parts found in one choice."""

Part = dict[int, frozenset[int]]
"""Some goals of a choice, each with some of the goals that its option needs."""


class Liveness:
    """Liveness of values while a program's choices run; goals and options are numbered as in the program."""

    def __init__(self, program: ExtractionProgram, goals: Sequence[tuple[int, int]], memory: Memory) -> None:
        number = {goal: index for index, goal in enumerate(goals)}
        self.program = program
        self.sizes = [float(memory.sizes.get(goal, 0.0)) for goal in goals]
        self.aliases = {option: number[operand] for option, operand in memory.aliases.items()}
        self.own = [not any(o in self.aliases for o in options) for options in program.by_goal]
        self.given = [bool(options) and not any(program.needs[o] for o in options) for options in program.by_goal]

    def schedule(self, choice: Choice, moves: int = MOST_MOVES) -> tuple[Schedule, tuple[int, ...]]:
        """The best order found for a closed choice, and its goals in that order, those present from the start first."""
        flow = self.flow(choice)
        found = least_peak(flow, moves)
        first = [goal for goal in sorted(choice) if not self.program.needs[choice[goal]]]
        return found, (*first, *(flow.owners[step] for step in found.order))

    def peak(self, choice: Choice, order: Sequence[int]) -> float:
        """The peak of a closed choice whose goals are made in this order."""
        flow = self.flow(choice)
        step = {goal: index for index, goal in enumerate(flow.owners)}
        return simulate(flow, [step[goal] for goal in order if goal in step])

    def flow(self, choice: Mapping[int, int], part: Part | None = None) -> Dataflow:
        """The dataflow of a closed choice, or of a part of it with only the facts of every choice of that part."""
        members = choice if part is None else {goal: choice[goal] for goal in part}
        needs = {g: self.program.needs[o] if part is None else tuple(sorted(part[g])) for g, o in members.items()}
        owners = [goal for goal, option in sorted(members.items()) if self.program.needs[option]]
        step = {goal: index for index, goal in enumerate(owners)}
        buffers: dict[int, int] = {}

        def buffer(goal: int) -> int | None:
            while goal in members and members[goal] in self.aliases:
                operand = self.aliases[members[goal]]
                if operand not in needs[goal]:
                    return None
                goal = operand
            if goal not in members and not self.own[goal]:
                return None
            return buffers.setdefault(goal, len(buffers))

        def all_of(goals: Iterable[int]) -> set[int]:
            return {number_of for number_of in map(buffer, goals) if number_of is not None}

        touches = [tuple(sorted(all_of((goal, *needs[goal])))) for goal in owners]
        before = [tuple(step[need] for need in needs[goal] if need in step) for goal in owners]
        ready = [goal for goal in members if goal not in step]
        given = all_of(ready) | {b for goal, b in buffers.items() if goal not in members and self.given[goal]}
        to_the_end = all_of(root for root in self.program.roots if root in members or root in buffers)
        return Dataflow(
            [self.sizes[goal] for goal in buffers], touches, before, frozenset(given), frozenset(to_the_end), owners
        )

    @cached_property
    def floors(self) -> MemoryFloors:
        """Memory that options, and so every choice, need."""
        return MemoryFloors(self.program, self.sizes, self.aliases)

    def offences(self, choice: Choice, order: Sequence[int], most: float, stop: Callable[[], bool]) -> list[Part]:
        """Disjoint parts as `offence` finds them: models repeat themselves, and so do the faults of a choice.

        They are looked for around the peaks first, where a proof has few steps to look at, and in the whole choice
        only where none is found there.
        """
        parts: list[Part] = []
        taken: set[int] = set()
        flow = self.flow(choice)
        step = {goal: index for index, goal in enumerate(flow.owners)}
        steps = [step[goal] for goal in order if goal in step]
        for position in peaks(live_bytes(flow, steps), most):
            for reach in WINDOWS:
                if stop() or len(parts) >= MOST_PARTS:
                    return parts
                near = [goal for s in around(flow, steps, position, reach) if (goal := flow.owners[s]) not in taken]
                part = self.offence(choice, near, most, stop, WINDOW_MOVES)
                if part:
                    parts.append(part)
                    taken.update(part)
                    break
        if not parts and not stop():
            whole = self.offence(choice, order, most, stop)
            parts += [whole] if whole else []
        return parts

    def offence(
        self, choice: Choice, order: Sequence[int], most: float, stop: Callable[[], bool], moves: int = PROOF_MOVES
    ) -> Part | None:
        """A small part of a closed choice that needs more than `most` in every choice that has it, if that is proved.

        Parts along `order` are left out, in halves, quarters and so on, as long as the rest needs too much.
        """

        def too_much(part: Part) -> bool:
            return always_exceeds(self.flow(choice, part), most, moves)

        needs = {goal: frozenset(self.program.needs[choice[goal]]) for goal in order}
        if not too_much(needs):
            return None
        left = list(order)
        size = max(len(left) // 2, 1)
        while size and not stop():
            start = 0
            while start < len(left) and not stop():
                fewer = left[:start] + left[start + size :]
                if too_much({goal: needs[goal] for goal in fewer}):
                    left = fewer
                else:
                    start += size
            size //= 2
        part = {goal: needs[goal] for goal in left}
        for goal in left:
            for need in sorted(part[goal]):
                fewer_needs = part | {goal: part[goal] - {need}}
                if not stop() and too_much(fewer_needs):
                    part = fewer_needs
        return part

    def alike(self, choice: Choice, part: Part) -> list[list[int]]:
        """For every goal of a part, the options with which the part needs as much."""
        groups = []
        for goal, needed in part.items():
            mine = choice[goal]
            groups.append(
                [
                    option
                    for option in self.program.by_goal[goal]
                    if option == mine
                    or (
                        needed.issubset(self.program.needs[option])
                        and self.aliases.get(option) == self.aliases.get(mine)
                        and bool(self.program.needs[option]) == bool(self.program.needs[mine])
                    )
                ]
            )
        return groups
