"""The extraction problem of a tensor e-graph: its e-nodes in every implementation, and conversions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.implementations import Choices
from eqsat.costs.kernels.precision import NARROW, lowers
from eqsat.costs.model.cost import Cost
from eqsat.costs.model.model import CostModel
from eqsat.egraph.egraph import ABSENT, CONST, INPUT, OPAQUE, PROJECTION
from eqsat.egraph.snapshot import Snapshot, SnapshotNode
from eqsat.errors import UsageError
from eqsat.extract.problem.problem import Problem, ProblemNode, StateConversion
from eqsat.extract.tensors.fused import chains, least_before
from eqsat.extract.tensors.heads import attentions
from eqsat.extract.tensors.layouts import KernelsInStates, in_useful_layouts
from eqsat.extract.tensors.pricing import KernelOption, Pricing
from eqsat.extract.tensors.shared import shared_constants
from eqsat.extract.tensors.stated import stated_kernels
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.ops import OPS
from eqsat.language.terms import LAYOUTS, PLAIN, Attrs, BlockScale, Implementation, Scale, State, TensorType, ValueType
from eqsat.rewrites.rules.definitions import is_defined
from eqsat.system.deadline import check, watched

#: True if an operator with these attributes, on operands and with results of these types, runs where the result will.
Available: TypeAlias = Callable[[str, Attrs, Sequence[TensorType | None], Sequence[TensorType | None]], bool]
#: Operators of the e-graph that run nothing.
_SOURCES = frozenset({INPUT, CONST, ABSENT, PROJECTION})


def everything(op: str, attrs: Attrs, operands: Sequence[Any], results: Sequence[Any]) -> bool:
    """Return True: every operator is available."""
    return True


@dataclass(frozen=True)
class TensorProblem:
    """An extraction problem and its tensors: `leaders` are the classes by number, which those of splits and fetches
    follow, `states` the states, `options` the kernel of each node of the problem, `conversions` the cost of each
    conversion, `scales` those of classes held in integers, by class and precision."""

    problem: Problem
    snapshot: Snapshot
    leaders: tuple[int, ...]
    states: tuple[State, ...]
    options: tuple[KernelOption, ...]
    conversions: tuple[Cost, ...] = ()
    boundary: Mapping[str, State] = field(default_factory=dict)
    scales: Mapping[tuple[int, str], Scale | BlockScale] = field(default_factory=dict)

    def original(self) -> list[int]:
        """The nodes of the problem that stand for the original graph, run as it says."""
        originals = []
        for index, option in enumerate(self.options):
            plain = option.split is not None or option.stated or len(option.positions) == 1
            nodes = [self.snapshot.nodes[position] for position in option.positions]
            given = all(node.original is not None or node.op in _SOURCES for node in nodes)
            # Inputs come as the caller holds them, and constants are held in any state.
            there = not self.problem.nodes[index].operands
            plain = plain and all(i.is_plain for i in option.implementations) and not self.problem.nodes[index].state
            if there or (plain and given):
                originals.append(index)
        return originals


def tensor_problem(
    snapshot: Snapshot,
    model: CostModel,
    available: Available = everything,
    choices: Choices | None = None,
    boundary: Mapping[str, State] | None = None,
    *,
    contrib: bool = False,
    kept: Collection[tuple[int, ...]] = (),
) -> TensorProblem:
    """Price every e-node by the objective in each implementation; a class known before the program runs costs
    nothing, in whatever state it is held.

    Operators that are not `available` where the result will run are chosen only where the original has them. `boundary`
    are the states of inputs and outputs by name that are not plain. Kernels of several operators are offered where the
    device's backend makes them, or their times were measured; with `contrib`, those too that ONNX Runtime has as
    operators of its own. Of many such kernels those that cost least with all that they read are offered, and those of
    e-nodes with the numbers `kept`.
    """
    held = choices or Choices(), boundary or {}
    return _ProblemBuilder(snapshot, model, available, *held, contrib=contrib, kept=kept).build()


class _ProblemBuilder:
    def __init__(
        self,
        snapshot: Snapshot,
        model: CostModel,
        available: Available,
        choices: Choices,
        boundary: Mapping[str, State],
        *,
        contrib: bool,
        kept: Collection[tuple[int, ...]],
    ) -> None:
        self.contrib, self.kept = contrib, kept
        self.snapshot, self.model, self.available, self.choices = snapshot, model, available, choices
        self.boundary = boundary
        self.pricing = Pricing(snapshot, model)
        self.given = frozenset(n.op for n in snapshot.nodes if n.original is not None)
        self.leaders = tuple(sorted(snapshot.classes))
        self.index = {leader: i for i, leader in enumerate(self.leaders)}
        self.states: dict[State, int] = {PLAIN: 0}
        self.nodes: list[ProblemNode] = []
        self.options: list[KernelOption] = []

    def build(self) -> TensorProblem:
        self._check_boundary()
        for leader in self.leaders:
            if leader not in self.pricing.derived:
                for position in self.snapshot.classes[leader].nodes:
                    check()
                    self._offer(leader, position)
        self._drop_idle_layouts()
        singles = self._single_implementations()
        self._offer_splits()
        kept = partial(chains, before=partial(least_before, self.nodes, self.index), kept=self.kept)
        kinds = (kept, stated_kernels, *((attentions,) if self.contrib else ()))
        for chain in itertools.chain.from_iterable(kind(self.snapshot, self.pricing, singles) for kind in kinds):
            check()
            option = KernelOption(chain.positions, chain.cost, chain.implementations, chain.links, stated=chain.stated)
            self._add(chain.eclass, option, chain.operands, chain.implementations[-1].result, chain.price)
        roots = [(self.index[k], self._state(self.boundary.get(n, PLAIN))) for n, k in self.snapshot.roots.items()]
        self._share_constants()
        self._hold_constants(roots)
        self._keep_possible()
        conversions, costs = self._conversions(roots)
        problem = Problem(self.nodes, roots, conversions, len(self.states))
        found = (self.snapshot, self.leaders, tuple(self.states), tuple(self.options), tuple(costs))
        return TensorProblem(problem, *found, dict(self.boundary))

    def _state(self, state: State) -> int:
        return self.states.setdefault(state, len(self.states))

    def _runs_here(self, node: SnapshotNode) -> bool:
        """Return whether an e-node may be chosen: it runs where the result will, or the original has it."""
        if node.original is not None or node.op not in OPS:
            return True
        types, results = self.pricing.types(node), self.pricing.results(node)
        return _runs(node, self.given, types, self.model.device) and self.available(node.op, node.attrs, types, results)

    def _offer(self, leader: int, position: int) -> None:
        """Add the implementations of one e-node by itself."""
        node = self.snapshot.nodes[position]
        if not self._runs_here(node):
            return
        if node.op in _SOURCES or node.op == OPAQUE or self._only_plain():
            state = self.boundary.get(node.attrs["name"], PLAIN) if node.op == INPUT else PLAIN
            price, cost = self.pricing.operator(position)
            operands = [(k, PLAIN) for k in dict.fromkeys(node.operands)]
            self._add(leader, KernelOption((position,), cost), operands, state, price)
            return
        for implementation in self.pricing.implementations(node, self.choices):
            price, cost = self.pricing.operator(position, implementation)
            operands = list(dict.fromkeys(zip(node.operands, implementation.operands, strict=True)))
            option = KernelOption((position,), cost, (implementation,))
            self._add(leader, option, operands, implementation.result, price)

    def _offer_splits(self) -> None:
        """Add the operators that make several slices at once, and each slice as a result of one."""
        for number, split in enumerate(self.pricing.splits, start=len(self.leaders)):
            self.nodes.append(ProblemNode(number, ((self.index[split.source], 0),), split.price, 0, "split"))
            self.options.append(KernelOption(split.positions, split.cost, split=split))
            for position in split.positions:
                eclass = self.index[self.snapshot.nodes[position].eclass]
                if self._runs_here(self.snapshot.nodes[position]):
                    self.nodes.append(ProblemNode(eclass, ((number, 0),), 0.0, 0, "slice"))
                    self.options.append(KernelOption((position,), Cost()))

    def _share_constants(self) -> None:
        """Let kernels that share constants pay once, in a class that all of them need, for bringing these near."""
        singles = [
            (place, option.positions[0], next(iter(option.implementations), None))
            for place, option in enumerate(watched(self.options))
            if option.split is None and len(option.positions) == 1 and self.nodes[place].operands
        ]
        shared = shared_constants(self.pricing, singles)
        for number, one in enumerate(shared, start=len(self.leaders) + len(self.pricing.splits)):
            price = self.model.weigh(Cost(seconds=one.seconds))
            for place in one.places:
                node, option = self.nodes[place], self.options[place]
                cost = replace(option.cost, seconds=option.cost.seconds - one.seconds)
                self.options[place] = replace(option, cost=cost)
                self.nodes[place] = replace(
                    node, operands=(*node.operands, (number, 0)), cost=max(node.cost - price, 0.0)
                )
            fetch = Cost(seconds=one.seconds, borrowed=self.options[one.places[0]].cost.borrowed)
            self.nodes.append(ProblemNode(number, (), price, 0, "fetch"))
            self.options.append(KernelOption((one.constant,), fetch, fetch=True))

    def _only_plain(self) -> bool:
        return self.choices.layouts == ("row",) and self.choices.policy.is_exact

    def _add(
        self, leader: int, option: KernelOption, operands: Sequence[tuple[int, State]], state: State, price: float
    ) -> None:
        taken = tuple((self.index[k], self._state(s)) for k, s in operands)
        name = self.snapshot.nodes[option.positions[-1]].op
        self.nodes.append(ProblemNode(self.index[leader], taken, price, self._state(state), name))
        self.options.append(option)

    def _single_implementations(self) -> dict[int, list[Implementation]]:
        """The implementations offered of every e-node that is an operator on tensors, by its position."""
        offered: dict[int, list[Implementation]] = {}
        for option in watched(self.options):
            node = self.snapshot.nodes[option.positions[0]]
            if node.op in OPS and node.operands and len(node.types) == 1:
                plain = Implementation((PLAIN,) * len(node.operands), PLAIN)
                offered.setdefault(option.positions[0], []).append(
                    option.implementations[0] if option.implementations else plain
                )
        return offered

    def _drop_idle_layouts(self) -> None:
        """Drop the layouts that save nothing, or nearly nothing of what the original costs."""
        states = tuple(self.states)
        if all(state.layout == "row" for state in states):
            return
        constant = {self.index[leader] for leader in self.pricing.derived}
        bound = {self.index[leader] for leader in self._bound()}
        given = {p for p, node in enumerate(self.snapshot.nodes) if node.original is not None}
        useful = in_useful_layouts(KernelsInStates(self.nodes, self.options, states, constant, bound), given)
        self.nodes, self.options = [self.nodes[i] for i in useful], [self.options[i] for i in useful]

    def _hold_constants(self, roots: Sequence[tuple[int, int]]) -> None:
        """Offer each derived constant in every state in which it is read."""
        wanted: dict[int, set[int]] = {}
        for eclass, state in itertools.chain(roots, *(node.operands for node in watched(self.nodes))):
            wanted.setdefault(eclass, {0}).add(state)
        states = tuple(self.states)
        for leader in watched(self.pricing.derived):
            position = self.snapshot.recipes[leader]
            for number in sorted(wanted.get(self.index[leader], (0,))):
                price, cost = self.pricing.constant(leader, states[number])
                self._add(leader, KernelOption((position,), cost), [], states[number], price)

    def _keep_possible(self) -> None:
        """Drop nodes with an operand that nothing produces."""
        while True:
            provided = {n.eclass for n in self.nodes}
            possible = [i for i, n in enumerate(watched(self.nodes)) if all(c in provided for c, _ in n.operands)]
            if len(possible) == len(self.nodes):
                return
            self.nodes, self.options = [self.nodes[i] for i in possible], [self.options[i] for i in possible]

    def _conversions(self, roots: Sequence[tuple[int, int]]) -> tuple[list[StateConversion], list[Cost]]:
        """Casts and copies between the states of every class that is made in one state and could be read in another."""
        conversions: list[StateConversion] = []
        costs: list[Cost] = []
        states = tuple(self.states)
        if len(states) == 1:
            return conversions, costs
        used: dict[int, set[int]] = {}
        for node in watched(self.nodes):
            used.setdefault(node.eclass, set()).add(node.state)
            for eclass, state in node.operands:
                used.setdefault(eclass, set()).add(state)
        for eclass, state in roots:
            used.setdefault(eclass, set()).add(state)
        for eclass in sorted(used):
            if eclass >= len(self.leaders):
                continue  # of a split or a fetch, which are never converted
            leader = self.leaders[eclass]
            type = self.pricing.type(leader)
            if leader in self.pricing.derived or type is None or type.shape is None or len(used[eclass]) < 2:
                continue
            check()
            for source, target in _steps([states[s] for s in sorted(used[eclass])]):
                cost = self.model.conversion(type, source, target)
                price = self.model.conversion_price(type, cost)
                conversions.append(StateConversion(eclass, self._state(source), self._state(target), price))
                costs.append(cost)
        return conversions, costs

    def _bound(self) -> Iterator[int]:
        """The classes that come, or are wanted, in another layout than the row-major one."""
        names = {n.attrs["name"]: n.eclass for n in self.snapshot.nodes if n.op == INPUT} | self.snapshot.roots
        yield from (names[name] for name, state in self.boundary.items() if state.layout != "row")

    def _check_boundary(self) -> None:
        inputs = {n.attrs["name"]: n.eclass for n in self.snapshot.nodes if n.op == INPUT}
        for name, state in self.boundary.items():
            leaders = [names[name] for names in (inputs, self.snapshot.roots) if name in names]
            if not leaders:
                raise UsageError(
                    f"no input or output {name!r} to hold in a state",
                    expected="one of " + ", ".join(dict.fromkeys((*inputs, *self.snapshot.roots))),
                )
            for leader in leaders:
                _check_held(name, state, self.pricing.type(leader))


def _check_held(name: str, state: State, type: TensorType | None) -> None:
    """UsageError for a state that an input or output of this type cannot be held in."""
    if state.is_plain:
        return
    layout = LAYOUTS[state.layout]
    given = f"{name!r}, {'of no known shape' if type is None or type.shape is None else type}, as {state}"
    if layout.constants or layout.order(4) is None:
        orders = ", ".join(known.name for known in LAYOUTS.values() if known.order(4) is not None)
        raise UsageError(given, expected="an order of axes, which any caller can hold a tensor in: " + orders)
    if type is None or type.shape is None or not layout.fits(type):
        least, most = layout.ranks
        raise UsageError(given, expected=f"a tensor of {least} to {most} axes in the layout {layout.name}")
    if state.precision and (state.precision not in NARROW or not lowers(type)):
        raise UsageError(
            given,
            expected=f"a tensor of float32 held in {' or '.join(NARROW)}",
            remedy="leave out the precision for the type that the model states",
        )


def _steps(used: Sequence[State]) -> list[tuple[State, State]]:
    """The conversions that change one thing, among the states that layouts and precisions in use make up."""
    layouts = list(dict.fromkeys(s.layout for s in used if not LAYOUTS[s.layout].constants))
    precisions = list(dict.fromkeys(s.precision for s in used))
    grid = [State(layout, precision) for precision in precisions for layout in layouts]
    return [(a, b) for a in grid for b in grid if (a.layout == b.layout) != (a.precision == b.precision)]


def _runs(node: SnapshotNode, given: frozenset[str], types: Sequence[ValueType | None], device: Device) -> bool:
    """False for terms that are only ever computed at compile time, such as enlarge of a filter.

    A user's operator runs where one is among those `given`, a law of its declaration says how to write it out, or the
    device's programs have kernels for functions.
    """
    declared = OPS[node.op]
    if declared.onnx is not None or not node.operands:
        return True
    if declared.is_shipped:
        return False
    has_kernel = device.has_functions and function_of(node.op) is not None
    return has_kernel or node.op in given or is_defined(node.op, node.attrs, types, lacking())
