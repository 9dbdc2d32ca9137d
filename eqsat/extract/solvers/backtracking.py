"""The cost-based backtracking search of MetaFlow and TASO, as a baseline for the integer program.

Jia et al., "Optimizing DNN Computation with Relaxed Graph Substitutions" (MLSys 2019), and Jia et al., "TASO" (SOSP
2019). Graphs wait in a queue, the cheapest first. Each substitution of the graph taken out gives a neighbour, and a
neighbour that was not met before enters the queue if it costs less than `alpha` times the best graph taken out so far:

* alpha = 1 is greedy, and passes through cheaper graphs only;
* alpha > 1 also passes through graphs that are dearer by less than that factor, to graphs behind them;
* alpha < 1 takes only substitutions that save more than that part at once.

The same as in the papers are the queue, its order, the threshold, the set of graphs met, no cyclic graph in the
queue, and, as in MetaFlow's code, a graph that the best has left behind by more than alpha is dropped. Different are:
substitutions are not matched against the graph but read off the e-graph, where rules have recorded all they found, so
the search is over the very graphs that the integer program chooses from, and matching costs nothing. A substitution
replaces the option of one goal; operands that the graph lacks come in as the start has them, or else as their cheapest
tree, and options that no root uses any longer leave. An e-graph does not say which e-nodes one rule put there together,
so a substitution with several outputs is tried as the one output alone, and with every other goal that can use what
came in.
"""

from __future__ import annotations

import heapq
import math
import time
from array import array
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from random import Random

from eqsat.errors import UsageError
from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.program import Choice, cheapest_trees, closure, total
from eqsat.extract.problem.solution import Solution, Status, decode
from eqsat.extract.solvers.bounds import tree_bound
from eqsat.extract.solvers.highs import Clock, deadline_of
from eqsat.system.deadline import Deadline

ALPHA = 1.05
"""TASO's default."""

ROUNDING = 1e-12
"""Relative difference of sums of the same costs in another order."""

MOST_QUEUED = 100_000
"""Graphs in the queue, above which its dearer half is dropped."""

MOST_MET = 2_000_000
"""Graphs remembered; when there are so many, no other one enters the queue."""

POLL = 256
"""Neighbours between looks at the clock."""

NEIGHBOUR = 10
"""Steps that a neighbour counts for, where steps are counted."""

Changes = tuple[tuple[int, int], ...]
"""Goals of a graph and the options that replace theirs."""


def solve_backtracking(
    problem: Problem,
    *,
    alpha: float = ALPHA,
    start: Collection[int] | None = None,
    time_limit: float | Deadline = 30.0,
    relative_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Solution:
    """The cheapest graph that the search finds until its queue is empty, or it is stopped.

    `start` are the nodes of the original graph, by index; where left out, the search begins at the cheapest tree.
    `seed` draws the keys by which graphs are recognised. The other arguments are those of `solve`.

    >>> from eqsat.extract.problem.problem import ProblemNode
    >>> solve_backtracking(Problem([ProblemNode(0, (), 2.0), ProblemNode(0, (), 1.0)], [(0, 0)]), start=[0]).cost
    1.0
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise UsageError(f"alpha={alpha!r}", expected="a factor above 0, such as 1.05")
    began = time.monotonic()
    program = problem.program
    clock = Clock(deadline_of(time_limit), should_stop)
    status: Status = "heuristic"
    with clock.hearing_interrupts():
        search = BacktrackingSearch(problem, alpha, start, seed, clock)
        bound = tree_bound(program)
        try:
            reported = math.inf
            for _ in search.visits():
                if progress is not None and search.cost < reported:
                    reported = search.cost
                    progress(search.cost, min(bound, search.cost))
                if bound >= search.cost * (1 - max(relative_gap, ROUNDING)):
                    status = "optimal"
                    break
        except KeyboardInterrupt:
            clock.interrupted = True
    if status != "optimal" and (clock.interrupted or clock.late):
        status = "interrupted" if clock.interrupted else "time_limit"
    return decode(problem, search.best(), lower_bound=bound, status=status, seconds=time.monotonic() - began)


@dataclass(slots=True)
class ChoiceGraph:
    """A closed acyclic choice, operands before their users; `uses` counts the users of a goal, a root as one.

    The needs of a goal, direct or not, have a smaller `position` and a smaller `level`, which leaves have least.
    """

    choice: Choice
    position: dict[int, int]
    level: dict[int, int]
    uses: dict[int, int]
    cost: float
    key: int


class BacktrackingSearch:
    """The queue, the facts about the graphs met, and the best one."""

    def __init__(self, problem: Problem, alpha: float, start: Collection[int] | None, seed: int, clock: Clock) -> None:
        self.program = program = problem.program
        self.alpha = alpha
        self.clock = clock
        self.defaults = _defaults(problem, start)
        self.options = [
            [o for o in members if goal not in program.needs[o] and self.defaults.keys() >= set(program.needs[o])]
            for goal, members in enumerate(program.by_goal)
        ]
        draw = Random(seed)
        self.keys = [draw.getrandbits(62) for _ in program.costs]
        self.users = program.users()
        begin = self.graph_of({})
        self.cost = self.reached = begin.cost
        self._best: tuple[array[int], Changes] = array("i", begin.choice.values()), ()
        self.met = {begin.key}
        self.queue: list[tuple[float, int, array[int], Changes]] = [(begin.cost, 0, *self._best)]
        self._entered = 0

    def best(self) -> Choice:
        """The cheapest graph met."""
        return self.graph_of(self.unpacked(*self._best)).choice

    def visits(self) -> Iterator[ChoiceGraph]:
        """The graphs taken out of the queue, in turn, until it is empty or the clock says to stop."""
        while self.queue and not self.clock.stop():
            cost, _, packed, changes = heapq.heappop(self.queue)
            self.reached = min(self.reached, cost)
            if cost > self.reached * max(self.alpha, 1.0) * (1 + ROUNDING):
                continue
            self.clock.deadline.spend(len(packed))
            graph = self.graph_of(self.unpacked(packed, changes))
            yield graph
            self.expand(graph)

    def unpacked(self, packed: array[int], changes: Changes) -> Choice:
        """The choice of a queued graph."""
        choice = {self.program.provides[option]: option for option in packed}
        choice.update(changes)
        return choice

    def graph_of(self, choice: Choice) -> ChoiceGraph:
        """The part of a choice that the roots use, filled in where it lacks a goal."""
        needs = self.program.needs
        used: Choice = {}
        uses = dict.fromkeys(self.program.roots, 1)
        stack = [(root, False) for root in reversed(self.program.roots)]
        open_: Choice = {}
        level: dict[int, int] = {}
        while stack:
            goal, leave = stack.pop()
            if leave:
                used[goal] = option = open_[goal]
                level[goal] = 1 + max([level[need] for need in needs[option]], default=-1)
            elif goal not in open_:
                open_[goal] = option = choice[goal] if goal in choice else self.defaults[goal]
                stack.append((goal, True))
                for need in needs[option]:
                    uses[need] = uses.get(need, 0) + 1
                    stack.append((need, False))
        position = {goal: index for index, goal in enumerate(used)}
        key = sum(self.keys[option] for option in used.values())
        return ChoiceGraph(used, position, level, uses, total(self.program, used), key)

    def expand(self, graph: ChoiceGraph) -> None:
        """Put into the queue the neighbours of a graph that are new and cheap enough."""
        packed = array("i", graph.choice.values())
        limit = self.alpha * self.reached * (1 - ROUNDING)
        tried = 0
        joint: set[frozenset[tuple[int, int]]] = set()
        for goal, current in graph.choice.items():
            for option in self.options[goal]:
                if option == current:
                    continue
                tried += 1
                self.clock.deadline.spend(NEIGHBOUR)
                if tried % POLL == 0 and self.clock.stop():
                    return
                changes: Changes = ((goal, option),)
                came = self._consider(graph, packed, changes, limit)
                together = self._together(graph, changes, came) if came else changes
                if together != changes and frozenset(together) not in joint:
                    joint.add(frozenset(together))
                    self._consider(graph, packed, together, limit)

    def _consider(self, graph: ChoiceGraph, packed: array[int], changes: Changes, limit: float) -> Choice:
        """Queue the neighbour that the changes make, if below the limit, new and acyclic; return the new options."""
        fresh = self._filled(graph, changes)
        more, key = self._effect(graph, changes, fresh)
        cost, key = graph.cost + more, graph.key + key
        if cost >= limit or key in self.met or len(self.met) >= MOST_MET or self._cyclic(graph, changes, fresh):
            return fresh
        self.met.add(key)
        self._entered += 1
        heapq.heappush(self.queue, (cost, self._entered, packed, changes))
        if cost < self.cost:
            self.cost, self._best = cost, (packed, changes)
        if len(self.queue) > MOST_QUEUED:
            self.queue.sort()
            del self.queue[MOST_QUEUED // 2 :]
        return fresh

    def _filled(self, graph: ChoiceGraph, changes: Changes) -> Choice:
        """The goals that come in with the changes, and their options."""
        choice, needs = graph.choice, self.program.needs
        fresh: Choice = {}
        stack = [need for _, option in changes for need in needs[option] if need not in choice]
        while stack:
            goal = stack.pop()
            if goal not in fresh:
                fresh[goal] = option = self.defaults[goal]
                stack += [need for need in needs[option] if need not in choice]
        return fresh

    def _cyclic(self, graph: ChoiceGraph, changes: Changes, fresh: Choice) -> bool:
        """Return whether a changed goal would lie on a cycle; every new cycle passes through one.

        Goals of the graph that stand before all changed goals, or on no higher level, do not lead back to them.
        """
        position, level, needs = graph.position, graph.level, self.program.needs
        changed = dict(changes)
        floor = min(position[goal] for goal in changed)
        low = min(level[goal] for goal in changed)
        done: dict[int, bool] = {}
        stack = [(goal, False) for goal in changed]
        while stack:
            goal, leave = stack.pop()
            if leave:
                done[goal] = True
                continue
            if goal in done:
                continue
            done[goal] = False
            stack.append((goal, True))
            option = changed.get(goal, -1)
            if option < 0:
                option = graph.choice[goal] if goal in position else fresh[goal]
            for need in needs[option]:
                if need in position and need not in changed and (level[need] <= low or position[need] < floor):
                    continue
                if done.get(need) is False:
                    return True
                stack.append((need, False))
        return False

    def _effect(self, graph: ChoiceGraph, changes: Changes, fresh: Choice) -> tuple[float, int]:
        """The cost and the key that the changes add, with the options that come in and those that leave."""
        choice, uses = graph.choice, graph.uses
        needs, costs, keys = self.program.needs, self.program.costs, self.keys
        cost = sum([costs[option] for option in fresh.values()])
        key = sum([keys[option] for option in fresh.values()])
        now = {**fresh, **dict(changes)}
        more: dict[int, int] = {}
        for option in now.values():
            for need in needs[option]:
                more[need] = more.get(need, 0) + 1
        left: list[int] = []
        for goal, option in changes:
            before = choice[goal]
            cost += costs[option] - costs[before]
            key += keys[option] - keys[before]
            left += needs[before]
        while left:
            goal = left.pop()
            more[goal] = count = more.get(goal, 0) - 1
            if uses.get(goal, 0) + count == 0:
                option = now[goal] if goal in now else choice[goal]
                cost -= costs[option]
                key -= keys[option]
                left += needs[option]
        return cost, key

    def _together(self, graph: ChoiceGraph, changes: Changes, came: Choice) -> Changes:
        """The changes, and with them every other goal of the graph that can use the new options."""
        program, choice = self.program, graph.choice
        more: Choice = {}
        for source in came:
            for option in self.users[source]:
                goal = program.provides[option]
                if goal not in choice or goal == changes[0][0] or option == choice[goal]:
                    continue
                if goal in more and program.costs[more[goal]] <= program.costs[option]:
                    continue
                if option in self.options[goal] and all(n in choice or n in came for n in program.needs[option]):
                    more[goal] = option
        return (*changes, *more.items())


def _defaults(problem: Problem, start: Collection[int] | None) -> Choice:
    """For every goal that can be provided the option it comes in with; together they are acyclic.

    The goals that the start uses need only each other, and trees are acyclic by themselves, so no cycle has both.
    """
    program = problem.program
    trees = cheapest_trees(program, program.costs)[0]
    if start is None:
        return trees
    first = _first(problem, frozenset(start))
    return {**trees, **closure(program, first, program.roots)}


def _first(problem: Problem, start: frozenset[int]) -> Choice:
    """The cheapest trees that the nodes of the start, and conversions, make."""
    program = problem.program
    unknown = sorted(start - set(range(program.natives)))
    if unknown:
        raise UsageError(f"start names node {unknown[0]}", expected=f"nodes from 0 to {program.natives - 1}")
    options = [option for option in range(len(program.costs)) if option >= program.natives or option in start]
    small = program.restricted(options)
    trees = cheapest_trees(small, small.costs)[0]
    for index, root in enumerate(program.roots):
        if root not in trees:
            raise UsageError(
                f"start does not deliver {problem.describe(problem.roots[index])}",
                expected="nodes that are a whole graph: of each operand's e-class there is one",
                remedy="add the nodes that the roots need, or leave start out",
            )
    return {goal: options[option] for goal, option in trees.items()}
