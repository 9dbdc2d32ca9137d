"""A solution put together again: the e-nodes of the graph it stands for, and the steps that compute it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat.costs.model.cost import Cost
from eqsat.egraph.decode import Decoded, decode
from eqsat.egraph.derived import DerivedConstants, fold_derived
from eqsat.egraph.egraph import ABSENT, CONST, INPUT, PROJECTION
from eqsat.egraph.snapshot import Snapshot, SnapshotNode
from eqsat.extract.problem.problem import Goal
from eqsat.extract.problem.program import operands_first
from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.pricing import KernelOption, Split
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.terms import PLAIN, BlockScale, Conversion, Graph, Held, Kernel, Node, Plan, Scale, State, Step
from eqsat.system.deadline import check


@dataclass(frozen=True)
class Assembled:
    """The graph of a solution: as decoded, with its constants folded, and as steps with the cost of each.

    `choice` says for each e-class of `snapshot` which e-node was chosen, as a position in it. A class that a solution
    makes in two ways, such as once inside a kernel and once for other readers, has a class of its own for each;
    `origins` says which class of the problem each of them is.
    """

    decoded: Decoded
    plan: Plan
    costs: tuple[Cost, ...]
    snapshot: Snapshot
    choice: dict[int, int]
    origins: Mapping[int, int] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        """The graph with its constants folded."""
        return self.plan.graph


def assemble(
    extraction: TensorProblem, solution: Solution, original: Graph, known: DerivedConstants | None = None
) -> Assembled:
    """The graph that a solution stands for, and its plan; `known` carries folded constants from one to the next."""
    return _Assembly(extraction, solution).assembled(original, known)


@dataclass(slots=True)
class _Made:
    """The results of a step before values have names: instances of classes."""

    option: KernelOption | None
    cost: Cost
    members: tuple[int, ...]
    operands: tuple[tuple[int, State], ...]
    result: tuple[int, State]
    source: State = PLAIN


class _Assembly:
    def __init__(self, extraction: TensorProblem, solution: Solution) -> None:
        self.extraction, self.solution = extraction, solution
        self.nodes = list(extraction.snapshot.nodes)
        self.classes = dict(extraction.snapshot.classes)
        self.choice: dict[int, int] = {}
        self.instances: dict[tuple[int, tuple[int, ...], bool], int] = {}
        self.held: dict[Goal, int] = {}
        self.index = {leader: i for i, leader in enumerate(extraction.leaders)}
        self.state = {state: i for i, state in enumerate(extraction.states)}
        self.made: list[_Made] = []
        self.splits: dict[int, Split] = {}
        self.unread: dict[int, Cost] = {}
        self.fetches: dict[int, Cost] = {}
        self.pieces: dict[int, dict[int, int]] = {}
        self.origins: dict[int, int] = {}

    def assembled(self, original: Graph, known: DerivedConstants | None) -> Assembled:
        converted = {self._target(c): c for c in self.solution.conversions}
        for goal in self._order(converted):
            check()
            if goal in converted:
                self._convert(goal, converted[goal])
            else:
                self._run(goal, self.extraction.options[self.solution.chosen[goal]])
        self._complete_constants()
        roots = {
            name: self.held[goal]
            for (name, _), goal in zip(self.extraction.snapshot.roots.items(), self._roots(), strict=True)
        }
        snapshot = replace(self.extraction.snapshot, nodes=tuple(self.nodes), classes=self.classes, roots=roots)
        decoded = decode(snapshot, self.choice, original)
        decoded = replace(decoded, graph=self._with_splits(decoded))
        graph = fold_derived(decoded.graph, known)
        steps, costs = self._steps(decoded, graph)
        if self.solution.schedule:
            graph = _ordered(graph, steps)
        plan = Plan(graph, tuple(steps), self.extraction.boundary, self._scales(decoded))
        return Assembled(decoded, plan, tuple(costs), snapshot, self.choice, self.origins)

    def _scales(self, decoded: Decoded) -> dict[tuple[str, str], Scale | BlockScale]:
        """The scales of values held in integers, by the names that values have."""
        scales = self.extraction.scales
        precisions = dict.fromkeys(precision for _, precision in scales)
        return {
            (decoded.names[instance], precision): scales[origin, precision]
            for instance, origin in self.origins.items()
            for precision in precisions
            if (origin, precision) in scales and instance in decoded.names
        }

    def _with_splits(self, decoded: Decoded) -> Graph:
        """The graph with the splits that were chosen, also where nobody reads some of the results."""
        graph = decoded.graph
        if not self.pieces:
            return graph
        nodes, types = list(graph.nodes), dict(graph.types)
        slices = {n.outputs[0]: i for i, n in enumerate(nodes) if n.op == "slice"}
        gone: set[int] = set()
        for number, pieces in self.pieces.items():
            split = self.splits[number]
            names = {position: decoded.names[instance] for position, instance in pieces.items()}
            places = sorted(slices[name] for name in set(names.values()) if name in slices)
            outputs = []
            for index, position in enumerate(split.positions):
                name = names.get(position) or _unused(f"{nodes[places[0]].inputs[0]}_part_{index}", types)
                types[name] = self.extraction.snapshot.nodes[position].types[0]
                outputs.append(name)
            known = sorted({nodes[i].name for i in places if nodes[i].name})
            joined = Node("split", nodes[places[0]].inputs, tuple(outputs), split.attrs, known[0] if known else "")
            nodes[places[0]] = joined
            gone.update(places[1:])
        return replace(graph, nodes=tuple(n for i, n in enumerate(nodes) if i not in gone), types=types)

    def _roots(self) -> list[Goal]:
        """The goal of each output, in their order."""
        boundary = self.extraction.boundary
        outputs = self.extraction.snapshot.roots.items()
        return [(self.index[k], self.state[boundary.get(name, PLAIN)]) for name, k in outputs]

    def _target(self, conversion: int) -> Goal:
        changed = self.extraction.problem.conversions[conversion]
        return changed.eclass, changed.target

    def _needs(self, goal: Goal, converted: dict[Goal, int]) -> tuple[Goal, ...]:
        if goal in converted:
            return ((goal[0], self.extraction.problem.conversions[converted[goal]].source),)
        return self.extraction.problem.nodes[self.solution.chosen[goal]].operands

    def _order(self, converted: dict[Goal, int]) -> Sequence[Goal]:
        """The goals of the solution, operands first: as scheduled, where the solution says so."""
        roots = reversed(list(dict.fromkeys(self._roots())))
        return self.solution.schedule or operands_first(roots, lambda goal: reversed(self._needs(goal, converted)))

    def _convert(self, goal: Goal, conversion: int) -> None:
        states, changed = self.extraction.states, self.extraction.problem.conversions[conversion]
        instance = self.held[goal[0], changed.source]
        self.held[goal] = instance
        cost = self.extraction.conversions[conversion]
        self.made.append(_Made(None, cost, (), (), (instance, states[changed.target]), states[changed.source]))

    def _run(self, goal: Goal, option: KernelOption) -> None:
        """The instances of a kernel's e-nodes, made from those that hold its operands."""
        if option.fetch:
            self.fetches[goal[0]] = option.cost
            return
        if option.split is not None:
            self.splits[goal[0]] = option.split
            self.held[goal] = self.held[self.index[option.split.source], 0]
            self.unread[goal[0]] = option.cost
            return
        whole = next((c for c, _ in self.extraction.problem.nodes[self.solution.chosen[goal]].operands), -1)
        recipe = self.extraction.snapshot.recipes.get(self.extraction.leaders[goal[0]])
        constant = (
            not self.extraction.problem.nodes[self.solution.chosen[goal]].operands and recipe == option.positions[0]
        )
        members: list[int] = []
        outside: dict[tuple[int, State], None] = {}
        for place, position in enumerate(option.positions):
            node = self.extraction.snapshot.nodes[position]
            links = option.links[place] if option.links else (None,) * len(node.operands)
            taken = option.implementations[place].operands if option.implementations else (PLAIN,) * len(node.operands)
            operands: list[int] = []
            for leader, link, state in zip(node.operands, links, taken, strict=True):
                if constant:
                    operands.append(leader)
                elif link is not None:
                    operands.append(members[link])
                elif whole in self.splits:
                    operands.append(self.held[whole, 0])
                    outside[operands[-1], state] = None
                else:
                    operands.append(self.held[self.index[leader], self.state[state]])
                    outside[operands[-1], state] = None
            members.append(self._instance(position, node, tuple(operands), whole in self.splits))
        cost = option.cost
        if whole in self.splits:
            self.pieces.setdefault(whole, {})[option.positions[0]] = members[-1]
            cost = self.unread.pop(whole, Cost())
        for needed, _ in self.extraction.problem.nodes[self.solution.chosen[goal]].operands:
            cost += self.fetches.pop(needed, Cost())  # the first reader of shared constants brings them near
        self.held[goal] = members[-1]
        state = self.extraction.states[goal[1]]
        reads = () if constant else tuple(outside)
        self.made.append(_Made(option, cost, tuple(members), reads, (members[-1], state)))

    def _instance(self, position: int, node: SnapshotNode, operands: tuple[int, ...], piece: bool) -> int:
        """The class of an e-node over instances of its operands: its own where that is free, else one of its own.

        A slice that is run by itself is another instance than the same one as a piece of a split.
        """
        known = self.instances.get((position, operands, piece))
        if known is not None:
            return known
        leader = origin = node.eclass
        if leader in self.choice:
            leader = -1 - len(self.nodes)
            self.classes[leader] = replace(self.classes[node.eclass], values=(), nodes=(len(self.nodes),))
        if leader != node.eclass or operands != node.operands:
            position_now = len(self.nodes)
            self.nodes.append(replace(node, eclass=leader, operands=operands))
        else:
            position_now = position
        self.choice[leader] = position_now
        self.origins[leader] = origin
        self.instances[position, operands, piece] = leader
        return leader

    def _complete_constants(self) -> None:
        """Choose the e-nodes that derived constants are made of, by their recipes."""
        snapshot = self.extraction.snapshot
        stack = [k for k, position in self.choice.items() if position == snapshot.recipes.get(k)]
        while stack:
            for operand in snapshot.nodes[self.choice[stack.pop()]].operands:
                if operand not in self.choice:
                    self.choice[operand] = snapshot.recipes.get(operand, snapshot.classes[operand].nodes[0])
                    stack.append(operand)

    def _steps(self, decoded: Decoded, graph: Graph) -> tuple[list[Step], list[Cost]]:
        """The steps by the names that values have; the pieces of a split are one kernel."""
        listing = _StepList(graph)
        unread: dict[int, Cost] = {}
        for made in self.made:
            check()
            instance, state = made.result
            value = decoded.names.get(instance)
            node = self.nodes[self.choice[instance]]
            if made.option is None:
                if value in listing.producers or value in graph.inputs:  # what is folded has no step
                    listing.add(Conversion(value, made.source, state), made.cost)
            elif node.op in (INPUT, CONST, ABSENT):
                continue
            elif value is None:
                unread[instance] = made.cost  # several results at once: counted where the first of them is read
            elif value in listing.producers:
                cost = unread.pop(node.operands[0], Cost()) if node.op == PROJECTION else made.cost
                if len(listing.producers[value].outputs) > 1:
                    listing.add_whole(value, cost)
                elif made.option.stated:
                    listing.add_each([decoded.names.get(member) for member in made.members], cost)
                else:
                    listing.add(self._kernel(made, decoded, value), cost)
        return listing.finished()

    def _kernel(self, made: _Made, decoded: Decoded, value: str) -> Kernel:
        names = tuple(decoded.names[m] for m in made.members)
        operands = dict.fromkeys(
            Held(name, state) for i, state in made.operands if (name := decoded.names.get(i)) is not None
        )
        option = made.option
        arithmetic = option.implementations[0].arithmetic if option is not None and option.implementations else ""
        return Kernel(names, tuple(operands), (Held(value, made.result[1]),), arithmetic)


def _ordered(graph: Graph, steps: Sequence[Step]) -> Graph:
    """The graph with its nodes in the order of the steps that run them."""
    place: dict[str, int] = {}
    for step in steps:
        if isinstance(step, Kernel):
            for value in (*step.nodes, *_values(step)):
                place.setdefault(value, len(place))
    return replace(graph, nodes=tuple(sorted(graph.nodes, key=lambda n: min(place[v] for v in n.outputs if v))))


class _StepList:
    """Steps as they are added, each node of the graph in one of them at least."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers: dict[str, Node] = {v: node for node in graph.nodes for v in node.outputs if v}
        self.steps: list[Step] = []
        self.costs: list[Cost] = []
        self.whole: dict[tuple[str, ...], int] = {}

    def add(self, step: Step, cost: Cost) -> None:
        self.steps.append(step)
        self.costs.append(cost)

    def add_whole(self, value: str, cost: Cost) -> None:
        """The node with several results that makes a value, once; its cost may come in parts."""
        node = self.producers[value]
        if node.outputs in self.whole:
            self.costs[self.whole[node.outputs]] += cost
            return
        self.whole[node.outputs] = len(self.steps)
        self.add(_plain_kernel(node), cost)

    def add_each(self, values: Sequence[str | None], cost: Cost) -> None:
        """The nodes that make values, each as a kernel of its own, the last with the cost of all."""
        done = {one for step in self.steps if isinstance(step, Kernel) for one in step.nodes}
        for value in values:
            if value in self.producers and value not in done:
                self.add(_plain_kernel(self.producers[value]), cost if value == values[-1] else Cost())

    def finished(self) -> tuple[list[Step], list[Cost]]:
        """All steps, first those that compute from constants alone because they were not folded."""
        covered = {v for step in self.steps if isinstance(step, Kernel) for v in (*step.nodes, *_values(step))}
        first = [_plain_kernel(n) for n in self.graph.nodes if covered.isdisjoint(v for v in n.outputs if v)]
        return [*first, *self.steps], [*([Cost()] * len(first)), *self.costs]


def _unused(base: str, taken: Mapping[str, object]) -> str:
    names = itertools.chain((base,), (f"{base}_{i}" for i in itertools.count()))
    return next(name for name in names if name not in taken)


def _values(kernel: Kernel) -> tuple[str, ...]:
    return tuple(held.value for held in kernel.results)


def _plain_kernel(node: Node) -> Kernel:
    outputs = [v for v in node.outputs if v]
    operands = dict.fromkeys(Held(v, PLAIN) for v in node.inputs if v is not None)
    return Kernel((outputs[0],), tuple(operands), tuple(Held(v, PLAIN) for v in outputs))
