"""Checks of a model's graph as a graph, before any operator is looked at, and the order of its nodes."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from onnx import GraphProto, NodeProto, ValueInfoProto

from eqsat.errors import ImportModelError
from eqsat.language.onnx.files.protos import captured, subgraphs

#: The time that an e-graph takes for an operator grows with the square of its operands: some 10 s for so many.
MOST_OPERANDS = 2048


def describe(index: int, node: NodeProto) -> str:
    """The name of a node in messages: its index and its own name, or its operator where it has none."""
    return f"node {index} {node.name!r}" if node.name else f"node {index} ({node.op_type})"


def operands(node: NodeProto) -> list[str]:
    """Every value a node reads, captured ones included; left-out operands are empty."""
    attributes = node.attribute
    if attributes and any(a.HasField("g") or a.graphs for a in attributes):
        return [*node.input, *captured(node)]
    return [*node.input]


def check_names(graph: GraphProto, where: str) -> None:
    """ImportModelError where a name is not UTF-8, which protobuf hands on as bytes."""
    for i, node in enumerate(graph.node):
        texts = (node.name, node.op_type, node.domain, *node.input, *node.output)
        if {*map(type, texts)} != {str}:
            _check_texts(texts, f"{where}: node {i}")
        if node.attribute:
            _check_texts((a.name for a in node.attribute), f"{where}: node {i}")
            for inner in subgraphs(node):
                check_names(inner, f"{where}: node {i}")
    values = (*graph.input, *graph.output, *graph.value_info)
    _check_texts((v.name for v in values), where)
    _check_texts((t.name for t in graph.initializer), where)
    _check_texts((s.values.name for s in graph.sparse_initializer), where)
    _check_texts((d.dim_param for v in values for d in v.type.tensor_type.shape.dim), where)
    _check_texts((e.value for t in graph.initializer for e in t.external_data), where)
    _check_texts((graph.name,), where)


def _check_texts(texts: Iterable[object], where: str) -> None:
    for text in texts:
        if type(text) is not str:
            raise ImportModelError(
                f"a name is not UTF-8: {text!r}", where=where, expected="UTF-8", remedy="export the model again"
            )


def check_arity(graph: GraphProto, where: str) -> None:
    """ImportModelError where a node has so many operands or results that an e-graph cannot hold it."""
    for i, node in enumerate(graph.node):
        count = max(len(node.input), len(node.output))
        if count > MOST_OPERANDS:
            raise ImportModelError(
                f"{describe(i, node)} has {count} operands or results",
                where=where,
                expected=f"at most {MOST_OPERANDS}",
                remedy="divide it among several nodes",
            )


def check_typed(value: ValueInfoProto, where: str) -> None:
    """ImportModelError for an input without an element type."""
    kind = value.type.WhichOneof("value")
    if kind is None or (kind == "tensor_type" and not value.type.tensor_type.elem_type):
        raise ImportModelError(
            f"input {value.name!r} has no type",
            where=where,
            expected="an element type for every input",
            remedy="state it, or export the model again",
        )


def check(graph: GraphProto, reads: Sequence[Sequence[str]], where: str) -> None:
    """ImportModelError where a value is made twice, or read or put out and never made."""
    makers: dict[str, str | int] = {}

    def told(maker: str | int) -> str:
        return maker if isinstance(maker, str) else describe(maker, graph.node[maker])

    def define(name: str, maker: str | int) -> None:
        if name and name not in makers:
            makers[name] = maker
            return
        twice = f"value {name!r} is defined twice: by {told(makers[name])} and by {told(maker)}" if name else ""
        what = twice or f"{told(maker)} has no name"
        raise ImportModelError(what, where=where, expected="one definition a name", remedy="export the model again")

    for value in graph.input:
        define(value.name, "a graph input")
    for name in [t.name for t in graph.initializer] + [s.values.name for s in graph.sparse_initializer]:
        if makers.get(name) != "a graph input":
            define(name, "an initializer")
        else:
            makers[name] = "an initializer and a graph input"
    for i, node in enumerate(graph.node):
        for name in node.output:
            if name:
                define(name, i)
    for i, (node, names) in enumerate(zip(graph.node, reads, strict=True)):
        for name in names:
            if name and name not in makers:
                raise ImportModelError(
                    f"{describe(i, node)} reads {name!r}, which nothing makes",
                    where=where,
                    expected="a graph input, an initializer or the output of a node",
                    remedy="export the model again",
                )
    for output in graph.output:
        if output.name not in makers:
            raise ImportModelError(
                f"output {output.name!r} is made by nothing",
                where=where,
                expected="a graph input, an initializer or the output of a node",
                remedy="export the model again",
            )


def order(graph: GraphProto, reads: Sequence[Sequence[str]], where: str) -> list[int]:
    """The nodes by index so that each comes after what it reads, otherwise in the order they have.

    ONNX demands this order of a model; one that lacks it is sorted. ImportModelError names the nodes of a cycle.
    """
    maker = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
    needs = [{maker[name] for name in names if name in maker} for names in reads]
    if all(max(before, default=-1) < i for i, before in enumerate(needs)):
        return list(range(len(needs)))
    readers: list[list[int]] = [[] for _ in needs]
    for i, before in enumerate(needs):
        for j in before:
            readers[j].append(i)
    waiting = [len(before) for before in needs]
    ready = [i for i, count in enumerate(waiting) if not count]
    sorted_nodes = []
    while ready:
        i = heapq.heappop(ready)
        sorted_nodes.append(i)
        for reader in readers[i]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    if len(sorted_nodes) < len(needs):
        cycle = _cycle(needs, {i for i, count in enumerate(waiting) if count})
        names = " -> ".join(describe(i, graph.node[i]) for i in cycle[:6])
        raise ImportModelError(
            f"the graph has a cycle: {names}{' …' if len(cycle) > 6 else ''}",
            where=where,
            expected="an acyclic graph",
            remedy="export the model again",
        )
    return sorted_nodes


def _cycle(needs: Sequence[set[int]], stuck: set[int]) -> list[int]:
    """A cycle among nodes that all wait for one another, in the order of data flow, its first node at the end too."""
    at = min(stuck)
    path: list[int] = []
    seen: dict[int, int] = {}
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = min(n for n in needs[at] if n in stuck)
    loop = path[seen[at] :][::-1]
    return [*loop, loop[0]]
