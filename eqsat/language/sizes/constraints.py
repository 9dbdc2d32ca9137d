"""Conditions that a graph's operators put on the sizes of its named dims, read from types and attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from eqsat.language.ops import OPS
from eqsat.language.terms import OPAQUE, Constraint, Dim, Graph, Node, Shape, Sym, TensorType
from eqsat.language.terms.constraint import extends
from eqsat.language.terms.dims import Atom

#: Constants of indices with more elements are not looked into.
_MOST_INDICES = 1 << 16


def constraints_of(graph: Graph) -> tuple[Constraint, ...]:
    """The conditions of a graph's nodes on its named dims, each once, in the order of the nodes."""
    constraints: dict[Constraint, None] = {}
    seen: set[Dim] = set()

    def dims(shape: Iterable[Any]) -> None:
        for dim in shape:
            if isinstance(dim, Sym) and dim not in seen:
                seen.add(dim)
                constraints.setdefault(Constraint("present", dim))
                constraints.update(dict.fromkeys(_within(dim, seen)))

    for value in graph.inputs:
        declared = graph.type(value)
        dims(declared.shape or () if isinstance(declared, TensorType) else ())
    for node in graph.nodes:
        results = [_tensor(graph, v) for v in node.outputs]
        for result in results:
            dims((result.shape or ()) if result is not None else ())
        if node.op == OPAQUE or node.op not in OPS:
            continue
        operands = [_tensor(graph, v) for v in node.inputs]
        for name in ("shape", "sizes", "repeats", "size", "total"):
            given = node.attrs.get(name, ())
            dims(given if isinstance(given, tuple) else (given,))
        for constraint in _of_node(graph, node, operands, results):
            if constraint.a != constraint.b and constraint.names:
                constraints.setdefault(constraint)
    return tuple(constraints)


def _tensor(graph: Graph, value: str | None) -> TensorType | None:
    type = graph.type(value) if value else None
    return type if isinstance(type, TensorType) else None


def _within(dim: Sym, seen: set[Dim]) -> Iterator[Constraint]:
    """Conditions of the functions that a dim is made of."""
    for monomial, _ in dim.terms:
        for atom, _power in monomial:
            yield from _of_atom(atom, seen)


def _of_atom(atom: Atom, seen: set[Dim]) -> Iterator[Constraint]:
    if isinstance(atom, str):
        return
    name, a, b = atom
    if name == "broadcast":
        yield Constraint("joins", a, b)
    if name in ("floordiv", "mod") and isinstance(b, Sym):
        yield Constraint("at_least", b, 1)
    for part in (a, b):
        if isinstance(part, Sym) and part not in seen:
            seen.add(part)
            yield from _within(part, seen)


Types: TypeAlias = Sequence[TensorType | None]


def _of_node(graph: Graph, node: Node, operands: Types, results: Types) -> Iterator[Constraint]:
    """Conditions of one operator; nothing where a rank is not known."""
    rule = OPS[node.op].demands
    if any(t is not None and t.shape is None for t in (*operands, *results)):
        return
    if rule is not None and operands and operands[0] is not None and results[0] is not None:
        yield from rule([t.dims if t is not None else () for t in operands], results[0].dims, node.attrs)
    if OPS[node.op].pointwise and results[0] is not None:
        for operand in operands:
            if operand is not None:
                yield from extends(operand.dims, results[0].dims)
    if node.op == "gather" and operands[0] is not None:
        yield from _of_indices(graph, node, operands[0].dims)


def _of_indices(graph: Graph, node: Node, shape: Shape) -> Iterator[Constraint]:
    """Indices known ahead lie in the axis they select from."""
    size = shape[node.attrs["axis"] % len(shape)]
    source = handed_on(graph, node.inputs[1])
    constant = graph.constants.get(source)
    if constant is not None:
        if (
            isinstance(size, Sym)
            and constant.type.dtype.is_integer
            and 0 < np.prod(constant.type.static) < _MOST_INDICES
        ):
            array = constant.array
            yield Constraint("at_least", size, max(int(array.max()) + 1, -int(array.min())))
        return
    maker = graph.producers.get(source)
    if maker is not None and maker.op == "iota":
        start, step, count = (maker.attrs[k] for k in ("start", "step", "size"))
        if all(isinstance(v, int | Sym) for v in (start, step, count)):
            yield Constraint("at_least", size, start + 1)
            yield Constraint("at_least", size, start + step * (count - 1) + 1)


def handed_on(graph: Graph, value: str | None) -> str:
    """The value that this one has its elements from, through operators that only move or convert them."""
    name = value or ""
    while (maker := graph.producers.get(name)) is not None and _hands_on(maker.op) and maker.inputs[0]:
        name = maker.inputs[0]
    return name


def _hands_on(op: str) -> bool:
    return op in OPS and OPS[op].hands_on
