"""Cuts found as bottlenecks of flows: a goal's value comes from its sources, and shared sources count once.

Follow from a chosen goal its chosen option, then one operand of that, picked per option beforehand, and so on: an
acyclic choice ends at an option that needs nothing. So for every set of goals and options that all these paths cross,
a chosen goal has a chosen member in the set: y_goal <= the sum over the set, whatever operands were picked. The
relaxation only knows this for single steps; where two ways down meet again at one source, it uses that source twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from eqsat.extract.solvers.model import MOST_CUTS, TOLERANCE, IntegerProgram, Row, Values

LEAST_VIOLATION = 1e-3
"""Violations below this are left alone: such cuts hardly move the bound."""

MOST_VISITED = 2000
"""Vertices one search may visit: bottlenecks of use are near the goal they starve."""

SINK = -1


class Network:
    """The paths below a fractional solution: goal d enters at vertex 2d and leaves at 2d + 1."""

    def __init__(self, model: IntegerProgram, values: Values, depth: Sequence[float]) -> None:
        self.model = model
        self.program = model.program
        self.values = values
        self.depth = depth
        self.arcs: dict[int, dict[int, float]] = {}

    def pick(self, option: int) -> int:
        """The vertex that a path through `option` goes to: the scarcest operand, of these the dearest."""
        needs = self.program.needs[option]
        if not needs:
            return SINK
        return 2 * min(needs, key=self._preference)

    def _preference(self, need: int) -> tuple[float, float, int]:
        value = round(float(self.values[self.model.goal(need)]), 4)
        return value, -self.depth[need], need

    def capacities(self, vertex: int) -> dict[int, float]:
        """The arcs that leave a vertex."""
        if vertex not in self.arcs:
            goal = vertex // 2
            out: dict[int, float] = {}
            if vertex % 2 == 0:
                out[vertex + 1] = float(self.values[self.model.goal(goal)])
            else:
                for option in self.program.by_goal[goal]:
                    if self.values[option] > TOLERANCE:
                        target = self.pick(option)
                        out[target] = out.get(target, 0.0) + float(self.values[option])
            self.arcs[vertex] = out
        return self.arcs[vertex]

    def starve(self, goal: int) -> set[int] | None:
        """The vertices above a bottleneck that lets less than the value of `goal` through; None if there is none."""
        wanted = float(self.values[self.model.goal(goal)]) - LEAST_VIOLATION
        residual: dict[int, dict[int, float]] = {}
        while wanted > 0:
            before = self._search(2 * goal + 1, residual)
            if len(before) > MOST_VISITED:
                return None
            if SINK not in before:
                return set(before)
            wanted -= _augment(before, residual)
        return None

    def _search(self, start: int, residual: dict[int, dict[int, float]]) -> dict[int, int]:
        """Search breadth-first over the residual arcs: every vertex reached, with the one it was reached from."""
        before = {start: start}
        queue = deque([start])
        while queue and SINK not in before and len(before) <= MOST_VISITED:
            vertex = queue.popleft()
            left = residual.setdefault(vertex, {})
            for target, capacity in self.capacities(vertex).items():
                left.setdefault(target, capacity)
            for target, capacity in left.items():
                if capacity > TOLERANCE and target not in before:
                    before[target] = vertex
                    queue.append(target)
        return before

    def cut(self, goal: int, above: set[int]) -> Row:
        """The row of a bottleneck; options that the solution does not use are picked back into `above` if they can."""
        program, model = self.program, self.model
        crossed = [model.goal(v // 2) for v in sorted(above) if v % 2 == 0 and v + 1 not in above]
        for vertex in sorted(v for v in above if v % 2):
            for option in program.by_goal[vertex // 2]:
                if self.values[option] > TOLERANCE:
                    inside = self.pick(option) in above
                else:
                    inside = option in model.gone or any(2 * need in above for need in program.needs[option])
                if not inside:
                    crossed.append(option)
        return (model.goal(goal), *crossed), (1.0,) + (-1.0,) * len(crossed), 0.0


def _augment(before: dict[int, int], residual: dict[int, dict[int, float]]) -> float:
    """Send as much as fits along the path that was found."""
    path = [SINK]
    while before[path[-1]] != path[-1]:
        path.append(before[path[-1]])
    steps = [(above, below) for below, above in pairwise(path)]
    room = min(residual[above][below] for above, below in steps)
    for above, below in steps:
        residual[above][below] -= room
        if below != SINK:
            back = residual.setdefault(below, {})
            back[above] = back.get(above, 0.0) + room
    return room


def flow_cuts(model: IntegerProgram, values: Values, depth: Sequence[float]) -> list[Row]:
    """The most violated bottleneck of every goal that several options share; the most violated of these first.

    `depth` are the dearest-operand bounds of the goals.
    """
    network = Network(model, values, depth)
    bottlenecks = []
    for goal, members in enumerate(model.program.by_goal):
        if sum(values[option] > TOLERANCE for option in members) > 1:
            bottlenecks += _bottleneck(network, goal)
    return [row for _, _, row in sorted(bottlenecks, key=lambda item: item[:2])[:MOST_CUTS]]


def _bottleneck(network: Network, goal: int) -> list[tuple[float, int, Row]]:
    above = network.starve(goal)
    if above is None:
        return []
    row = network.cut(goal, above)
    violation = float(sum(network.values[c] * a for c, a in zip(row[0], row[1], strict=True)))
    return [(-violation, goal, row)] if violation > LEAST_VIOLATION / 2 else []
