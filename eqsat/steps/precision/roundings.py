"""Scales of the values and weights that kernels on integers would round, from data, and how far each moves outputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from eqsat.egraph.egraph import ABSENT, CONST
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import EqsatError
from eqsat.extract.tensors.assembly import Assembled
from eqsat.extract.tensors.integers import IntegerKernel, Roundings
from eqsat.language.graphs.packed import outputs_axis
from eqsat.language.ops import OPS
from eqsat.language.terms import PACKINGS, BlockScale, Constant, Graph, Node, Scale, ValueType
from eqsat.quantisation.blocks import block_scale
from eqsat.quantisation.ranges import Observer, RangeMethod
from eqsat.quantisation.scales import channel_axis
from eqsat.quantisation.sensitivity import RoundedWeights, Sensitivities, recorder, sensitivities
from eqsat.report.report import Progress
from eqsat.runtime.backend import execute
from eqsat.steps.log import Log
from eqsat.steps.precision.schemes import PROCESSORS, RoundingScheme
from eqsat.steps.precision.weights import adjusted_weights
from eqsat.steps.settings import Settings
from eqsat.system.deadline import check

Batch = Mapping[str, Any]

#: Seconds that single roundings may be measured for.
SECONDS = 90.0
#: The error from which a single rounding is not offered where no budget is stated.
_MOST = 0.5


@dataclass(frozen=True)
class MeasuredRoundings:
    """Roundings with their scales and errors, the interaction of all of them, and the batches they were measured on.

    `refused` are products with a form of weights that moves the outputs too far by itself.
    """

    roundings: Roundings
    interaction: float
    batches: int
    unmeasured: int
    refused: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Calibration:
    """The values of a graph, chosen in float32, that kernels on integers would round."""

    settings: Settings
    log: Log
    assembled: Assembled
    kernels: Sequence[IntegerKernel]
    scheme: RoundingScheme = PROCESSORS
    _computed: dict[int, Constant | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def graph(self) -> Graph:
        """The graph that values belong to, its constants folded."""
        return self.assembled.graph

    def measured(self, batches: Sequence[Batch], others: Sequence[Batch] = ()) -> MeasuredRoundings:
        """Scales from all batches, and the error of each rounding by itself, on as many as there is time for.

        Weights are rounded for the batches too, and where that is no better on the `others` one by one.
        """
        copies = self._copies()
        scales = self._scales(batches, copies)
        placed = {k: v for k, v in scales.items() if copies.get(k, k) == k}
        wanted = dict.fromkeys((k.weights, k.packing) for k in self.kernels if k.weights is not None)
        rounded = {(p, how): one for p, how in wanted if (one := self._weights(p, how)) is not None}
        adjusts = self.scheme.adjusts and "round" in self.settings.choices.policy.adjust
        if others and adjusts and self.settings.data is not None:
            rounded = adjusted_weights(self.graph, rounded, batches, others, self._say)
        filters = {p: one for (p, how), one in rounded.items() if not how}
        packed = {(p, how): one for (p, how), one in rounded.items() if how}
        ours = [k for k in self.kernels if not k.packing]
        online = {p: filters[p] for k in ours if k.online and (p := k.weights) in filters}
        static = {p: filters[p] for k in ours if not k.online and (p := k.weights) in filters}
        found: Sensitivities[tuple[str, int]] = sensitivities(
            self.graph,
            {("value", k): (self._name(k), scale) for k, scale in placed.items()},
            {("weights", p): one for p, one in static.items()},
            {("online", p): one for p, one in online.items()} | {(how, p): one for (p, how), one in packed.items()},
            batches,
            order=self._order(copies),
            seconds=SECONDS,
            most=_MOST if self.settings.budget is None else self.settings.budget,
            apart=_alternatives(packed, filters),
            follow=lambda done, count: self._say(f"rounding {done + 1} of {count}"),
            should_stop=self.settings.options.should_stop,
        )
        errors = found.errors
        values = {
            k: (scales[k], errors["value", copies.get(k, k)]) for k in scales if ("value", copies.get(k, k)) in errors
        }
        roundings = Roundings(
            values,
            {
                p: (one.scale, errors.get(("weights", p), 0.0))
                for p, one in filters.items()
                if isinstance(one.scale, Scale) and self._known(errors, p)
            },
            {p: errors["online", p] for p in online if ("online", p) in errors},
            frozenset(k for k, root in copies.items() if k != root),
            {
                (p, how): (one.scale, errors[how, p])
                for (p, how), one in packed.items()
                if isinstance(one.scale, BlockScale) and (how, p) in errors
            },
        )
        forms = {("weights", p) for p in static} | {("online", p) for p in online} | {(how, p) for p, how in packed}
        refused = frozenset(p for _, p in forms - found.unmeasured - errors.keys())
        return MeasuredRoundings(roundings, found.interaction, found.batches, len(found.unmeasured), refused)

    def _order(self, copies: Mapping[int, int]) -> Iterator[tuple[str, int]]:
        """The roundings that kernels need, those of the first kernels first: the ones that save most."""
        for kernel in self.kernels:
            if kernel.weights is not None:
                yield kernel.packing or ("online" if kernel.online else "weights"), kernel.weights
            yield from (("value", copies.get(k, k)) for k in _held(kernel) if not kernel.online)

    def _known(self, errors: Mapping[tuple[str, int], float], position: int) -> bool:
        return ("weights", position) in errors or ("online", position) in errors

    def _say(self, detail: str) -> None:
        self.log.say(Progress("calibrate", detail=detail))

    def _name(self, leader: int) -> str:
        return self.assembled.decoded.names[leader]

    def _copies(self) -> dict[int, int]:
        """For classes that only hold elements of another one, that class: they have its scale."""
        source: dict[int, int] = {}
        nodes = self.assembled.snapshot.nodes
        for kernel in self.kernels:
            declared = OPS[nodes[kernel.positions[-1]].op]
            alone = len(kernel.positions) == 1 and len(kernel.reads) == 1 and kernel.reads[0] != kernel.eclass
            if alone and (declared.movement or declared.selects) and declared.name != "concat":
                source[kernel.eclass] = kernel.reads[0]
        roots: dict[int, int] = {}
        for leader in source:
            root, seen = leader, {leader}
            while root in source and source[root] not in seen:
                root = source[root]
                seen.add(root)
            roots[leader] = root
        return roots

    def _scales(self, batches: Sequence[Batch], copies: Mapping[int, int]) -> dict[int, Scale]:
        """The scale of each class that is read or made in integers."""
        wanted = dict.fromkeys(copies.get(k, k) for kernel in self.kernels for k in _held(kernel))
        names = {leader: self._name(leader) for leader in wanted if leader in self.assembled.decoded.names}
        observers = {leader: Observer() for leader in names}
        read = recorder(self.graph, tuple(dict.fromkeys(names.values())))
        for number, batch in enumerate(batches):
            check()
            self._say(f"batch {number + 1} of {len(batches)}")
            values = read(batch)
            for leader, observer in observers.items():
                observer.see(np.asarray(values[names[leader]]))
        # A value that was infinite, such as a mask, has no scale.
        method = cast(RangeMethod, self.settings.choices.policy.ranges)
        seen = {leader: observer for leader, observer in observers.items() if not observer.excluded}
        scales = {leader: self.scheme.value(observer, method) for leader, observer in seen.items()}
        every = dict.fromkeys(k for kernel in self.kernels for k in _held(kernel))
        return {k: scales[copies.get(k, k)] for k in every if copies.get(k, k) in scales}

    def _weights(self, position: int, packing: str) -> RoundedWeights | None:
        """A product with its constants, each output channel by a step of its own, or each block of a packing.

        None where a constant is not known here.
        """
        node, classes = self.assembled.snapshot.nodes[position], self.assembled.snapshot.classes
        addend = ""
        if len(node.operands) > 2 and not classes[node.operands[2]].constant:
            addend = self._name(node.operands[2])
        constants = [self._constant(leader) for leader in node.operands[1 : 2 if addend else None]]
        known = tuple(constant for constant in constants if constant is not None)
        if len(known) < len(constants):
            return None
        weights_ = known[0].array
        scale: Scale | BlockScale
        # Where operators on integers are written for OpenVINO: it reads scales of channels along another axis.
        whole = self.settings.options.quantised == "operators" and self.settings.backend == "openvino"
        if packing:
            scale = block_scale(weights_, outputs_axis(node.attrs), PACKINGS[packing])
        else:
            scale = self.scheme.weights(weights_, None if whole else channel_axis(node.op, node.attrs, weights_.ndim))
        product = Node(node.op, (), (), node.attrs)
        return RoundedWeights(self._name(node.eclass), self._name(node.operands[0]), product, known, scale, addend)

    def _constant(self, leader: int) -> Constant | None:
        """A constant class as the graph has it, as it came, or as it is computed from such."""
        name = self.assembled.decoded.names.get(leader)
        if name is not None and name in self.graph.constants:
            return self.graph.constants[name]
        if leader not in self._computed:
            self._computed[leader] = computed_constant(self.assembled.snapshot, leader)
        return self._computed[leader]


def _alternatives(packed: Collection[tuple[int, str]], others: Collection[int]) -> Collection[tuple[str, int]]:
    """The roundings of packed weights beside which a product has another one: no two are ever made at once.

    `others` are the products that may have weights in int8.
    """
    first = dict.fromkeys(others, "")
    for position, how in packed:
        first.setdefault(position, how)
    return [(how, position) for position, how in packed if first[position] != how]


def _held(kernel: IntegerKernel) -> Iterator[int]:
    yield from kernel.reads
    if not kernel.floats:
        yield kernel.eclass


def computed_constant(snapshot: Snapshot, leader: int) -> Constant | None:
    """The tensor of a constant class, computed by its recipe; None for one that has none, or cannot be computed."""
    nodes: dict[int, Node] = {}
    constants: dict[str, Constant] = {}
    types: dict[str, ValueType] = {}
    stack = [leader]
    while stack:
        one = stack.pop()
        if one in nodes or f"c{one}" in constants:
            continue
        if one not in snapshot.recipes:
            return None
        recipe = snapshot.nodes[snapshot.recipes[one]]
        if recipe.op == CONST:
            constants[f"c{one}"] = snapshot.constants[recipe.attrs["index"]]
            types[f"c{one}"] = constants[f"c{one}"].type
            continue
        type = recipe.types[0] if len(recipe.types) == 1 else None
        absent = [snapshot.nodes[snapshot.classes[k].nodes[0]].op == ABSENT for k in recipe.operands]
        if type is None:
            return None
        types[f"c{one}"] = type
        given = tuple(None if gone else f"c{k}" for k, gone in zip(recipe.operands, absent, strict=True))
        nodes[one] = Node(recipe.op, given, (f"c{one}",), recipe.attrs)
        stack += [k for k, gone in zip(recipe.operands, absent, strict=True) if not gone]
    if not nodes:
        return constants[f"c{leader}"]
    # Recipes are listed after those of what they read.
    ordered = tuple(nodes[one] for one in snapshot.recipes if one in nodes)
    try:
        graph = Graph("constant", (), {"constant": f"c{leader}"}, ordered, constants, types)
        return Constant.of(execute(graph, {}, "numpy")["constant"])
    except EqsatError:
        return None
