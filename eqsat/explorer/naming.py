"""Names of e-classes and e-nodes: values of the graph, and operators over them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from eqsat.egraph.egraph import ABSENT, CONST, INPUT, OPAQUE, PROJECTION
from eqsat.egraph.notation import stated
from eqsat.egraph.snapshot import Snapshot, SnapshotNode
from eqsat.language.terms import OPAQUE as OPAQUE_NODE
from eqsat.language.terms import Attrs
from eqsat.language.terms import Node as GraphNode
from eqsat.report.units import duration

#: Operators of an e-graph that are none of a program, as they are shown.
_SHOWN = {CONST: "constant", PROJECTION: "result"}
#: The column of the cost of a form with the cheapest tree below it, and how that differs from the cost of a choice.
TREE_COST = "tree cost"
TREE_COST_NOTE = "tree cost: with the cheapest operands, shared parts counted each time; the choice counts them once"


def shown_operator(snapshot: Snapshot, node: SnapshotNode) -> str:
    """The name of the operator of an e-node; of an opaque one, that of ONNX."""
    if node.op == OPAQUE:
        return str(snapshot.opaque[node.attrs["index"]].attrs["op_type"])
    return _SHOWN.get(node.op, node.op)


def attributes(op: str, attrs: Attrs) -> str:
    """Attributes as text, without those that have their defaults; of an opaque node only why it is one.

    >>> attributes("softmax", Attrs(axis=1))
    'axis=1'
    """
    if op in (OPAQUE, OPAQUE_NODE):
        return str(attrs.get("reason", ""))
    if op in (CONST, INPUT):
        return str(attrs["name"]) if op == INPUT else ""
    return ", ".join(stated(op, attrs))


def node_name(node: GraphNode) -> str:
    """The name of a node of a graph, else that of its first result."""
    return node.name or next((v for v in node.outputs if v), node.op)


def seen_attrs(snapshot: Snapshot, node: SnapshotNode) -> Attrs:
    """The attributes to show of an e-node; those of an opaque one are kept apart."""
    return snapshot.opaque[node.attrs["index"]].attrs if node.op == OPAQUE else node.attrs


def is_absent(snapshot: Snapshot, leader: int) -> bool:
    """True if a class stands for an operand left out."""
    return snapshot.nodes[snapshot.classes[leader].nodes[0]].op == ABSENT


def near(name: str, known: Iterable[str]) -> list[str]:
    """Names that are like one that is not known: close in spelling, or holding it."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=3)
    return close or [n for n in names if name and name.lower() in n.lower()][:3]


def amount(cost: float | None, in_seconds: bool) -> str:
    """A cost as text; "" where there is none.

    >>> amount(2.5e-6, True), amount(12.0, False), amount(None, True)
    ('2.5 µs', '12', '')
    """
    if cost is None:
        return ""
    return duration(cost) if in_seconds else f"{cost:.6g}"
