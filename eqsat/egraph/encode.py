"""A graph written into an e-graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from eqsat.egraph.egraph import INPUT, OPAQUE, PROJECTION, EGraph
from eqsat.egraph.facts.assumptions import doubted_values, rounding_constants
from eqsat.egraph.facts.signs import signing_zeros
from eqsat.egraph.matching.build import split_slices
from eqsat.language.ops import spec
from eqsat.language.terms import OPAQUE as OPAQUE_NODE
from eqsat.language.terms import Attrs, Graph, Node, TensorType, ValueType
from eqsat.system.deadline import check


@dataclass
class Encoding:
    """An e-graph that holds a graph: which e-node each value is, and which node of the graph each e-node was."""

    egraph: EGraph
    graph: Graph
    values: dict[str, int] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)

    @property
    def roots(self) -> dict[str, int]:
        """The e-node of each output."""
        return {name: self.values[value] for name, value in self.graph.outputs.items()}


def encode(
    graph: Graph, *, finite_math: bool | None = None, doubted: Collection[str] = (), heard: bool = False
) -> Encoding:
    """Write a graph into a new e-graph; common subexpressions and equal constants become one class at once.

    A split becomes the slices it makes, a node with several outputs one class that its outputs project from. Values
    that are `doubted` do not count as finite; where outputs are `heard`, their readers may tell a zero's sign.
    """
    result = Encoding(EGraph(finite_math=finite_math, doubted=doubted_values(graph) | set(doubted)), graph)
    for name in graph.inputs:
        _name(result, name, result.egraph.add(INPUT, Attrs(name=name), (), types=(graph.type(name),)))
    hidden = rounding_constants(graph) | (frozenset() if finite_math else signing_zeros(graph, heard=heard))
    # Equal constants are one leaf, and whether it is hidden is said when it is made.
    for name, constant in sorted(graph.constants.items(), key=lambda item: item[0] not in hidden):
        _name(result, name, result.egraph.constant(constant, hidden=name in hidden))
    for node in graph.nodes:
        check(1 + len(node.inputs))
        operands = [result.egraph.absent() if v is None else result.values[v] for v in node.inputs]
        _encode_node(result, node, operands)
    result.egraph.rebuild()
    return result


def _encode_node(result: Encoding, node: Node, operands: Sequence[int]) -> None:
    egraph, graph = result.egraph, result.graph
    if node.op == "split":
        for name, number in zip(node.outputs, split_slices(egraph, operands[0], node.attrs), strict=True):
            result.nodes.setdefault(number, node)
            if name:
                _name(result, name, number)
        return
    if node.op == OPAQUE_NODE:
        types: list[ValueType] = [graph.type(o) for o in node.outputs]
        egraph.opaque.append(node)
        number = egraph.add(OPAQUE, Attrs(index=len(egraph.opaque) - 1), operands, types=types)
    else:
        given = [None if v is None else graph.type(v) for v in node.inputs]
        inferred = spec(node.op).result_types([t if isinstance(t, TensorType) else None for t in given], node.attrs)
        types = [_sharper(graph.type(o), t) for o, t in zip(node.outputs, inferred, strict=False)]
        number = egraph.add(node.op, node.attrs, operands, types=types or inferred)
    result.nodes.setdefault(number, node)
    if len(types) == 1:
        _name(result, node.outputs[0], number)
        return
    for index, name in enumerate(node.outputs):
        if name:
            part = egraph.add(PROJECTION, Attrs(index=index), [number], types=(types[index],))
            _name(result, name, part)


def _sharper(stated: ValueType, inferred: TensorType) -> TensorType:
    """The type that the graph states for a value, where that is more precise than the inferred one."""
    if isinstance(stated, TensorType) and stated.shape is not None:
        return stated
    return inferred


def _name(result: Encoding, value: str, number: int) -> None:
    result.values[value] = number
    result.egraph.eclass(number).values.append(value)


def nan_warnings(encoding: Encoding) -> Iterator[str]:
    """One warning for each constant that holds NaN; only those are looked at that are not known to be finite."""
    egraph, graph = encoding.egraph, encoding.graph
    for name, constant in graph.constants.items():
        if not constant.type.dtype.is_float or (egraph.eclass(encoding.values[name]).finite and not egraph.finite_math):
            continue
        count = int(np.isnan(constant.array.astype(np.float64)).sum())
        if count:
            yield f"constant {name!r} holds NaN in {count} of {constant.array.size} elements; it is kept as it is"
