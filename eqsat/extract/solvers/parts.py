"""Independent parts of a program: those that share no goal are searched one by one, and equal ones once."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Hashable

from eqsat.extract.problem.landmarks import landmarks
from eqsat.extract.problem.program import Choice, ExtractionProgram, cheapest_trees, pieces
from eqsat.extract.solvers.greedy import best_greedy


def rooted(program: ExtractionProgram) -> ExtractionProgram:
    """The program with all goals that every choice provides as roots: it has the same choices.

    What meets in such goals only does not depend on each other, and a root need not be asked for by anyone.
    """
    shared = landmarks(program, best_greedy(program))
    return dataclasses.replace(program, roots=sorted({*program.roots, *shared}))


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramPart:
    """The options that some roots of a program reach, in an order that is the same for equal parts.

    `shape` holds all that the costs and choices of a part depend on, with goals numbered from the roots on: parts of
    one shape are equal, option by option. Equal parts may have several shapes, where goals can be told apart by their
    numbers alone.
    """

    program: ExtractionProgram
    options: tuple[int, ...]
    shape: Hashable

    def like(self, other: ProgramPart, choice: Choice) -> Choice:
        """The choice of this part that is `choice` of another of the same shape."""
        place = {option: index for index, option in enumerate(other.options)}
        return {self.program.provides[o]: o for o in (self.options[place[option]] for option in choice.values())}


def parts_of(program: ExtractionProgram) -> list[ProgramPart]:
    """The parts that share no goal, smallest first."""
    _, trees = cheapest_trees(program, program.costs)
    parts = [_reach(dataclasses.replace(program, roots=roots), trees) for roots in pieces(program)]
    return sorted(parts, key=lambda part: len(part.options))


def _reach(program: ExtractionProgram, trees: list[float]) -> ProgramPart:
    """The part of a program that its roots reach; `trees` are costs by which goals are told apart."""

    def order(goal: int) -> tuple[float, int, int]:
        return trees[goal], len(program.by_goal[goal]), goal

    number = {root: index for index, root in enumerate(sorted(program.roots, key=order))}
    queue = deque(number)
    options: list[int] = []
    while queue:
        members = program.by_goal[queue.popleft()]
        for option in sorted(members, key=lambda o: (program.costs[o], len(program.needs[o]), o)):
            options.append(option)
            for need in sorted(program.needs[option], key=order):
                if need not in number:
                    number[need] = len(number)
                    queue.append(need)
    shape = tuple(
        (number[program.provides[o]], tuple(sorted(number[need] for need in program.needs[o])), program.costs[o])
        for o in options
    )
    return ProgramPart(program, tuple(options), (len(program.roots), shape))
