"""Groups of mutually independent siblings, merged all at once rather than pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.independence import ranks
from eqsat.egraph.matching.match import Match
from eqsat.errors import ShapeError
from eqsat.language.ops import OPS
from eqsat.language.terms import Siblings, TensorType


def groups(egraph: EGraph, left: Siblings, matches: Sequence[Match], generations: int) -> Iterator[Match]:
    """The matches of single siblings joined into groups of two or more, each bound as one match.

    Members share every variable and attribute that the pattern does not range over, are not computed from each other,
    and were not merged `generations` times already. Those of one depth are a group of their own too: the others may be
    needed elsewhere, or later. Operators on single elements are merged at one depth alone: their operands would have to
    be copied, and all that is shared is a factor. A group whose conditions fail as a whole is tried again in parts of
    equal operand types.
    """
    declared = OPS.get(left.item.op)
    deep = declared is None or not declared.pointwise
    members = {element for element, _ in left.over}
    buckets: dict[Any, dict[int, Match]] = {}
    for match in matches:
        root = egraph.find(match.roots[0])
        if egraph.eclass(root).generation >= generations:
            continue
        shared = [(n, egraph.find(c)) for n, c in sorted(match.classes.items()) if n not in members]
        attrs = [(n, a) for n, a in sorted(match.attrs.items()) if n not in members]
        buckets.setdefault((tuple(shared), tuple(attrs)), {}).setdefault(root, match)
    for bucket in buckets.values():
        single = _single(egraph, bucket, members)
        for group in _independent(egraph, single, deep) if len(single) > 1 else ():
            whole = _joined(left, group)
            if _refused(whole) is None:
                yield whole
                continue
            for part in _alike(egraph, group, members):
                if 2 <= len(part) < len(group):
                    yield _joined(left, part)


def _single(egraph: EGraph, bucket: Mapping[int, Match], members: set[str]) -> dict[int, Match]:
    """The matches but those that others were merged to: their operand is a concatenation of operands of these."""
    own = {
        root: {egraph.find(match.classes[n]) for n in members if n in match.classes} for root, match in bucket.items()
    }
    pieces = set[int]().union(*own.values())

    def is_merged(eclass: int) -> bool:
        enodes = (egraph.nodes[number] for number in egraph.eclass(eclass).members)
        joined = ({egraph.find(k) for k in e.operands} for e in enodes if e.op == "concat" and len(e.operands) > 1)
        return any(operands & pieces for operands in joined)

    return {root: match for root, match in bucket.items() if not any(is_merged(one) for one in own[root])}


def _independent(egraph: EGraph, bucket: Mapping[int, Match], deep: bool) -> Iterator[list[Match]]:
    """The groups of two or more that are not computed from each other: of one rank if `deep`, and of one depth."""
    rank = ranks(egraph, bucket) if deep else dict.fromkeys(bucket, 0)
    by_rank: dict[int, list[int]] = {}
    for root in sorted(bucket):
        by_rank.setdefault(rank[root], []).append(root)
    for alike in by_rank.values():
        by_depth: dict[int, list[int]] = {}
        for root in alike:
            by_depth.setdefault(egraph.eclass(root).depth, []).append(root)
        wide = [alike] if deep or len(by_depth) == 1 else []
        for group in (*wide, *(by_depth.values() if len(by_depth) > 1 else ())):
            if len(group) > 1:
                yield [bucket[root] for root in group]


def _refused(match: Match) -> str | None:
    try:
        return match.rule.refused(match.bindings)
    except ShapeError as error:
        return error.what


def _alike(egraph: EGraph, group: Sequence[Match], members: set[str]) -> list[list[Match]]:
    """The group in parts whose members' own operands have one type."""
    parts: dict[Any, list[Match]] = {}
    for match in group:
        key = []
        for name in sorted(members):
            if name in match.classes:
                type = egraph.type(match.classes[name])
                key.append(type if isinstance(type, TensorType) else None)
        parts.setdefault(tuple(key), []).append(match)
    return list(parts.values())


def _joined(left: Siblings, group: Sequence[Match]) -> Match:
    first = group[0]
    sequence_of = dict(left.over)

    def joined(members: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The bindings of all members: of elements in sequences, the others as the first has them."""
        return {
            sequence_of.get(name, name): tuple(m[name] for m in members) if name in sequence_of else value
            for name, value in members[0].items()
        }

    return Match(
        first.egraph,
        rule=first.rule,
        roots=tuple(m.roots[0] for m in group),
        enodes=tuple(m.enodes[0] for m in group),
        classes=joined([m.classes for m in group]),
        attrs=joined([m.attrs for m in group]),
        uses=tuple(n for m in group for n in m.uses),
    )
