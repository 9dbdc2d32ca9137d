"""The and-or form of extraction: goals, and options that provide one goal when the goals they need are provided."""

from __future__ import annotations

import heapq
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from eqsat.system.deadline import check, watched

INFINITY = float("inf")
Item = TypeVar("Item")

Choice = dict[int, int]
"""Goal -> the option chosen for it."""


@dataclass(slots=True)
class ExtractionProgram:
    """Options `o` provide goal `provides[o]` at `costs[o]` from the goals `needs[o]` (sorted, distinct).

    `groups[g]` is the e-class of goal g; options below `natives` are nodes, the others convert within a group.
    """

    goals: int
    roots: list[int]
    provides: list[int]
    needs: list[tuple[int, ...]]
    costs: list[float]
    groups: list[int]
    natives: int
    by_goal: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_goal = [[] for _ in range(self.goals)]
        for option, goal in enumerate(watched(self.provides)):
            self.by_goal[goal].append(option)

    def users(self) -> list[list[int]]:
        """For every goal, the options that need it."""
        users: list[list[int]] = [[] for _ in range(self.goals)]
        for option, needs in enumerate(watched(self.needs)):
            for need in needs:
                users[need].append(option)
        return users

    def successors(self) -> list[set[int]]:
        """For every goal, the goals that its options need."""
        return [{need for option in members for need in self.needs[option]} for members in self.by_goal]

    def restricted(self, options: Sequence[int]) -> ExtractionProgram:
        """The program with these options alone, numbered anew in this order."""
        return replace(
            self,
            provides=[self.provides[option] for option in options],
            needs=[self.needs[option] for option in options],
            costs=[self.costs[option] for option in options],
        )


def derivable(program: ExtractionProgram) -> list[bool]:
    """For each goal, whether some acyclic choice provides it."""
    waiting = [len(needs) for needs in program.needs]
    users = program.users()
    can = [False] * program.goals
    ready = [option for option, count in enumerate(waiting) if count == 0]
    while ready:
        goal = program.provides[ready.pop()]
        if can[goal]:
            continue
        can[goal] = True
        for user in users[goal]:
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    return can


def provides_roots(program: ExtractionProgram) -> bool:
    """True if some acyclic choice provides all roots."""
    can = derivable(program)
    return all(can[root] for root in program.roots)


def operands_first(roots: Iterable[Item], needs: Callable[[Item], Iterable[Item]]) -> list[Item]:
    """Those that the roots need, directly or not, and the roots: each once, behind all that it needs itself.

    The last root comes first, and of several that one needs the last one.

    >>> operands_first("a", {"a": "bc", "b": "c", "c": ""}.__getitem__)
    ['c', 'b', 'a']
    """
    done: dict[Item, None] = {}
    stack = [(root, False) for root in roots]
    while stack:
        item, leave = stack.pop()
        if leave:
            done[item] = None
        elif item not in done:
            stack.append((item, True))
            stack += [(need, False) for need in needs(item) if need not in done]
    return list(done)


def closure(program: ExtractionProgram, choice: Choice, roots: Iterable[int]) -> Choice:
    """The part of `choice` that the roots use."""
    used: Choice = {}
    stack = list(roots)
    while stack:
        goal = stack.pop()
        if goal in used:
            continue
        used[goal] = choice[goal]
        stack.extend(program.needs[choice[goal]])
    return used


def total(program: ExtractionProgram, choice: Choice) -> float:
    """The DAG cost of a closed choice, summed in a fixed order."""
    return float(sum(program.costs[option] for option in sorted(choice.values())))


def components(successors: Sequence[Iterable[int]]) -> list[int]:
    """The strongly connected component of every vertex (Tarjan), numbered so that successors come first."""
    count = len(successors)
    index, low = [-1] * count, [0] * count
    component = [-1] * count
    stack: list[int] = []
    clock = count_of_components = 0
    for start in range(count):
        if index[start] >= 0:
            continue
        work = [(start, iter(successors[start]))]
        index[start] = low[start] = clock
        clock += 1
        stack.append(start)
        while work:
            vertex, rest = work[-1]
            for child in rest:
                if index[child] < 0:
                    index[child] = low[child] = clock
                    clock += 1
                    stack.append(child)
                    work.append((child, iter(successors[child])))
                    break
                if component[child] < 0:
                    low[vertex] = min(low[vertex], index[child])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[vertex])
                if low[vertex] == index[vertex]:
                    while True:
                        member = stack.pop()
                        component[member] = count_of_components
                        if member == vertex:
                            break
                    count_of_components += 1
    return component


def connected(count: int, together: Iterable[Sequence[int]]) -> list[int]:
    """The connected component of every vertex, where the vertices of each group hang together.

    >>> connected(5, [(4, 1), (3,), (1, 2)])
    [0, 1, 1, 2, 1]
    """
    # SciPy has this too, but takes longer to load than most models to choose for.
    above = list(range(count))

    def top(vertex: int) -> int:
        while above[vertex] != vertex:
            above[vertex] = vertex = above[above[vertex]]
        return vertex

    for group in watched(together):
        for other in group[1:]:
            one, two = top(group[0]), top(other)
            above[max(one, two)] = min(one, two)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(top(vertex), len(numbers)) for vertex in watched(range(count))]


def pieces(program: ExtractionProgram) -> list[list[int]]:
    """The roots of every connected part of the program."""
    options = zip(program.provides, program.needs, strict=True)
    part = connected(program.goals, [(goal, *needs) for goal, needs in options])
    roots: dict[int, list[int]] = defaultdict(list)
    for root in program.roots:
        roots[part[root]].append(root)
    return list(roots.values())


def unfounded(program: ExtractionProgram, choice: Choice) -> set[int]:
    """Goals of a closed choice that lie on a cycle or depend on one; empty for an acyclic choice."""
    waiting = {goal: len(program.needs[option]) for goal, option in choice.items()}
    users: dict[int, list[int]] = {goal: [] for goal in choice}
    for goal, option in choice.items():
        for need in program.needs[option]:
            users[need].append(goal)
    ready = [goal for goal, count in waiting.items() if count == 0]
    while ready:
        goal = ready.pop()
        del waiting[goal]
        for user in users[goal]:
            waiting[user] -= 1
            if waiting[user] == 0:
                ready.append(user)
    return set(waiting)


def cheapest_trees(program: ExtractionProgram, costs: Sequence[float]) -> tuple[Choice, list[float]]:
    """Knuth's generalisation of Dijkstra: for every derivable goal the option of least tree cost, and that cost.

    The choice is acyclic even with zero costs, because an option only uses goals that were settled before it.
    """
    waiting = [len(needs) for needs in program.needs]
    users = program.users()
    value = [float("inf")] * program.goals
    sums = list(costs)
    choice: Choice = {}
    heap = [(costs[option], option) for option, count in enumerate(waiting) if count == 0]
    heapq.heapify(heap)
    while heap:
        cost, option = heapq.heappop(heap)
        goal = program.provides[option]
        if goal in choice:
            continue
        check()
        choice[goal], value[goal] = option, cost
        for user in users[goal]:
            sums[user] += cost
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(heap, (sums[user], user))
    return choice, value


def path_bounds(
    program: ExtractionProgram,
    users: list[list[int]],
    costs: Sequence[float],
    join: Callable[[float, float], float] = operator.add,
) -> list[float]:
    """For every goal the dearest-operand bound; infinite for goals that cannot be provided.

    That of an option is its cost plus the largest bound of its operands, or another function `join` of the two, which
    must not be below either.
    """
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
                heapq.heappush(heap, (join(costs[user], bound), user))
    return bounds
