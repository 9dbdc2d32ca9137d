"""A choice of e-nodes read back as a graph."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from eqsat.egraph.egraph import ABSENT, CONST, INPUT, OPAQUE, PROJECTION
from eqsat.egraph.snapshot import Snapshot, SnapshotNode
from eqsat.errors import ExtractionError
from eqsat.language.terms import OPAQUE as OPAQUE_NODE
from eqsat.language.terms import Constant, Graph, Node, ValueType
from eqsat.system.deadline import check


@dataclass(frozen=True)
class Decoded:
    """A chosen graph: `graph` computes constants that rules derived by nodes of their own; `shared` maps values of it
    to the values of the original graph that they are claimed to equal, `names` the chosen classes to their values."""

    graph: Graph
    shared: Mapping[str, tuple[str, ...]]
    names: Mapping[int, str]


def decode(snapshot: Snapshot, chosen: Mapping[int, int], original: Graph) -> Decoded:
    """The graph of a choice: for each class that is needed the position of its e-node in the snapshot.

    A class that held values of the original graph keeps a name of theirs; the rest are called after their operator.
    The original's name, inputs and origin stay.
    """
    return _Decoder(snapshot, chosen, original).decode()


class _Decoder:
    def __init__(self, snapshot: Snapshot, chosen: Mapping[int, int], original: Graph) -> None:
        self.snapshot, self.chosen, self.original = snapshot, chosen, original
        self.outputs = set(original.outputs.values())
        self.taken = set(original.types) | set(original.inputs) | set(original.constants)
        self.names: dict[int, str] = {}
        self.parts: dict[tuple[int, int], str] = {}
        self.constants: dict[str, Constant] = {}
        self.nodes: list[Node] = []
        self.types: dict[str, ValueType] = {v: original.type(v) for v in original.inputs}
        self.shared: dict[str, tuple[str, ...]] = {}
        self.used_names: set[str] = set()
        self.counters: dict[str, Iterator[int]] = {}
        self.projections: dict[int, list[SnapshotNode]] = {}
        for node in snapshot.nodes:
            if node.op == PROJECTION:
                self.projections.setdefault(node.operands[0], []).append(node)

    def decode(self) -> Decoded:
        for leader in self._order():
            check()
            self._emit(leader)
        graph = Graph(
            name=self.original.name,
            inputs=self.original.inputs,
            outputs={name: self.names[leader] for name, leader in self.snapshot.roots.items()},
            nodes=tuple(self.nodes),
            constants=self.constants,
            types=self.types,
            origin=self.original.origin,
        )
        return Decoded(graph, self.shared, self.names)

    def _order(self) -> Iterator[int]:
        """The needed classes, operands first; ExtractionError where the choice is cyclic or has a hole."""
        state: dict[int, bool] = {}
        stack = [(leader, False) for leader in reversed(self.snapshot.roots.values())]
        while stack:
            leader, expanded = stack.pop()
            if expanded:
                state[leader] = True
                yield leader
                continue
            if leader in state:
                if not state[leader]:
                    raise ExtractionError("the chosen graph has a cycle", expected="an acyclic choice")
                continue
            state[leader] = False
            stack.append((leader, True))
            stack += [(k, False) for k in reversed(self._node(leader).operands) if not state.get(k)]

    def _node(self, leader: int) -> SnapshotNode:
        if leader not in self.chosen:
            raise ExtractionError(f"no e-node is chosen for e-class {leader}", expected="one for each class needed")
        return self.snapshot.nodes[self.chosen[leader]]

    def _emit(self, leader: int) -> None:
        node, facts = self._node(leader), self.snapshot.classes[leader]
        if node.op == ABSENT:
            return
        if node.op == PROJECTION:
            self.names[leader] = self.parts[node.operands[0], node.attrs["index"]]
            return
        if node.op == INPUT:
            self.names[leader] = node.attrs["name"]
            self.shared[node.attrs["name"]] = facts.values
            return
        if len(node.types) > 1:
            self._emit_several(leader, node)
            return
        name = self._value_name(leader, node)
        self.names[leader] = name
        self.types[name] = facts.type
        if facts.values:
            self.shared[name] = facts.values
        if node.op == CONST:
            self.constants[name] = self.snapshot.constants[node.attrs["index"]]
        else:
            self.nodes.append(self._made(node, (name,)))

    def _emit_several(self, leader: int, node: SnapshotNode) -> None:
        """A node with several outputs: those that anything projects get their original names, if they had one.

        The rest are named too: few operators of ONNX may leave an output out.
        """
        names = []
        wanted = {
            n.attrs["index"]: n.eclass
            for n in self.projections.get(leader, ())
            # A value may be made in another way beside the others.
            if (place := self.chosen.get(n.eclass)) is not None and self.snapshot.nodes[place] is n
        }
        for index, type in enumerate(node.types):
            values = self.snapshot.classes[wanted[index]].values if index in wanted else ()
            unread = node.op == OPAQUE and index not in wanted
            name = "" if unread else self._pick(values) or self._fresh(node.op)
            names.append(name)
            self.parts[leader, index] = name
            if name:
                self.types[name] = type
                if values:
                    self.shared[name] = tuple(values)
        self.nodes.append(self._made(node, tuple(names)))

    def _made(self, node: SnapshotNode, outputs: tuple[str, ...]) -> Node:
        """The node of the graph that an e-node becomes."""
        operands = tuple(self.names.get(k) for k in node.operands)
        if node.op != OPAQUE:
            return Node(node.op, operands, outputs, node.attrs, self._node_name(node))
        opaque = self.snapshot.opaque[node.attrs["index"]]
        # An output nobody reads keeps its name: a node that is never looked into may not lose one.
        named = tuple(new or old for new, old in zip(outputs, opaque.outputs, strict=True))
        for name, type in zip(named, node.types, strict=True):
            if name:
                self.types.setdefault(name, type)
        return Node(OPAQUE_NODE, operands, named, opaque.attrs, opaque.name)

    def _node_name(self, node: SnapshotNode) -> str:
        name = node.original.name if node.original is not None else ""
        if not name or name in self.used_names:
            return ""
        self.used_names.add(name)
        return name

    def _value_name(self, leader: int, node: SnapshotNode) -> str:
        values = [v for v in self.snapshot.classes[leader].values if v not in self.original.inputs]
        if node.op != CONST:
            values = [v for v in values if v not in self.original.constants]
        return self._pick(values) or self._fresh(node.op)

    def _pick(self, values: tuple[str, ...] | list[str]) -> str | None:
        """The name a class keeps: that of an output of the graph if it has one, else the first."""
        outputs = [v for v in values if v in self.outputs]
        return next(iter(outputs or values), None)

    def _fresh(self, op: str) -> str:
        counter = self.counters.setdefault(op, itertools.count())
        return next(name for index in counter if (name := f"eqsat_{op}_{index}") not in self.taken)
