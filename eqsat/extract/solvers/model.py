"""The integer program of an extraction program: coverage rows, and the cuts that forbid cycles.

Variables: a binary x for every option; y for every goal, y = sum of its options' x. For a goal g and a goal d that
options of g need: the x of those options sum to at most y_d. Roots have y = 1.

A set S of goals cannot support itself: for g in S, y_g <= sum of x over the options of goals in S that need nothing
from S (loop formulas of answer-set programming; cuts of the Steiner tree polytope). All of them together describe the
acyclic choices; they are added where a solution violates them.

With several states a class, the same holds one level up, with one representative e-node for every class: the first that
is made. Without these rows the relaxation splits every class among its states and the bound decays with depth.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from eqsat.extract.problem.program import Choice, ExtractionProgram, components, unfounded
from eqsat.extract.solvers.bounds import Ascent, dual_ascent

Row = tuple[tuple[int, ...], tuple[float, ...], float]
"""Columns, coefficients, upper bound (rows are <=)."""

Values = np.ndarray[tuple[int], np.dtype[np.float64]]

TOLERANCE = 1e-6
MOST_CUTS = 200


@dataclass(slots=True)
class IntegerProgram:
    """Columns: options, then goals, then those that `strengthen` and `order` added."""

    program: ExtractionProgram
    rows: list[Row] = field(default_factory=list)
    equal: list[Row] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    binary: int = 0
    component: list[int] = field(default_factory=list)
    ordered: set[int] = field(default_factory=set)
    cuts: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    _users: list[list[int]] = field(init=False)
    _roots: set[int] = field(init=False)

    def __post_init__(self) -> None:
        program = self.program
        options = len(program.provides)
        self.binary = options
        self._users, self._roots = program.users(), set(program.roots)
        self.upper = [1.0] * (options + program.goals)
        self.component = components(program.successors())
        for goal, members in enumerate(program.by_goal):
            self.equal.append(((*members, self.goal(goal)), (1.0,) * len(members) + (-1.0,), 0.0))
            for need, users in self._using(goal).items():
                self.rows.append(((*users, self.goal(need)), (1.0,) * len(users) + (-1.0,), 0.0))

    def goal(self, goal: int) -> int:
        """The column of a goal."""
        return len(self.program.provides) + goal

    def _using(self, goal: int) -> dict[int, list[int]]:
        """The goals that options of a goal need, each with these options."""
        using: dict[int, list[int]] = defaultdict(list)
        for option in self.program.by_goal[goal]:
            for need in self.program.needs[option]:
                using[need].append(option)
        return using

    def column(self, upper: float = 1.0) -> int:
        """A new continuous column from 0 to `upper`."""
        self.upper.append(upper)
        return len(self.upper) - 1

    def strengthen(self, broken: set[int]) -> None:
        """Add the program of classes and representatives; `broken` are classes whose e-nodes are not all here."""
        program = self.program
        states: dict[int, list[int]] = defaultdict(list)
        for goal, group in enumerate(program.groups):
            states[group].append(goal)
        whole = {group: self.column() for group in states if group not in broken}
        for group, column in whole.items():
            for goal in states[group]:
                self.rows.append(((self.goal(goal), column), (1.0, -1.0), 0.0))
            self._represent(states[group], group, column, whole)

    def _represent(self, goals: list[int], group: int, column: int, whole: dict[int, int]) -> None:
        kinds: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for goal in goals:
            for option in self.program.by_goal[goal]:
                groups = {self.program.groups[need] for need in self.program.needs[option]}
                if group not in groups:
                    kinds[tuple(sorted(groups))].append(option)
        chosen = {below: self.column() for below in kinds}
        columns = tuple(chosen.values())
        self.equal.append(((*columns, column), (1.0,) * len(columns) + (-1.0,), 0.0))
        using: dict[int, list[int]] = defaultdict(list)
        for below, options in kinds.items():
            self.rows.append(((chosen[below], *options), (1.0,) + (-1.0,) * len(options), 0.0))
            for other in below:
                if other in whole:
                    using[other].append(chosen[below])
        for other, users in using.items():
            self.rows.append(((*users, whole[other]), (1.0,) * len(users) + (-1.0,), 0.0))

    def order(self, cuts: list[Row]) -> bool:
        """Add order variables where `cuts` had to forbid cycles; False if they are there already.

        In such a strongly connected component, the needs of an option come before the goal it provides.
        """
        provides = self.program.provides
        cyclic = {self.component[provides[row[0][0]]] for row in cuts} - self.ordered
        self.ordered |= cyclic
        for component in sorted(cyclic):
            members = [goal for goal, mine in enumerate(self.component) if mine == component]
            size = float(len(members))
            place = {goal: self.column(size) for goal in members}
            for goal in members:
                self._precede(goal, place, size)
        return bool(cyclic)

    def _precede(self, goal: int, place: dict[int, int], size: float) -> None:
        for need, options in self._using(goal).items():
            if need not in place:
                continue
            columns = (place[need], place[goal], *options)
            self.rows.append((columns, (1.0, -1.0) + (size + 1.0,) * len(options), size))

    def point(self, choice: Choice) -> dict[int, float]:
        """The values of a choice's options; the other columns are left to the solver."""
        values = dict.fromkeys(range(self.binary), 0.0)
        return values | dict.fromkeys(choice.values(), 1.0)

    def break_pairs(self) -> list[Row]:
        """Cuts for all pairs of goals that can need each other."""
        below, cuts = self.program.successors(), []
        for goal, needs in enumerate(below):
            for need in needs:
                if need > goal and goal in below[need]:
                    cuts += self.cut({goal, need})
        return cuts

    def cover(self, supports: list[tuple[int, ...]], values: Values | None = None) -> list[Row]:
        """Rows that ask for one option of every support; only those that `values` violate, if given."""
        return [
            (support, (-1.0,) * len(support), -1.0)
            for support in supports
            if values is None or values[list(support)].sum() < 1 - 10 * TOLERANCE
        ]

    def discard(self, options: Iterable[int]) -> list[int]:
        """Take options out that no better choice uses; return those that were still in."""
        fresh = sorted(set(options) - self.gone)
        self.gone.update(fresh)
        return fresh

    def require(self, goals: Iterable[int]) -> list[Row]:
        """Rows that ask for an option of every goal, and for one that needs it, of goals that every choice provides."""
        members = [tuple(self.program.by_goal[goal]) for goal in goals]
        return self.cover(members + [tuple(self._users[goal]) for goal in goals if goal not in self._roots])

    def cut_idle(self, values: Values) -> list[Row]:
        """Rows that ask for an option that needs a goal, where the goal has more than all of these together.

        They hold for choices that provide nothing in vain. Without them the relaxation meets what has to be covered
        by options that lead nowhere.
        """
        options = len(self.program.provides)
        rows = []
        for goal in np.flatnonzero(values[options : options + self.program.goals] > 10 * TOLERANCE).tolist():
            users = self._users[goal]
            if goal not in self._roots and values[users].sum() < values[self.goal(goal)] - 10 * TOLERANCE:
                rows.append(((*users, self.goal(goal)), (-1.0,) * len(users) + (1.0,), 0.0))
        return rows

    def cut(self, loop: set[int]) -> list[Row]:
        """The loop formulas of a set of goals, for every goal in it."""
        program = self.program
        support = [
            option
            for goal in sorted(loop)
            for option in program.by_goal[goal]
            if loop.isdisjoint(program.needs[option])
        ]
        rows = []
        for goal in sorted(loop):
            own = set(program.by_goal[goal])
            others = tuple(option for option in support if option not in own)
            inner = tuple(o for o in program.by_goal[goal] if not loop.isdisjoint(program.needs[o]))
            key = (goal, tuple(sorted(loop)))
            if inner and key not in self.cuts:
                self.cuts.add(key)
                rows.append((inner + others, (1.0,) * len(inner) + (-1.0,) * len(others), 0.0))
        return rows

    def cut_choice(self, choice: Choice) -> list[Row]:
        """Cuts that forbid the cycles of a choice; none if it is acyclic."""
        bad = unfounded(self.program, choice)
        support = {goal: [n for n in self.program.needs[choice[goal]] if n in bad] for goal in bad}
        return [row for loop in _loops(support) for row in self.cut(loop)]

    def cut_point(self, values: Values) -> list[Row]:
        """Loop formulas that a fractional solution violates, found by spreading support from the leaves."""
        program = self.program
        cyclic = _cyclic(program, self.component)
        founded = _founded(program, values, set(cyclic))
        weak = {g for g in cyclic if founded[g] < values[self.goal(g)] - 10 * TOLERANCE}
        if not weak:
            return []
        support = {
            goal: sorted(
                {n for o in program.by_goal[goal] if values[o] > TOLERANCE for n in program.needs[o] if n in weak}
            )
            for goal in weak
        }
        violated = []
        for loop in _loops(support):
            for row in self.cut(loop):
                if sum(values[c] * a for c, a in zip(row[0], row[1], strict=True)) > 10 * TOLERANCE:
                    violated.append(row)
        return violated[:MOST_CUTS]


def _cyclic(program: ExtractionProgram, component: list[int]) -> list[int]:
    size: dict[int, int] = defaultdict(int)
    for mine in component:
        size[mine] += 1
    return [goal for goal in range(program.goals) if size[component[goal]] > 1]


def _founded(program: ExtractionProgram, values: Values, inside: set[int]) -> dict[int, float]:
    """For every goal, an upper estimate of the value that reaches it from outside all cycles."""
    founded = dict.fromkeys(inside, 0.0)
    users: dict[int, set[int]] = {goal: set() for goal in inside}
    for goal in inside:
        for option in program.by_goal[goal]:
            if values[option] > TOLERANCE:
                for need in program.needs[option]:
                    if need in inside:
                        users[need].add(goal)
    queue, queued = sorted(inside), set(inside)
    steps = 30 * len(inside)
    while queue and steps:
        steps -= 1
        goal = queue.pop(0)
        queued.discard(goal)
        reach = 0.0
        for option in program.by_goal[goal]:
            value = values[option]
            if value > TOLERANCE:
                for need in program.needs[option]:
                    if need in inside:
                        value = min(value, founded[need])
                reach += value
        if reach > founded[goal] + TOLERANCE:
            founded[goal] = reach
            for user in sorted(users[goal] - queued):
                queue.append(user)
                queued.add(user)
    return founded


def _loops(support: dict[int, list[int]]) -> list[set[int]]:
    """The strongly connected components of a graph that have a cycle."""
    number = {goal: index for index, goal in enumerate(sorted(support))}
    component = components([[number[n] for n in support[goal]] for goal in sorted(support)])
    members: dict[int, set[int]] = defaultdict(set)
    for goal, index in number.items():
        members[component[index]].add(goal)
    return [loop for loop in members.values() if len(loop) > 1]


@dataclass(slots=True)
class Relaxed:
    """The solved relaxation of a program: its bound, and its solution by column."""

    ascent: Ascent
    values: Values


def selected(program: ExtractionProgram, values: Values) -> Choice:
    """For every goal the option of largest value."""
    return {
        goal: max(members, key=lambda option: (values[option], -option))
        for goal, members in enumerate(program.by_goal)
        if members
    }


def reduced_costs(model: IntegerProgram, duals: Values) -> list[float]:
    """The reduced cost of every option and its goal: its part in the bound of the relaxation with these duals.

    The bound has those of the roots in it already, as roots are always there.
    """
    spare = duals.clip(0.0)
    spare[[model.goal(root) for root in model.program.roots]] = 0.0
    return [float(spare[o] + spare[model.goal(goal)]) for o, goal in enumerate(model.program.provides)]


def repairs(model: IntegerProgram, choice: Choice) -> list[Row]:
    """Cuts that forbid the cycles of a choice: loop formulas, and supports that it leaves without an option."""
    cuts = model.cut_choice(choice)
    if not cuts:
        return []
    used = set(choice.values())
    least = max(model.program.costs) / 100
    costs = [0.0 if o in used else cost + least for o, cost in enumerate(model.program.costs)]
    return cuts + model.cover(dual_ascent(model.program, costs, rounds=30).supports)


def scaling(cost: float) -> float:
    """A power of two that brings costs to the thousands, where HiGHS's tolerances are harmless."""
    if cost <= 0:
        return 1.0
    # The exponents of costs and of reduced costs stay far inside those of floating-point numbers.
    return float(2.0 ** min(max(round(10.0 - math.log2(cost)), -900), 900))
