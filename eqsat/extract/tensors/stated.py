"""Kernels on integers that a model states, in an e-graph: operators between dequantisation and quantisation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from eqsat.costs.kernels.fusion import FusedKey, FusedOperator, Key
from eqsat.costs.kernels.regions import STATED, IntegerRegion, Made, images, regions
from eqsat.costs.model.graph_costs import kernel_key, region_cost
from eqsat.egraph.egraph import ABSENT
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.tensors.fused import FusedChain
from eqsat.extract.tensors.pricing import Pricing
from eqsat.language.ops import OPS
from eqsat.language.terms import PLAIN, Implementation, TensorType
from eqsat.system.deadline import check

#: Operators of quantised models that are worth a measurement of their own.
_OF_INTEGERS = frozenset(
    {"conv_integer", "dequantize_linear", "dynamic_quantize_linear", "matmul_integer", "quantize_linear", *STATED}
)


class ClassSpace:
    """The e-classes of a snapshot with the e-nodes that make them, as far as these are `offered`."""

    def __init__(self, snapshot: Snapshot, offered: Collection[int]) -> None:
        self.snapshot = snapshot
        self._made: dict[int, Made[int]] = {}
        self._makers: dict[int, list[Made[int]]] = {}
        for position in offered:
            node = snapshot.nodes[position]
            made = Made(position, node.op, node.attrs, tuple(map(self._given, node.operands)), node.eclass)
            self._made[position] = made
            self._makers.setdefault(node.eclass, []).append(made)

    def _given(self, leader: int) -> int | None:
        """An operand; None for one that is left out."""
        first = self.snapshot.nodes[self.snapshot.classes[leader].nodes[0]]
        return None if first.op == ABSENT else leader

    def every(self) -> Iterable[Made[int]]:
        """All e-nodes."""
        return self._made.values()

    def makers(self, value: int) -> Iterable[Made[int]]:
        """The e-nodes of a class."""
        return self._makers.get(value, ())

    def type(self, value: int) -> TensorType | None:
        """The type of a class."""
        type = self.snapshot.classes[value].type
        return type if isinstance(type, TensorType) else None

    def is_constant(self, value: int) -> bool:
        """True for a class that is known before the program runs."""
        return self.snapshot.classes[value].constant


def stated_kernels(snapshot: Snapshot, pricing: Pricing, offered: Collection[int]) -> Iterator[FusedChain]:
    """Each operator between dequantisation and quantisation as one kernel, where its time was measured."""
    if pricing.model.cost is not None:
        return
    for region, operators in _kernels(snapshot, pricing, offered):
        check()
        cost = region_cost(pricing.model, operators)
        chain = None if cost is None else _chain(snapshot, region)
        if cost is None or chain is None:
            continue
        positions, links, outside = chain
        ways = tuple(Implementation((PLAIN,) * len(linked), PLAIN) for linked in links)
        reads = tuple((leader, PLAIN) for leader in outside)
        eclass = snapshot.nodes[positions[-1]].eclass
        yield FusedChain(eclass, positions, ways, links, reads, cost, pricing.model.weigh(cost), stated=True)


def stated_keys(snapshot: Snapshot, pricing: Pricing) -> list[Key]:
    """The kernels of a quantised model whose times its choice rests on, with those in float32 beside them."""
    offered = [i for i, node in enumerate(snapshot.nodes) if node.op in OPS and node.operands and len(node.types) == 1]
    if not any(node.op in _OF_INTEGERS for node in snapshot.nodes):
        return []
    keys: dict[Key, None] = {}
    plain = [i for i, node in enumerate(snapshot.nodes) if node.op in _OF_INTEGERS]
    found = list(_kernels(snapshot, pricing, offered))
    plain += [region.core.place for region, _ in found]
    for _, model in pricing.model.parts:
        keys.update(dict.fromkeys(kernel_key(model, operators) for _, operators in found))
        for position in dict.fromkeys(plain):
            node = snapshot.nodes[position]
            keys[model.key(node.op, node.attrs, pricing.types(node), pricing.constants(node))] = None
    return [key for key in keys if all(one.is_measurable for one in FusedKey.of(key).members)]


def _kernels(
    snapshot: Snapshot, pricing: Pricing, offered: Collection[int]
) -> list[tuple[IntegerRegion[int], tuple[FusedOperator, ...]]]:
    """The regions with the kernels on integers that they run as."""
    integers = pricing.model.device.integers
    if not integers or not any(snapshot.nodes[i].op == "dequantize_linear" for i in offered):
        return []
    space = ClassSpace(snapshot, offered)
    found = list(regions(space, integers))
    shown = images(space, found)
    return [(region, region.operators(space, shown)) for region in found]


def _chain(
    snapshot: Snapshot, region: IntegerRegion[int]
) -> tuple[tuple[int, ...], tuple[tuple[int | None, ...], ...], tuple[int, ...]] | None:
    """The e-nodes of a region, those that make their operands, and what they read; None if that is their own result."""
    positions = tuple(made.place for made in region.steps)
    nodes = [snapshot.nodes[position] for position in positions]
    place = {node.eclass: index for index, node in enumerate(nodes)}
    if len(place) < len(nodes):
        return None
    links: list[tuple[int | None, ...]] = []
    outside: dict[int, None] = {}
    inner = {index: made.result for index, made in region.restored}
    for index, node in enumerate(nodes):
        linked: list[int | None] = []
        for number, operand in enumerate(node.operands):
            # What is restored at one operand only is read there alone.
            own = node is not nodes[len(positions) - 1 - _after(region)] or inner.get(number) == operand
            link = place.get(operand) if own else None
            if link is not None and link >= index:
                return None
            linked.append(link)
            if link is None:
                outside[operand] = None
        links.append(tuple(linked))
    if any(leader in place for leader in outside):
        return None
    return positions, tuple(links), tuple(outside)


def _after(region: IntegerRegion[int]) -> int:
    """The number of e-nodes after the operator of a region."""
    return sum(one is not None for one in (region.clamp, region.end))
