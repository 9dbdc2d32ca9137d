"""Equations found so far, and whether another is an instance of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, TypeAlias

from eqsat.language.ops import spec
from eqsat.rewrites.discovery.enumerate.term import Apply, InputVariable, Term, subterms

Key: TypeAlias = "tuple[int, int, tuple[int, ...]]"
_ANY = "*"


def key(one: Term, other: Term) -> Key:
    """The equation up to the names of its variables."""
    seen: dict[InputVariable, int] = {}
    places = tuple(seen.setdefault(v, len(seen)) for v in (*_leaves(one), *_leaves(other)))
    return _shape(one), _shape(other), places


def unordered(one: Term, other: Term) -> Key:
    """The equation up to the names of its variables and to the order of its sides."""
    return min(key(one, other), key(other, one))


def _leaves(term: Term) -> tuple[InputVariable, ...]:
    return term.leaves if isinstance(term, Apply) else (term,)


def _shape(term: Term) -> int:
    return term.shape if isinstance(term, Apply) else 0


class SubsumptionIndex:
    """An index to find the equation that another is an instance of: with terms, or fewer variables, for its variables.

    Where only the variables differ, their ranks must be those of the equation found, since a sum with a scalar teaches
    other things than one of two matrices; but all may shift alike where every operator is pointwise.
    """

    def __init__(self) -> None:
        self._index: dict[Any, list[tuple[Term, Term, bool]]] = {}
        #: Operators whose operands are known to commute; set it before equations with them come in.
        self.commuting: set[str] = set()
        self._lefts: dict[Any, list[tuple[Term, Term]]] = {}

    def add(self, one: Term, other: Term) -> None:
        """Add an equation."""
        pointwise = all(
            spec(s.label.op).pointwise for t in (one, other) for s in subterms(t) if isinstance(s, Apply) and s.operands
        )
        for left, right in ((one, other), (other, one)):
            if isinstance(left, Apply):
                shape = tuple(_root(o) for o in left.operands)
                place = (left.label, left.part, shape, _root(right))
                self._index.setdefault(place, []).append((left, right, pointwise))
                for way in self._ways(left):
                    shape = tuple(_root(o) for o in way.operands)
                    self._lefts.setdefault((way.label, way.part, shape), []).append((way, right))

    def _ways(self, term: Apply) -> Iterator[Apply]:
        """The term with the operands of commuting operators in either order."""
        inner = [list(self._ways(o)) if isinstance(o, Apply) and o.operands else [o] for o in term.operands]
        for operands in product(*inner):
            orders = {operands, operands[::-1]} if term.label.op in self.commuting else {operands}
            for order in sorted(orders, key=lambda o: o != operands):
                yield Apply(term.label, order, term.type, term.part, term.parts)

    def rewriting(self, term: Apply) -> Iterator[tuple[Term, Term]]:
        """Equations, either way round, whose left side may match a term."""
        choices = [{_root(o), _ANY} for o in term.operands]
        for shape in product(*choices):
            yield from self._lefts.get((term.label, term.part, shape), ())

    def cover(self, one: Term, other: Term) -> bool:
        """Return whether the equation is an instance of one that was added."""
        return any(self._covers(a, b) for a, b in ((one, other), (other, one)))

    def _covers(self, one: Term, other: Term) -> bool:
        for left, right, pointwise in self._matching(one, other):
            bound: dict[InputVariable, Term] = {}
            if match(left, one, bound) and match(right, other, bound) and _same_ranks(bound, pointwise):
                return True
        return False

    def _matching(self, one: Term, other: Term) -> Iterator[tuple[Term, Term, bool]]:
        """Equations whose sides may match the terms."""
        if not isinstance(one, Apply):
            return
        choices = [{_root(o), _ANY} for o in one.operands]
        for root in {_root(other), _ANY}:
            for shape in product(*choices):
                yield from self._index.get((one.label, one.part, shape, root), ())


def _root(term: Term) -> Any:
    return term.label if isinstance(term, Apply) else _ANY


def match(pattern: Term, term: Term, bound: dict[InputVariable, Term]) -> bool:
    """Return whether a term is the pattern with terms for its variables; `bound` collects these."""
    if isinstance(pattern, InputVariable):
        return bound.setdefault(pattern, term) == term
    if not isinstance(term, Apply) or pattern.part != term.part or len(pattern.operands) != len(term.operands):
        return False
    if pattern.label is not term.label and pattern.label != term.label:
        return False
    return all(match(inner, operand, bound) for inner, operand in zip(pattern.operands, term.operands, strict=True))


def _same_ranks(bound: dict[InputVariable, Term], pointwise: bool) -> bool:
    shifts = {t.type.rank - v.type.rank for v, t in bound.items() if isinstance(t, InputVariable)}
    return shifts <= {0} or (pointwise and len(shifts) == 1)
