"""Neighbourhoods for large programs: windows of a choice that are free to change while the rest stays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from eqsat.extract.problem.program import Choice, ExtractionProgram, operands_first, unfounded
from eqsat.extract.solvers.model import TOLERANCE, Values
from eqsat.extract.solvers.presolve import Presolved
from eqsat.extract.solvers.search import IlpSearch

WINDOW_OPTIONS = 600
"""Options that a window leaves open, besides those of the current choice."""

WINDOW_GAP = 1e-3
"""Relative gap within which a neighbourhood counts as solved."""

WINDOW_NODES = 30
"""Most branch-and-bound nodes for one neighbourhood: a limit that, unlike time, gives the same result every time."""

BETTER = 1e-9
"""Relative gain that a window must bring."""


def solve_windows(search: IlpSearch, reduction: Presolved, values: Values) -> None:
    """Solve windows of the best choice, until a whole sweep improves nothing or half the time is gone.

    Windows in which the relaxation, with the solution `values`, agrees with the choice are left as they are.
    """
    enough = search.clock.left() / 2
    small = reduction.program
    improved = True
    while improved and not search.clock.stop():
        improved = False
        known = reduction.shrink(search.choice)
        if known is None or unfounded(small, known):
            return
        for free in windows(small, known):
            if search.clock.stop() or search.clock.left() < enough or search.done():
                return
            if all(values[known[goal]] > 1 - TOLERANCE for goal in free if goal in known):
                continue
            better = _window(search, small, known, free, reduction.broken)
            if better is not None:
                known, improved = better, True
                search.offer(reduction.expand(known))
                search.report()


def _window(
    search: IlpSearch, small: ExtractionProgram, known: Choice, free: set[int], broken: set[int]
) -> Choice | None:
    """A better choice that differs from `known` in the goals `free` only."""
    options = [option for option, goal in enumerate(small.provides) if goal in free or known.get(goal) == option]
    near = small.restricted(options)
    number = {option: index for index, option in enumerate(options)}
    start = {goal: number[option] for goal, option in known.items()}
    child = search.child(near, start, broken, search.clock, WINDOW_GAP)
    child.nodes = WINDOW_NODES
    child.report = lambda: None
    before = child.cost
    child.run()
    best = child.best()
    if child.cost >= before * (1 - BETTER):
        return None
    return {goal: options[option] for goal, option in best.items()}


def windows(program: ExtractionProgram, choice: Choice) -> Iterator[set[int]]:
    """Sets of goals to set free, half overlapping, along the order of the choice."""
    order = operands_first(reversed(program.roots), lambda goal: program.needs[choice[goal]])
    classes: dict[int, list[int]] = defaultdict(list)
    for goal, group in enumerate(program.groups):
        classes[group].append(goal)
    position = 0
    while position < len(order):
        free: set[int] = set()
        size, end = 0, position
        while end < len(order) and size < WINDOW_OPTIONS:
            size += _release(program, choice, classes, order[end], free)
            end += 1
        yield free
        position += max((end - position) // 2, 1)


def _release(
    program: ExtractionProgram, choice: Choice, classes: dict[int, list[int]], start: int, free: set[int]
) -> int:
    """Free a goal, its class, and the needs of their options outside the choice; return how many options open."""
    opened = 0
    stack = list(classes[program.groups[start]])
    while stack:
        goal = stack.pop()
        if goal in free or (goal in choice and program.groups[goal] != program.groups[start]):
            continue
        free.add(goal)
        opened += len(program.by_goal[goal])
        if opened > WINDOW_OPTIONS:
            break
        stack += [need for option in program.by_goal[goal] for need in program.needs[option]]
    return opened
