"""The extraction problem: choose one implementation for every tensor that is needed, at least total cost."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.errors import ExtractionError
from eqsat.extract.problem.limits import PEAK, Limit, Memory
from eqsat.extract.problem.program import ExtractionProgram, derivable
from eqsat.system.deadline import watched

Goal = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ProblemNode:
    """One way to deliver e-class `eclass` in `state`, from `operands` given as (e-class, state) pairs, at `cost`.

    Two implementations of one e-node are two nodes. `name` is used in messages only.
    """

    eclass: int
    operands: tuple[tuple[int, int], ...]
    cost: float
    state: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class StateConversion:
    """Delivers `eclass` in state `target` from the same class in state `source`: a cast or a layout copy.

    A conversion is paid once and shared by all consumers of (eclass, target). Its source may itself be converted.
    """

    eclass: int
    source: int
    target: int
    cost: float


class Problem:
    """Nodes, the roots that must be delivered, the conversions between states of a class, and the limits of resources.

    The cost of a solution is its DAG cost: the sum over the distinct chosen nodes and conversions; where `memory` has a
    weight, its share of the peak is added. Raises ExtractionError at construction for unknown operands, costs that are
    not finite and non-negative, states out of range, amounts that do not fit, and roots that nothing acyclic delivers.

    >>> Problem([ProblemNode(0, (), 1.0), ProblemNode(1, ((0, 0),), 2.0)], roots=[(1, 0)]).roots
    ((1, 0),)
    """

    def __init__(
        self,
        nodes: Sequence[ProblemNode],
        roots: Sequence[tuple[int, int]],
        conversions: Sequence[StateConversion] = (),
        states: int = 1,
        limits: Sequence[Limit] = (),
        memory: Memory | None = None,
    ) -> None:
        self.nodes = tuple(nodes)
        self.roots: tuple[Goal, ...] = tuple(dict.fromkeys((int(c), int(s)) for c, s in roots))
        self.conversions = tuple(conversions)
        self.states = states
        self.limits = tuple(limits)
        self.memory = memory
        _check_counts(self)
        classes = {node.eclass for node in self.nodes}
        for node in watched(self.nodes):
            _check_node(node, classes, states)
        for conversion in self.conversions:
            _check_conversion(conversion, classes, states)
        _check_total(self)
        _check_limits(self)
        _check_roots(self, classes)

    @property
    def is_limited(self) -> bool:
        """True if a choice of least cost may not suffice: a resource is bounded, or peak memory has a price."""
        return any(limit.most < math.inf for limit in self.limits) or (self.memory is not None and self.memory.matters)

    def variant(
        self, *, costs: Sequence[float] | None = None, limits: Sequence[Limit] = (), memory: Memory | None = None
    ) -> Problem:
        """The same choices with other limits, and other costs if given: those of the nodes, then the conversions."""
        other = copy.copy(self)
        other.limits, other.memory = tuple(limits), memory
        if costs is not None:
            program, goals = self._compiled
            other.nodes = tuple(dataclasses.replace(n, cost=c) for n, c in zip(self.nodes, costs, strict=False))
            paid = costs[len(self.nodes) :]
            other.conversions = tuple(
                dataclasses.replace(n, cost=c) for n, c in zip(self.conversions, paid, strict=True)
            )
            other.__dict__["_compiled"] = dataclasses.replace(program, costs=list(costs)), goals
        _check_limits(other)
        return other

    @property
    def program(self) -> ExtractionProgram:
        """The and-or form that the solvers work on: nodes first, conversions after them, in the order given."""
        return self._compiled[0]

    @property
    def goals(self) -> tuple[Goal, ...]:
        """(e-class, state) of every goal of `program`, by index."""
        return self._compiled[1]

    @cached_property
    def _compiled(self) -> tuple[ExtractionProgram, tuple[Goal, ...]]:
        goals: dict[Goal, int] = {}

        def index(goal: Goal) -> int:
            return goals.setdefault(goal, len(goals))

        roots = [index(root) for root in self.roots]
        provides = [index((node.eclass, node.state)) for node in watched(self.nodes)]
        needs = [tuple(sorted({index(goal) for goal in node.operands})) for node in watched(self.nodes)]
        costs = [float(node.cost) for node in self.nodes]
        for conversion in watched(self.conversions):
            provides.append(index((conversion.eclass, conversion.target)))
            needs.append((index((conversion.eclass, conversion.source)),))
            costs.append(float(conversion.cost))
        program = ExtractionProgram(
            goals=len(goals),
            roots=roots,
            provides=provides,
            needs=needs,
            costs=costs,
            groups=[eclass for eclass, _ in goals],
            natives=len(self.nodes),
        )
        return program, tuple(goals)

    def describe(self, goal: Goal) -> str:
        """The name of a goal in messages."""
        eclass, state = goal
        return f"e-class {eclass}" if self.states == 1 else f"e-class {eclass} in state {state}"


def _label(node: ProblemNode) -> str:
    return f"e-node {node.name!r} of e-class {node.eclass}" if node.name else f"an e-node of e-class {node.eclass}"


def _check_counts(problem: Problem) -> None:
    if not problem.nodes:
        raise ExtractionError(
            "the extraction problem has no e-nodes",
            expected="at least one e-node",
            remedy="add the e-nodes of the e-graph before extracting",
        )
    if not problem.roots:
        raise ExtractionError(
            "the extraction problem has no roots",
            expected="at least one root",
            remedy="name the e-classes of the graph's outputs as roots",
        )
    if problem.states < 1:
        raise ExtractionError(f"the extraction problem has {problem.states} states", expected="at least one state")


def _check_cost(cost: float, where: str) -> None:
    if not (math.isfinite(cost) and cost >= 0):
        raise ExtractionError(
            f"cost {cost!r}",
            where=where,
            expected="a finite, non-negative number",
            remedy="leave out an implementation that cannot be used, instead of giving it an infinite cost",
        )


def _check_state(state: int, states: int, where: str) -> None:
    if not 0 <= state < states:
        raise ExtractionError(f"state {state}", where=where, expected=f"a state from 0 to {states - 1}")


def _check_node(node: ProblemNode, classes: set[int], states: int) -> None:
    if not (math.isfinite(node.cost) and node.cost >= 0):
        _check_cost(node.cost, _label(node))
    if not 0 <= node.state < states:
        _check_state(node.state, states, _label(node))
    for eclass, state in node.operands:
        if eclass not in classes:
            raise ExtractionError(
                f"operand e-class {eclass} has no e-nodes",
                where=_label(node),
                expected="operands among the problem's e-classes",
                remedy="include every e-class that an e-node refers to",
            )
        if not 0 <= state < states:
            _check_state(state, states, _label(node))


def _check_conversion(conversion: StateConversion, classes: set[int], states: int) -> None:
    where = f"conversion of e-class {conversion.eclass} from state {conversion.source} to {conversion.target}"
    _check_cost(conversion.cost, where)
    _check_state(conversion.source, states, where)
    _check_state(conversion.target, states, where)
    if conversion.eclass not in classes:
        raise ExtractionError(f"e-class {conversion.eclass} has no e-nodes", where=where)
    if conversion.source == conversion.target:
        raise ExtractionError("source and target state are the same", where=where, expected="two states")


def _check_total(problem: Problem) -> None:
    """Costs are added up, so that their sum has to be a number too."""
    total = sum(node.cost for node in problem.nodes) + sum(conversion.cost for conversion in problem.conversions)
    if math.isinf(total):
        dearest = max(problem.nodes, key=lambda node: node.cost)
        eclass = problem.describe((dearest.eclass, dearest.state))
        raise ExtractionError(
            f"the costs add up to more than 1.8e308, with {dearest.cost!r} alone",
            where=f"e-node {dearest.name!r} of {eclass}" if dearest.name else f"an e-node of {eclass}",
            expected="costs whose sum is a finite number",
            remedy="give costs in a larger unit",
        )


def _check_limits(problem: Problem) -> None:
    names: set[str] = set()
    for limit in problem.limits:
        limit.check(len(problem.nodes), len(problem.conversions))
        if limit.name in names or limit.name == PEAK:
            raise ExtractionError(
                f"two limits of {limit.name!r}",
                expected="one limit for a resource",
                remedy=f"{PEAK} is limited by Memory" if limit.name == PEAK else "keep the tighter one",
            )
        names.add(limit.name)
    if problem.memory is not None:
        _check_memory(problem, problem.memory)


def _check_memory(problem: Problem, memory: Memory) -> None:
    for goal, size in memory.sizes.items():
        if not (math.isfinite(size) and size >= 0):
            raise ExtractionError(
                f"size {size!r}", where=problem.describe(goal), expected="a finite, non-negative number of bytes"
            )
    if math.isnan(memory.most) or memory.most < 0:
        raise ExtractionError(f"most={memory.most!r}", where=f"limit {PEAK!r}", expected="a number of 0 or more")
    _check_cost(memory.weight, "the weight of peak memory")
    natives = len(problem.nodes)
    for option, operand in memory.aliases.items():
        if not 0 <= option < natives + len(problem.conversions):
            raise ExtractionError(f"alias of node or conversion {option}", expected="one that the problem has")
        if option < natives:
            operands = problem.nodes[option].operands
        else:
            conversion = problem.conversions[option - natives]
            operands = ((conversion.eclass, conversion.source),)
        if operand not in operands:
            raise ExtractionError(
                f"a view of {problem.describe(operand)}, which is none of its operands",
                where=f"alias of node or conversion {option}",
                expected="the operand whose storage the result shares",
            )


def _check_roots(problem: Problem, classes: set[int]) -> None:
    for eclass, state in problem.roots:
        if eclass not in classes:
            raise ExtractionError(
                f"root e-class {eclass} has no e-nodes",
                expected="roots among the problem's e-classes",
                remedy="extract the root's e-nodes too",
            )
        _check_state(state, problem.states, f"root e-class {eclass}")
    can = derivable(problem.program)
    for index, root in enumerate(problem.program.roots):
        if not can[root]:
            raise ExtractionError(
                f"{problem.describe(problem.roots[index])} is a root that no acyclic choice of e-nodes delivers",
                expected="a chain of e-nodes from leaves to every root",
                remedy=_stuck(problem, root, can),
            )


def _stuck(problem: Problem, root: int, can: list[bool]) -> str:
    """The reason why nothing delivers the root: operands are followed until a class repeats or nothing provides it."""
    program, seen, goal = problem.program, [root], root
    while True:
        blocked = [need for o in program.by_goal[goal] for need in program.needs[o] if not can[need]]
        if not blocked:
            return f"{problem.describe(problem.goals[goal])} has no e-node or conversion that delivers it"
        goal = blocked[0]
        if goal in seen:
            loop = [*seen[seen.index(goal) :], goal]
            return "these depend on each other: " + " -> ".join(problem.describe(problem.goals[g]) for g in loop)
        seen.append(goal)
