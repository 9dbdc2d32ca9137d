"""Neighbourhoods for large programs: windows of a choice that are free to change while the rest stays."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator

from eqsat.extract.program import Choice, Program

WINDOW_OPTIONS = 600
"""Options that a window leaves open, besides those of the current choice."""


def ordered(program: Program, choice: Choice) -> list[int]:
    """The goals of a closed acyclic choice, operands first."""
    done: dict[int, None] = {}
    stack = [(root, False) for root in reversed(program.roots)]
    while stack:
        goal, leave = stack.pop()
        if leave:
            done[goal] = None
        elif goal not in done:
            stack.append((goal, True))
            stack += [(need, False) for need in program.needs[choice[goal]] if need not in done]
    return list(done)


def windows(program: Program, choice: Choice) -> Iterator[set[int]]:
    """Sets of goals to set free, half overlapping, along the order of the choice."""
    order = ordered(program, choice)
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


def _release(program: Program, choice: Choice, classes: dict[int, list[int]], start: int, free: set[int]) -> int:
    """Frees a goal, its class, and what their options need outside the choice; returns how many options that opens."""
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


def confine(program: Program, choice: Choice, free: set[int]) -> tuple[Program, list[int]]:
    """The program with only the chosen options outside `free`, and the options it is made of."""
    kept = [option for option, goal in enumerate(program.provides) if goal in free or choice.get(goal) == option]
    small = dataclasses.replace(
        program,
        provides=[program.provides[option] for option in kept],
        needs=[program.needs[option] for option in kept],
        costs=[program.costs[option] for option in kept],
    )
    return small, kept
