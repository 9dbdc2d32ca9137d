"""Terms that the equations found so far turn into simpler ones, in one step at the root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from eqsat.rewrites.discovery.enumerate.build import SpaceBuilder
from eqsat.rewrites.discovery.enumerate.instances import SubsumptionIndex, match
from eqsat.rewrites.discovery.enumerate.space import PARTS, Level
from eqsat.rewrites.discovery.enumerate.term import Apply, InputVariable, Label, Term

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

    def simplifies(self, level: int, made: Level, code: int, term: Apply) -> bool:
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
            own = own or self.builder.key(made, code)[0]
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
        found: frozenset[int] = frozenset()
        for operand in operands:
            derivation = self.space.values[operand].derivation
            if derivation >= 0:
                found |= self.space.derivations[derivation].applications
        return len(found)

    def _key(self, form: int, operands: tuple[int, ...], part: int) -> tuple[int, ...]:
        values = [self.space.values[v] for v in (*operands, *self.space.tail(form))]
        return (self.builder.groups[form], part % PARTS, *(v.skeleton for v in values))
