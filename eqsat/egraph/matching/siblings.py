"""Groups of mutually independent siblings, merged all at once rather than pair by pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.errors import ShapeError
from eqsat.language.terms.pattern import Bindings, Siblings
from eqsat.language.terms.types import TensorType


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
    tensors: dict[str, Any] = {}
    classes: dict[str, Any] = {}
    attrs: dict[str, Any] = {}
    for name in first.classes:
        if name in sequence_of:
            classes[sequence_of[name]] = tuple(m.classes[name] for m in group)
            tensors[sequence_of[name]] = tuple(m.bindings.tensors[name] for m in group)
        else:
            classes[name] = first.classes[name]
            tensors[name] = first.bindings.tensors[name]
    for name, value in first.bindings.attrs.items():
        if name in sequence_of:
            attrs[sequence_of[name]] = tuple(m.bindings.attrs[name] for m in group)
        else:
            attrs[name] = value
    return Match(
        rule=first.rule,
        roots=tuple(m.roots[0] for m in group),
        enodes=tuple(m.enodes[0] for m in group),
        bindings=Bindings(tensors, attrs),
        classes=classes,
        steps=max(m.steps for m in group),
    )
