"""The walk of an operator along each axis of its operands, read from its index form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.language.declaration.indices import IndexTerm
from eqsat.language.ops import spec
from eqsat.language.terms.graph import Node


@dataclass(frozen=True)
class Walk:
    """The labels of the axes that an operator walks: for each operand, and for its first result.

    Axes of one label are walked in step. A label is None for an axis whose elements are computed from one another, that
    is read at other places, or of which the form says nothing. `read` are labels whose sizes enter the computation,
    `added` the operands that are added to the result.
    """

    operands: tuple[tuple[str | None, ...] | None, ...]
    result: tuple[str | None, ...]
    read: frozenset[str]
    added: frozenset[int]


def walk(node: Node, ranks: Sequence[int | None], rank: int) -> Walk | None:
    """The walk of a node over operands of these ranks (None for one left out) with a result of `rank`.

    None where the operator has no index form, or one that does not fit.
    """
    form = spec(node.op).form
    if form is None or len(node.outputs) != 1 or len(ranks) > len(form.terms):
        return None
    sole = sum(r is not None for r in ranks) == 1
    labels: list[tuple[str | None, ...] | None] = []
    for term, count in zip(form.terms, ranks, strict=False):
        traced = None if count is None else _labels(term, count, node.attrs, aligned=not sole)
        if count is not None and traced is None:
            return None
        labels.append(traced)
    named = form.result
    result = _labels(named, rank, node.attrs, aligned=not sole)
    gone: frozenset[str] = frozenset()
    if sole and labels[0] is not None and form.terms[0].attribute and not named.attribute:
        # The axes that an attribute names are reduced: gone, or one element each; the others stay in their order.
        count = len(labels[0])
        labels[0] = tuple(f"reduced {k}" if label is None else label for k, label in enumerate(labels[0]))
        gone = frozenset(label for label in labels[0] if label is not None and label.startswith("reduced"))
        left = tuple(label for label in labels[0] if label not in gone)
        if rank not in (count, len(left)):
            return None
        result = left if rank == len(left) else tuple(None if label in gone else label for label in labels[0])
    if result is None:
        return None
    mixed = {i.name for t in (*form.terms, named) for i in t.indices if not i.plain and not i.many}
    clean = [None if r is None else tuple(None if label in mixed else label for label in r) for r in labels]
    added = frozenset(k for k, t in enumerate(form.terms) if t.added)
    read = frozenset(name for name in form.reads if name not in node.attrs)
    read |= gone if not form.reads.isdisjoint(node.attrs) else frozenset()
    return Walk(tuple(clean), tuple(None if label in mixed else label for label in result), read, added)


def _labels(term: IndexTerm, rank: int, attrs: Mapping[str, Any], *, aligned: bool) -> tuple[str | None, ...] | None:
    """The label of each axis of a tensor of this rank; of a bare "..." counted from the right where they broadcast."""
    if not term.indices and term.attribute:
        return (None,) * rank  # all its axes are those that the attribute names
    many = rank - term.fixed
    if many < 0 or (many and not term.open):
        return None
    labels: list[str | None] = []
    for index in term.indices:
        if not index.many:
            labels.append(None if index.mixed or index.window or index.group else index.name)
            continue
        apart = _apart(term, many, attrs)
        for place in range(many):
            name = f"{index.name}{many - place if aligned else place}"
            labels.append(None if place in apart or index.mixed or index.window else name)
    if term.turned and attrs.get(term.turned):
        labels.reverse()
    return tuple(labels)


def _apart(term: IndexTerm, many: int, attrs: Mapping[str, Any]) -> set[int]:
    """The axes of a bare "..." that an attribute names."""
    if not term.attribute:
        return set()
    given = attrs[term.attribute]
    axes = {int(a) % many for a in (given if isinstance(given, tuple) else (given,))} if many else set()
    return set(range(min(axes), many)) if term.tail and axes else axes
