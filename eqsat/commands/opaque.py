"""Operators of models that stay opaque, with counts of nodes and reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from eqsat.report.units import count, integer, percent

if TYPE_CHECKING:
    from onnx import NodeProto

    from eqsat.language.terms import Graph, Sym


@dataclass
class Kept:
    """An operator that stays opaque: its nodes, the nodes of their graphs, and why, with how many for each reason.

    `within` counts nodes of graphs that are as opaque as the node that holds them; `read` those of bodies of If, Loop
    and Scan that are read and optimised as graphs of their own, in which opaque ones are listed like any others. A
    reason names operands and results of the node by their places, so that nodes of one kind have one reason.
    """

    domain: str
    operator: str
    count: int = 0
    within: int = 0
    read: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def name(self) -> str:
        """The operator with its domain, where that is not ONNX's own."""
        return self.operator if self.domain == "ai.onnx" else f"{self.domain}.{self.operator}"

    def stated(self) -> str:
        """The reasons as a person reads them, the most frequent first."""
        ordered = sorted(self.reasons.items(), key=lambda item: (-item[1], item[0]))
        if len(ordered) == 1:
            return ordered[0][0]
        return "; ".join(f"{reason} ({integer(times)})" for reason, times in ordered)


@dataclass(frozen=True)
class Listing:
    """The opaque operators of a model, the most frequent first, and how many nodes it has as eqsat reads it.

    `nodes` counts the nodes within opaque ones too, whether they are as opaque as those or read by themselves.
    """

    nodes: int
    kept: tuple[Kept, ...]

    @property
    def opaque(self) -> int:
        """The nodes that are opaque, or within one that is."""
        return sum(entry.count + entry.within for entry in self.kept)

    def share(self, entry: Kept) -> float:
        """The share of the nodes that an operator has."""
        return (entry.count + entry.within) / self.nodes if self.nodes else 0.0

    def document(self) -> dict[str, Any]:
        """The listing as plain dicts and lists."""
        return {
            "nodes": self.nodes,
            "opaque": self.opaque,
            "share": self.opaque / self.nodes if self.nodes else 0.0,
            "operators": [
                {
                    "domain": entry.domain,
                    "operator": entry.operator,
                    "count": entry.count,
                    "nodes_within": entry.within,
                    "nodes_read_within": entry.read,
                    "share": self.share(entry),
                    "reasons": dict(sorted(entry.reasons.items(), key=lambda item: (-item[1], item[0]))),
                }
                for entry in self.kept
            ],
        }


def listing(graph: Graph) -> Listing:
    """The operators of a graph that stay opaque, with the reason that reading it gave for each."""
    from eqsat.language.graphs.fold import fresh_beside

    operators: dict[tuple[str, str], Kept] = {}
    return _ordered(_collected(graph, operators, fresh_beside(graph.types.values())), operators)


def _collected(graph: Graph, operators: dict[tuple[str, str], Kept], fresh: Callable[[], Sym]) -> int:
    """Adds the opaque nodes of a graph, and those of the bodies in it that are read; counts the nodes of all these."""
    from onnx import NodeProto

    from eqsat.language.onnx.control.sites import sites
    from eqsat.language.terms.graph import OPAQUE

    bodies = {id(site.node): site.control.bodies for site in sites(graph, fresh)}
    total = len(graph.nodes)
    for node in graph.nodes:
        if node.op != OPAQUE:
            continue
        proto = NodeProto.FromString(node.attrs["proto"])
        key = proto.domain or "ai.onnx", proto.op_type
        entry = operators.setdefault(key, Kept(*key))
        entry.count += 1
        entry.reasons[placed(str(node.attrs["reason"]), proto)] += 1
        within = 0 if id(node) in bodies else _nodes_within(proto)
        read = sum(_collected(body.graph, operators, fresh) for body in bodies.get(id(node), ()))
        entry.within += within
        entry.read += read
        total += within + read
    return total


def joined(listings: Sequence[Listing]) -> Listing:
    """The listings of several models as one."""
    operators: dict[tuple[str, str], Kept] = {}
    for entry in (entry for one in listings for entry in one.kept):
        whole = operators.setdefault((entry.domain, entry.operator), Kept(entry.domain, entry.operator))
        whole.count += entry.count
        whole.within += entry.within
        whole.read += entry.read
        whole.reasons += entry.reasons
    return _ordered(sum(one.nodes for one in listings), operators)


def _ordered(nodes: int, operators: Mapping[tuple[str, str], Kept]) -> Listing:
    return Listing(nodes, tuple(sorted(operators.values(), key=lambda e: (-e.count - e.within, e.domain, e.operator))))


def placed(reason: str, node: NodeProto) -> str:
    """A reason with the node's own values named by their places.

    >>> from onnx import helper
    >>> placed("the type of 'f' is unknown", helper.make_node("Relu", ["f"], ["y"]))
    'the type of input 0 is unknown'
    """
    values = [*((f"output {i}", v) for i, v in enumerate(node.output)), *((f"input {i}", v) for i, v in _first(node))]
    places = {repr(value): place for place, value in values if value}
    for shown in sorted(places, key=len, reverse=True):
        reason = reason.replace(shown, places[shown])
    return reason


def _first(node: NodeProto) -> list[tuple[int, str]]:
    """The operands from the last to the first, so that one which is given twice has the first of its places."""
    return list(reversed(list(enumerate(node.input))))


def _nodes_within(node: NodeProto) -> int:
    """The number of nodes in the graphs of a node, nested ones included."""
    from eqsat.language.onnx.files.protos import subgraphs

    return sum(1 + _nodes_within(inner) for graph in subgraphs(node) for inner in graph.node)


def print_listing(out: Console, listings: Mapping[str, Listing]) -> None:
    """Print the opaque operators of each of some models, and where there are several, of all of them."""
    for name, one in listings.items():
        _print_one(out, name, one)
    if len(listings) > 1:
        _print_one(out, f"all {len(listings)} models", joined(list(listings.values())))


def _print_one(out: Console, name: str, listed: Listing) -> None:
    if not listed.kept:
        out.print(f"{name}: {count(listed.nodes, 'node')}, none opaque".replace("\n", "\\n"))
        return
    share = percent(listed.opaque / listed.nodes)
    said = f"{name}: {integer(listed.opaque)} of {count(listed.nodes, 'node')} opaque, {share}"
    out.print(said.replace("\n", "\\n"))
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("operator", overflow="fold")
    for title in ("count", "nodes within", "read within", "share of nodes"):
        table.add_column(title, justify="right")
    table.add_column("reason", overflow="fold")
    for entry in listed.kept:
        within, read = (integer(nodes) if nodes else "–" for nodes in (entry.within, entry.read))
        share = percent(listed.share(entry))
        table.add_row(entry.name, integer(entry.count), within, read, share, entry.stated())
    out.print(table)
