"""Growth around a few classes of an e-graph, by rules that are named, where a search of all of it would be too much."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.fire import fire
from eqsat.egraph.matching.match import Binder, Match
from eqsat.egraph.matching.query import Query, Rewrite
from eqsat.egraph.saturation import Saturation
from eqsat.language.terms.pattern import Siblings
from eqsat.system.deadline import check

#: How far below the classes that are given operands are looked at.
_DEPTH = 3


def grow_at(
    egraph: EGraph,
    rules: Iterable[Rewrite],
    enodes: Sequence[int],
    report: Saturation,
    *,
    rounds: int,
    most: int,
    spared: Collection[int] = (),
) -> None:
    """Apply rules of one root to the classes of e-nodes, to what these are made of, and to what comes of it.

    Neither radius nor phases count, but no rule is applied to an e-node that it made, and none to those `spared`: what
    was moved is not to move on and back. It ends after so many rounds, or once there are `most` more e-nodes; `report`
    takes what fired and what was refused.
    """
    binders: dict[str, list[Binder]] = {}
    for rule in rules:
        if not isinstance(rule.left, Siblings) and len(rule.left) == 1 and not rule.parts:
            binders.setdefault(rule.left[0].op, []).append(Binder(egraph, Query(rule)))
    first, seen, made = len(egraph.nodes), set[object](), dict[int, str]()
    for _ in range(rounds):
        egraph.rebuild()
        fired = False
        for match in list(_matches(egraph, binders, [*enodes, *range(first, len(egraph.nodes))])):
            check()
            key = (match.rule.name, match.enodes, tuple(sorted(match.classes.items())))
            (root,) = match.enodes
            if key in seen or root in spared or made.get(root) == match.rule.name:
                continue
            seen.add(key)
            count = len(egraph.nodes)
            if count - first >= most:
                break
            fired |= fire(egraph, match, report)
            made |= dict.fromkeys(range(count, len(egraph.nodes)), match.rule.name)
        if not fired:
            break
    egraph.rebuild()


def _matches(egraph: EGraph, binders: dict[str, list[Binder]], enodes: Iterable[int]) -> Iterator[Match]:
    """The matches in the classes of e-nodes and below them; constants are left as they are."""
    level = dict.fromkeys(egraph.find(n) for n in enodes)
    looked: dict[int, None] = {}
    for _ in range(_DEPTH + 1):
        below: dict[int, None] = {}
        for leader in level:
            if leader in looked or egraph.eclass(leader).constant:
                continue
            looked[leader] = None
            nodes = [egraph.nodes[n] for n in egraph.eclass(leader).members]
            for op in dict.fromkeys(node.op for node in nodes):
                for binder in binders.get(op, ()):
                    yield from binder.at(leader)
            below |= dict.fromkeys(egraph.find(k) for node in nodes for k in node.operands)
        level = below
