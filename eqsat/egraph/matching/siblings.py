"""Groups of mutually independent siblings, merged all at once rather than pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.errors import ShapeError
from eqsat.language.terms import Bindings, Siblings, TensorType


def groups(egraph: EGraph, left: Siblings, matches: Sequence[Match], generations: int) -> Iterator[Match]:
    """The matches of single siblings joined into groups of two or more, each bound as one match.

    Members share every variable and attribute that the pattern does not range over, lie at one depth, so that none is
    computed from another, and were not merged `generations` times already. A group whose conditions fail as a whole is
    tried again in parts of equal operand types.
    """
    members = {element for element, _ in left.over}
    buckets: dict[Any, dict[int, Match]] = {}
    for match in matches:
        root = egraph.find(match.roots[0])
        if egraph.eclass(root).generation >= generations:
            continue
        shared = [(n, egraph.find(c)) for n, c in sorted(match.classes.items()) if n not in members]
        attrs = [(n, a) for n, a in sorted(match.bindings.attrs.items()) if n not in members]
        key = (egraph.eclass(root).depth, tuple(shared), tuple(attrs))
        buckets.setdefault(key, {}).setdefault(root, match)
    for bucket in buckets.values():
        group = [bucket[root] for root in sorted(bucket)]
        if len(group) < 2:
            continue
        whole = _joined(left, group)
        if _refused(whole) is None:
            yield whole
            continue
        for part in _alike(egraph, group, members):
            if 2 <= len(part) < len(group):
                yield _joined(left, part)


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
        rule=first.rule,
        roots=tuple(m.roots[0] for m in group),
        enodes=tuple(m.enodes[0] for m in group),
        bindings=Bindings(joined([m.bindings.tensors for m in group]), joined([m.bindings.attrs for m in group])),
        classes=joined([m.classes for m in group]),
        steps=max(m.steps for m in group),
    )
