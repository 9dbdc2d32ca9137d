"""An e-graph as plain Python: classes and distinct e-nodes, for whoever chooses among them."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.egraph.egraph import ABSENT, CONST, EGraph
from eqsat.egraph.encode import Encoding
from eqsat.language.terms import Attrs, Constant, TensorType, ValueType
from eqsat.language.terms import Node as GraphNode
from eqsat.system.deadline import check

#: A derived constant takes at most this many bytes, or so many times those of the constants it is derived from.
DERIVED_BYTES, DERIVED_GROWTH = 1 << 20, 16


def may_derive(size: int, base: int) -> bool:
    """Return whether a constant of `size` bytes is computed at compile time from constants of `base` bytes in all."""
    return size <= max(DERIVED_BYTES, DERIVED_GROWTH * base)


@dataclass(frozen=True, slots=True)
class SnapshotNode:
    """A distinct e-node: the class it is in, its operator, attributes and operand classes, its number in the e-graph,
    and the node of the original graph it was encoded from, if any."""

    eclass: int
    op: str
    attrs: Attrs
    operands: tuple[int, ...]
    types: tuple[ValueType, ...]
    number: int
    original: GraphNode | None


@dataclass(frozen=True, slots=True)
class SnapshotClass:
    """An e-class: its type, whether it is known before the program runs, the original values it holds, its e-nodes (as
    positions in Snapshot.nodes)."""

    type: ValueType
    constant: bool
    values: tuple[str, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Snapshot:
    """All e-nodes and e-classes by leader; `recipes` says how each constant class is computed from constants.

    A recipe is the position of an e-node whose operands are constant classes with recipes of their own, none of which
    leads back; the tensors of leaves are in `constants`, opaque nodes in `opaque`.
    """

    nodes: tuple[SnapshotNode, ...]
    classes: dict[int, SnapshotClass]
    roots: dict[str, int]
    constants: tuple[Constant, ...]
    opaque: tuple[GraphNode, ...]
    recipes: dict[int, int]


def snapshot(encoding: Encoding) -> Snapshot:
    """Read an e-graph out; egglog's equalities are brought in first."""
    egraph = encoding.egraph
    egraph.rebuild()
    nodes: list[SnapshotNode] = []
    members: dict[int, list[int]] = {}
    for op, attr_id, operands, number in egraph.distinct():
        check()
        leader = egraph.find(number)
        members.setdefault(leader, []).append(len(nodes))
        original = encoding.nodes.get(number)
        types = egraph.nodes[number].types
        nodes.append(SnapshotNode(leader, op, egraph.attrs(attr_id), operands, types, number, original))
    classes = {
        leader: SnapshotClass(facts.type, facts.constant, tuple(facts.values), tuple(members[leader]))
        for leader, facts in ((k, egraph.eclass(k)) for k in members)
    }
    return Snapshot(
        nodes=tuple(nodes),
        classes=classes,
        roots={name: egraph.find(number) for name, number in encoding.roots.items()},
        constants=tuple(egraph.constants),
        opaque=tuple(egraph.opaque),
        recipes=_recipes(egraph, nodes, classes),
    )


def _recipes(egraph: EGraph, nodes: list[SnapshotNode], classes: dict[int, SnapshotClass]) -> dict[int, int]:
    """For each constant class the e-node of least height that computes it, found bottom-up, so without cycles."""
    recipes: dict[int, int] = {}
    candidates = [i for i, n in enumerate(nodes) if classes[n.eclass].constant and _computable(n)]
    while True:
        ready: dict[int, int] = {}
        for index in candidates:
            node = nodes[index]
            if node.eclass in recipes or not all(_known(k, recipes, nodes, classes) for k in node.operands):
                continue
            best = ready.get(node.eclass)
            if best is None or node.number < nodes[best].number:
                ready[node.eclass] = index
        if not ready:
            return recipes
        recipes.update(ready)
        candidates = [i for i in candidates if nodes[i].eclass not in recipes]


def _computable(node: SnapshotNode) -> bool:
    if node.op == CONST:
        return True
    return len(node.types) == 1 and isinstance(node.types[0], TensorType) and node.types[0].is_static


def _known(leader: int, recipes: dict[int, int], nodes: list[SnapshotNode], classes: dict[int, SnapshotClass]) -> bool:
    return leader in recipes or nodes[classes[leader].nodes[0]].op == ABSENT
