"""Equations found so far: which others are instances of them, and which terms they turn into simpler ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, TypeAlias

from eqsat.language.ops import spec
from eqsat.rewrites.discovery.enumerate.build import SpaceBuilder
from eqsat.rewrites.discovery.enumerate.space import PARTS, Level
from eqsat.rewrites.discovery.enumerate.term import Apply, InputVariable, Label, Term, subterms

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
                for ordered in self._ways(left):
                    shape = tuple(_root(o) for o in ordered.operands)
                    self._lefts.setdefault((ordered.label, ordered.part, shape), []).append((ordered, right))

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


#: A form, the values it is applied to, and which of its outputs is meant.
Application: TypeAlias = tuple[int, tuple[int, ...], int]


class Simplifier:
    """The test of whether an equation turns a term of a level into a simpler term of that level or of one below.

    Operands of what it is turned into are brought to the simplest terms of their values. Simpler is meant by an order
    that ignores how variables are called, so that what is left out follows from what is kept, by induction over it.
    """

    def __init__(self, builder: SpaceBuilder, equations: SubsumptionIndex) -> None:
        self.builder, self.space, self.equations = builder, builder.space, equations
        self._values: dict[Term, int] = {}
        self._counted = (0, 0)
        self._forms: dict[Label, list[int]] = {}

    def simplifies(self, level: int, new_level: Level, code: int, term: Apply) -> bool:
        """Return whether some equation makes the term of a code simpler."""
        self._refresh()
        own: Any = None
        for left, right in self.equations.rewriting(term):
            bound: dict[InputVariable, Term] = {}
            if not match(left, term, bound):
                continue
            root = self._root(right, bound)
            if root is None:
                continue
            if isinstance(root, int):
                if self.space.values[root].level < level:
                    return True
                continue
            own = own or self.builder.key(new_level, code)[0]
            if self._held(root[1]) < level and self._key(*root) < own:
                return True
        return False

    def _refresh(self) -> None:
        space = self.space
        if self._counted == (len(space.values), len(space.derivations)):
            return
        self._values.update({d.term: d.value for d in space.derivations[self._counted[1] :]})
        self._values.update({v.term: i for i, v in enumerate(space.values)})
        self._counted = (len(space.values), len(space.derivations))
        self._forms.clear()
        for (form, _), typed in space.typings.items():
            if typed is not None and form not in self._forms.setdefault(typed[0], []):
                self._forms[typed[0]].append(form)

    def _root(self, term: Term, bound: dict[InputVariable, Term]) -> int | Application | None:
        """The value of a right side, or its form, operands and part where it is no value of a level below."""
        if isinstance(term, InputVariable):
            return self._values.get(bound[term]) if term in bound else None
        if not term.operands:
            return self._values.get(term)
        operands = []
        for operand in term.operands:
            value = self._root(operand, bound)
            if not isinstance(value, int):
                return None
            operands.append(value)
        return self._applied(term.label, operands, term.part)

    def _applied(
        self, label: Label, operands: Sequence[int], part: int
    ) -> int | tuple[int, tuple[int, ...], int] | None:
        space = self.space
        for form in self._forms.get(label, ()):
            arity = space.forms[form].arity
            free, tail = tuple(operands[:arity]), list(operands[arity:])
            if tail != space.tail(form):
                continue
            typed = space.typed(form, tuple(space.values[v].type for v in free))
            if typed is None or typed[0] != label:
                continue
            if arity == 2 and free[0] < free[1] and space.commutes(form, tuple(space.values[v].type for v in free)):
                free = free[::-1]
            known = self.builder.results.get((form, *free))
            return (form, free, part) if known is None else known[part]
        return None

    def _held(self, operands: tuple[int, ...]) -> int:
        """The number of applications that the operands are made of."""
        applications: frozenset[int] = frozenset()
        for operand in operands:
            derivation = self.space.values[operand].derivation
            if derivation >= 0:
                applications |= self.space.derivations[derivation].applications
        return len(applications)

    def _key(self, form: int, operands: tuple[int, ...], part: int) -> tuple[int, ...]:
        values = [self.space.values[v] for v in (*operands, *self.space.tail(form))]
        return (self.builder.groups[form], part % PARTS, *(v.skeleton for v in values))
