"""Congruence closure over terms that remembers why they are equal, so that an equality becomes a chain of steps."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.egraph.forest import Forest
from eqsat.language.terms.graph import Attrs
from eqsat.rewrites.proof.chains.symbols import Symbol, indexed

#: More steps than this are no proof that anyone reads or a solver should check.
MOST_STEPS = 400


class ChainTooLongError(Exception):
    """An equality whose chain has more than MOST_STEPS steps."""


@dataclass(frozen=True, slots=True)
class ClosureTerm:
    """An operator over terms, or a leaf, which has the name of a variable of the rule and an index in a sequence.

    `attrs` are the attributes in the instance that is looked at, `symbols` the same ones stated for all instances.
    """

    op: str
    attrs: Attrs
    symbols: tuple[tuple[str, Symbol], ...]
    children: tuple[int, ...]
    leaf: tuple[str, int | None] | None = None

    @property
    def label(self) -> str:
        """The name of a leaf as text, with its place where it is an element of a sequence."""
        return indexed(*self.leaf) if self.leaf is not None else ""


@dataclass(frozen=True, slots=True)
class ClosureLink:
    """One step of a chain from a term to the next: by an equation, or, where that is None, since attributes agree.

    `source` and `target` are the terms that the step is about; `before` and `after` the whole terms around them.
    """

    equation: int | None
    backwards: bool
    source: int
    target: int
    before: int
    after: int


class Closure:
    """Terms numbered from 0, equations between them, and their consequences by congruence."""

    def __init__(self) -> None:
        self.terms: list[ClosureTerm] = []
        self._ids: dict[ClosureTerm, int] = {}
        self._forest = Forest()

    @property
    def leaves(self) -> list[int]:
        """The terms that are leaves."""
        return [number for number, term in enumerate(self.terms) if term.leaf is not None]

    def add(self, term: ClosureTerm) -> int:
        """The number of a term, which takes part in congruence from now on."""
        number = self.intern(term)
        self._forest.revive(number)
        return number

    def revive(self, number: int) -> None:
        """Let a term that is written down take part in congruence, its operands first."""
        for child in self.terms[number].children:
            self.revive(child)
        self._forest.revive(number)

    def intern(self, term: ClosureTerm) -> int:
        """The number of a term that is only written down."""
        number = self._ids.setdefault(term, len(self.terms))
        if number == len(self.terms):
            self.terms.append(term)
            self._forest.intern((term.op, term.attrs, term.leaf), term.children)
        return number

    def find(self, number: int) -> int:
        """The term that stands for all that are equal to one."""
        return self._forest.find(number)

    def lookup(self, op: str, attrs: Attrs, children: tuple[int, ...]) -> int | None:
        """A term with this operator and attributes over equal terms, if there is one."""
        return self._forest.lookup((op, attrs, None), children)

    def equate(self, left: int, right: int, equation: int) -> None:
        """State an equation."""
        self._forest.equate(left, right, equation)

    def chain(self, left: int, right: int) -> list[ClosureLink] | None:
        """The steps from one term to an equal one, congruence unfolded; None where they are not equal."""
        if self.find(left) != self.find(right):
            return None
        links = self._flat(left, right)
        return _without_loops(links)

    def used(self, left: int, right: int) -> set[int]:
        """The equations that the equality of two terms rests on."""
        equations: set[int] = set()
        pending, seen = [(left, right)], {(left, right)}
        while pending:
            a, b = pending.pop()
            for edge in self._forest.path(a, b):
                if edge.equation is not None:
                    equations.add(edge.equation)
                    continue
                pairs = zip(self.terms[edge.source].children, self.terms[edge.target].children, strict=True)
                fresh = {p for p in pairs if p[0] != p[1]} - seen
                seen |= fresh
                pending += fresh
        return equations

    # -- inside -------------------------------------------------------------------------------------------------------

    def _flat(self, left: int, right: int) -> list[ClosureLink]:
        links: list[ClosureLink] = []
        for edge in self._forest.path(left, right):
            if edge.equation is not None:
                source, target = edge.source, edge.target
                links.append(ClosureLink(edge.equation, edge.backwards, source, target, source, target))
            else:
                links += self._congruent(edge.source, edge.target)
            if len(links) > MOST_STEPS:
                raise ChainTooLongError
        return links

    def _congruent(self, source: int, target: int) -> list[ClosureLink]:
        """The operands made equal one after the other, then the attributes."""
        links: list[ClosureLink] = []
        term, goal = self.terms[source], self.terms[target]
        now = source
        for place, (a, b) in enumerate(zip(term.children, goal.children, strict=True)):
            for link in self._flat(a, b):
                current = self.terms[now]
                children = (*current.children[:place], link.after, *current.children[place + 1 :])
                after = self.intern(ClosureTerm(term.op, term.attrs, term.symbols, children, term.leaf))
                links.append(ClosureLink(link.equation, link.backwards, link.source, link.target, now, after))
                now = after
        if now != target:
            links.append(ClosureLink(None, False, now, target, now, target))
        return links


def _without_loops(links: list[ClosureLink]) -> list[ClosureLink]:
    """The chain without the detours that come back to a term."""
    if not links:
        return links
    chain: list[ClosureLink] = []
    place = {links[0].before: 0}
    for link in links:
        chain.append(link)
        known = place.get(link.after)
        if known is not None:
            for gone in chain[known:]:
                place.pop(gone.after, None)
            del chain[known:]
            place[link.after] = known
        else:
            place[link.after] = len(chain)
    return chain
