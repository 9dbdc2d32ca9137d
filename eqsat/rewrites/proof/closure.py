"""Congruence closure over terms that remembers why they are equal, so that an equality becomes a chain of steps.

The proof forest is that of Nieuwenhuis and Oliveras, Proof-producing congruence closure (2005): each union adds one
edge, and the only path between two terms uses edges that were there when they became equal.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.language.graph import Attrs
from eqsat.rewrites.proof.symbols import Symbol

#: More steps than this are no proof that anyone reads or a solver should check.
MOST_STEPS = 400


class ChainTooLongError(Exception):
    """An equality whose chain has more than MOST_STEPS steps."""


@dataclass(frozen=True, slots=True)
class Term:
    """An operator over terms, or a leaf, which has the name of a variable of the rule and an index in a sequence.

    `attrs` are the attributes in the instance that is looked at, `symbols` the same ones stated for all instances.
    """

    op: str
    attrs: Attrs
    symbols: tuple[tuple[str, Symbol], ...]
    children: tuple[int, ...]
    leaf: tuple[str, int | None] | None = None


@dataclass(frozen=True, slots=True)
class Link:
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
    """Terms numbered from 0, equations between them, and what follows by congruence."""

    def __init__(self) -> None:
        self.terms: list[Term] = []
        self._ids: dict[Term, int] = {}
        self._rep: list[int] = []
        self._members: dict[int, list[int]] = {}
        self._users: dict[int, list[int]] = {}
        self._table: dict[tuple[object, ...], int] = {}
        self._edges: list[tuple[int, int | None, bool] | None] = []
        self._live: set[int] = set()

    def add(self, term: Term) -> int:
        """The number of a term, which takes part in congruence from now on."""
        number = self.intern(term)
        if number in self._live:
            return number
        self._live.add(number)
        for child in set(term.children):
            self._users.setdefault(self.find(child), []).append(number)
        known = self._table.setdefault(self._signature(number), number)
        if known != number:
            self._merge(number, known, None)
        return number

    def revive(self, number: int) -> None:
        """Lets a term that is written down take part in congruence, its operands first."""
        for child in self.terms[number].children:
            self.revive(child)
        self.add(self.terms[number])

    def intern(self, term: Term) -> int:
        """The number of a term that is only written down."""
        number = self._ids.setdefault(term, len(self.terms))
        if number == len(self.terms):
            self.terms.append(term)
            self._rep.append(number)
            self._members[number] = [number]
            self._edges.append(None)
        return number

    def find(self, number: int) -> int:
        """The term that stands for all that are equal to one."""
        return self._rep[number]

    def lookup(self, op: str, attrs: Attrs, children: tuple[int, ...]) -> int | None:
        """A term with this operator and attributes over equal terms, if there is one."""
        return self._table.get((op, attrs, None, tuple(self.find(c) for c in children)))

    def equate(self, left: int, right: int, equation: int) -> None:
        """States an equation."""
        self._merge(left, right, equation)

    def chain(self, left: int, right: int) -> list[Link] | None:
        """The steps from one term to an equal one, congruence unfolded; None where they are not equal."""
        if self.find(left) != self.find(right):
            return None
        links = self._flat(left, right)
        return _without_loops(links)

    def used(self, left: int, right: int) -> set[int]:
        """The equations that the equality of two terms rests on."""
        found: set[int] = set()
        pending, seen = [(left, right)], {(left, right)}
        while pending:
            a, b = pending.pop()
            for source, target, equation, _ in self._path(a, b):
                if equation is not None:
                    found.add(equation)
                    continue
                pairs = zip(self.terms[source].children, self.terms[target].children, strict=True)
                fresh = {p for p in pairs if p[0] != p[1]} - seen
                seen |= fresh
                pending += fresh
        return found

    # -- inside -------------------------------------------------------------------------------------------------------

    def _signature(self, number: int) -> tuple[object, ...]:
        term = self.terms[number]
        return term.op, term.attrs, term.leaf, tuple(self.find(c) for c in term.children)

    def _merge(self, left: int, right: int, equation: int | None) -> None:
        pending: list[tuple[int, int, int | None]] = [(left, right, equation)]
        while pending:
            a, b, why = pending.pop()
            x, y = self.find(a), self.find(b)
            if x == y:
                continue
            self._link(a, b, why)
            if len(self._members[x]) > len(self._members[y]):
                x, y = y, x
            users = self._users.pop(x, [])
            for member in self._members[x]:
                self._rep[member] = y
            self._members[y] += self._members.pop(x)
            for user in users:
                known = self._table.setdefault(self._signature(user), user)
                if self.find(known) != self.find(user):
                    pending.append((user, known, None))
            self._users.setdefault(y, []).extend(users)

    def _link(self, a: int, b: int, why: int | None) -> None:
        """Makes a the root of its tree by turning the edges above it, then hangs it under b."""
        above, node, edge = None, a, self._edges[a]
        self._edges[a] = (b, why, False)
        while edge is not None:
            parent, reason, backwards = edge
            above = self._edges[parent]
            self._edges[parent] = (node, reason, not backwards)
            node, edge = parent, above

    def _path(self, a: int, b: int) -> list[tuple[int, int, int | None, bool]]:
        """The edges between two equal terms: source, target, equation, and whether it is used right to left."""
        ups: list[list[tuple[int, int, int | None, bool]]] = []
        depth: dict[int, int] = {}
        for start in (a, b):
            walk: list[tuple[int, int, int | None, bool]] = []
            node = start
            while (edge := self._edges[node]) is not None and not (start == b and node in depth):
                if start == a:
                    depth[node] = len(walk)
                walk.append((node, edge[0], edge[1], edge[2]))
                node = edge[0]
            if start == a:
                depth[node] = len(walk)
            ups.append(walk)
        meeting = ups[1][-1][1] if ups[1] else b
        down = [(target, source, why, not back) for source, target, why, back in reversed(ups[1])]
        return ups[0][: depth[meeting]] + down

    def _flat(self, left: int, right: int) -> list[Link]:
        links: list[Link] = []
        for source, target, why, back in self._path(left, right):
            if why is not None:
                links.append(Link(why, back, source, target, source, target))
            else:
                links += self._congruent(source, target)
            if len(links) > MOST_STEPS:
                raise ChainTooLongError
        return links

    def _congruent(self, source: int, target: int) -> list[Link]:
        """The operands made equal one after the other, then the attributes."""
        links: list[Link] = []
        term, goal = self.terms[source], self.terms[target]
        now = source
        for place, (a, b) in enumerate(zip(term.children, goal.children, strict=True)):
            for link in self._flat(a, b):
                current = self.terms[now]
                children = (*current.children[:place], link.after, *current.children[place + 1 :])
                after = self.intern(Term(term.op, term.attrs, term.symbols, children, term.leaf))
                links.append(Link(link.equation, link.backwards, link.source, link.target, now, after))
                now = after
        if now != target:
            links.append(Link(None, False, now, target, now, target))
        return links


def _without_loops(links: list[Link]) -> list[Link]:
    """The chain without the detours that come back to a term."""
    if not links:
        return links
    kept: list[Link] = []
    place = {links[0].before: 0}
    for link in links:
        kept.append(link)
        known = place.get(link.after)
        if known is not None:
            for gone in kept[known:]:
                place.pop(gone.after, None)
            del kept[known:]
            place[link.after] = known
        else:
            place[link.after] = len(kept)
    return kept
