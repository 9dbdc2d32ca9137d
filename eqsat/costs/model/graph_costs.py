"""The cost of a whole graph: of its operators, of kernels on integers that some of them run as, and of constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat.costs.kernels.applications import applications, is_free, tensor_type
from eqsat.costs.kernels.fusion import FusedOperator, Key
from eqsat.costs.kernels.regions import IntegerRegion, Made, images, regions
from eqsat.costs.model.cost import Cost, GraphCost, added
from eqsat.costs.model.prices import OperatorPrices
from eqsat.language.ops import OPS
from eqsat.language.terms import Graph, Node, TensorType
from eqsat.system.deadline import check


def kernel_key(model: OperatorPrices, operators: Sequence[FusedOperator]) -> Key:
    """The key that one operator, or several in one kernel, is measured under."""
    if len(operators) > 1:
        return model.fused_key(operators)
    (one,) = operators
    return model.key(one.op, one.attrs, one.operands, one.const, one.implementation)


def measured_cost(model: OperatorPrices, operators: Sequence[FusedOperator]) -> Cost | None:
    """The cost of one operator, or several in one kernel; None where that was not measured at one of the sizes."""
    if any(kernel_key(part, operators).text not in part.measured for _, part in model.parts):
        return None
    if len(operators) > 1:
        return model.fused(operators)
    (one,) = operators
    return model.node(one.op, one.attrs, one.operands, one.results, one.const, one.implementation)


def region_cost(model: OperatorPrices, operators: Sequence[FusedOperator]) -> Cost | None:
    """The cost of a kernel on integers that a model states: None where it was not measured, at one of the sizes."""
    cost = None if model.cost is not None else measured_cost(model, operators)
    # What the model states is no rounding that was chosen.
    return None if cost is None else replace(cost, error=0.0)


class GraphSpace:
    """A graph as applications of operators."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def every(self) -> Iterable[Made[str]]:
        """All nodes of one result."""
        return [_made(node) for node in self.graph.nodes if _is_plain(node)]

    def makers(self, value: str) -> Iterable[Made[str]]:
        """The node that makes a value."""
        node = self.graph.producers.get(value)
        return [_made(node)] if node is not None and _is_plain(node) else []

    def type(self, value: str) -> TensorType | None:
        """The type of a value."""
        return tensor_type(self.graph, value)

    def is_constant(self, value: str) -> bool:
        """True for a constant."""
        return value in self.graph.constants


def _is_plain(node: Node) -> bool:
    return node.op in OPS and len(node.outputs) == 1 and bool(node.inputs)


def _made(node: Node) -> Made[str]:
    return Made(node.outputs[0], node.op, node.attrs, node.inputs, node.outputs[0])


def region_costs(model: OperatorPrices, graph: Graph) -> dict[str, Cost]:
    """The costs of nodes in kernels on integers, by their first output: all of a kernel's at its last node.

    A runtime makes a kernel of operators whose results no other operator reads; it dequantises once more for others.
    """
    if not model.device.integers or not any(n.op in ("quantize_linear", "dequantize_linear") for n in graph.nodes):
        return {}
    space = GraphSpace(graph)
    found = list(regions(space, model.device.integers))
    shown = images(space, found)
    handed = set(graph.outputs.values())
    costs: dict[str, Cost] = {}
    # Those that end in integers first: what they compute is no product with a result of floats.
    for region in sorted(found, key=lambda one: one.end is None):
        own = [one.result for one in (region.core, region.clamp, region.end) if one is not None]
        alone = all(len(graph.consumers.get(v, ())) == 1 and v not in handed for v in own[:-1])
        if not alone or not costs.keys().isdisjoint(own):
            continue
        cost = region_cost(model, region.operators(space, shown))
        if cost is not None:
            costs |= dict.fromkeys(own[:-1], Cost())
            costs[own[-1]] = cost
    for node in graph.nodes:
        if node.op == "dequantize_linear" and node.outputs[0] not in handed:
            readers = graph.consumers.get(node.outputs[0], ())
            if readers and all(_reads_integers(found, costs, reader) for reader in readers):
                costs[node.outputs[0]] = Cost()
    return costs


def _reads_integers(found: Sequence[IntegerRegion[str]], costs: Mapping[str, Cost], reader: Node) -> bool:
    return reader.outputs[0] in costs and any(region.core.place == reader.outputs[0] for region in found)


def graph_cost(model: OperatorPrices, graph: Graph) -> GraphCost:
    """The cost of a whole graph, node by node, and of the constants that are there when it runs."""
    nodes: list[tuple[Node, Cost]] = []
    price, weights = 0.0, dict[int, float]()
    known, read = set(graph.constants), set[str | None](graph.outputs.values())
    warm: set[tuple[Any, ...]] = set()
    fused = {} if model.cost is not None else region_costs(model, graph)
    for node, operands, results, const in applications(graph):
        check()
        cost = fused.get(node.outputs[0])
        if cost is None:
            cost = model.node(node.op, node.attrs, operands, results, const)
            if True in const:
                kind = (node.op, node.attrs, operands, *(v for v, c in zip(node.inputs, const, strict=True) if c))
                if kind in warm and (saved := model.saved(node.op, node.attrs, operands, const)):
                    cost = replace(cost, seconds=cost.seconds - saved)
                warm.add(kind)
        if model.cost is not None:
            price += model.price(node.op, node.attrs, operands, results, const)
        else:  # nodes of one kind have one cost, the same object
            price += weights.get(id(cost)) or weights.setdefault(id(cost), model.weigh(cost))
        nodes.append((node, cost))
        if is_free(node.op, operands, const):
            known |= {v for v in node.outputs if v}
        else:
            read.update(node.inputs)
    total = added(cost for _, cost in nodes)
    for value in sorted(v for v in known if v in read):
        weight = model.constant(tensor_type(graph, value))
        total += weight
        price += model.weigh(weight) if model.cost is None else 0.0
    return GraphCost(total, price, tuple(nodes))
