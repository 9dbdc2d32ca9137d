"""The equation that a proof lacks: the smallest true one that would let its two sides meet."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator

import numpy as np

from eqsat.egraph.egraph import EGraph
from eqsat.errors import EqsatError
from eqsat.rewrites.conditions.expression import compiled
from eqsat.rewrites.instances.instance import Sampler
from eqsat.rewrites.proof.chains.closure import ClosureTerm
from eqsat.rewrites.proof.chains.reading import Reading
from eqsat.rewrites.proof.chains.search import ProofSearch
from eqsat.rewrites.proof.chains.show import Printer
from eqsat.rewrites.proof.chains.symbols import Computed, Symbol
from eqsat.rewrites.proof.check import mismatch
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule, applications

#: More firings than this are not looked through.
_MOST_FIRINGS = 1500
#: How many pairs of classes are tried, and on how many instances each.
_PAIRS, _INSTANCES = 12, 24
#: How many equations are drawn instances of, and in how many tries for each.
_TRIED, _TRIES = 8, 60
#: How many terms of a class are compared, and how deep they may differ from its smallest one.
_FORMS, _DEPTH = 4, 2
_NAMES = ("u", "v", "r", "t", "q", "u1", "v1", "r1", "t1", "q1")


def missing_law(search: ProofSearch, *, itself: bool = True) -> str:
    """An equation in rule syntax that would close the proof; "" where even the rule itself is seen to be false.

    It holds on drawn instances, as far as that goes. Its sides are the smallest terms of two classes, one reached from
    each side of the goal; what both have in common is a variable where the equation holds for any tensor there. Where
    no such pair is found, it is the rule itself. Unless `itself`, it has fewer operators than the rule, which is more
    than to restate it, and is "" where there is none such.
    """
    text = ""
    if len(search.egraph.applications) <= _MOST_FIRINGS:
        search.replay()
        text = _Gap(search, itself=itself).text()
    return text or (_itself(search) if itself else "")


def _smallest(egraph: EGraph) -> dict[int, tuple[int, int]]:
    """The size and the number of the smallest term of each class, the oldest of one size."""
    best: dict[int, tuple[int, int]] = {}
    changed = True
    while changed:
        changed = False
        for _, _, operands, number in egraph.distinct():
            below = [best.get(egraph.find(k)) for k in operands]
            entry = (1 + sum(b[0] for b in below if b is not None), number)
            leader = egraph.find(number)
            if None not in below and (leader not in best or entry < best[leader]):
                best[leader] = entry
                changed = True
    return best


class _Gap:
    def __init__(self, search: ProofSearch, *, itself: bool) -> None:
        self.search, self.egraph, self.closure, self.itself = search, search.egraph, search.goal.closure, itself
        self.smallest = _smallest(self.egraph)
        self._operators = search.goal.rule.operators()
        self._terms: dict[tuple[int, int], list[int]] = {}
        self._members: dict[int, list[int]] = {}
        self._by_class: dict[int, list[tuple[str, int, tuple[int, ...]]]] = {}
        for op, attrs, operands, number in self.egraph.distinct():
            classes = tuple(self.egraph.find(k) for k in operands)
            leader = self.egraph.find(number)
            self._by_class.setdefault(leader, []).append((op, attrs, classes))
            if leader in self.smallest and all(c in self.smallest for c in classes):
                self._members.setdefault(leader, []).append(number)

    def text(self) -> str:
        """The smallest equation that holds; "" where none is found."""
        pairs = sorted(self._pairs(), key=lambda p: (self.smallest[p[0]][0] + self.smallest[p[1]][0], p))
        tried = 0
        for a, b in pairs[:_PAIRS]:
            for one, other in self._closest(a, b):
                if not self._agree(one, other):
                    continue
                for text in self._texts(one, other):
                    if not self.itself and not _is_smaller(text, self.search.goal.rule):
                        continue
                    if tried < _TRIED and _holds(text):
                        return text
                    tried += 1
        return ""

    def _pairs(self) -> set[tuple[int, int]]:
        """Pairs of classes of which each, made equal, would make a side's two terms equal by congruence."""
        find = self.egraph.find
        pairs: set[tuple[int, int]] = set()
        ends = zip(self.search.left, self.search.right, strict=True)
        open_ = [(find(a), find(b)) for a, b in ends if find(a) != find(b)]
        if len(set(open_)) != 1:
            open_ = open_[:1]  # each output has a gap of its own; the first one's is named
        while open_:
            a, b = open_.pop()
            if (a, b) in pairs or len(pairs) > 200:
                continue
            pairs.add((a, b))
            for one, other in itertools.product(self._by_class.get(a, ()), self._by_class.get(b, ())):
                if one[:2] != other[:2] or len(one[2]) != len(other[2]):
                    continue
                differing = {(x, y) for x, y in zip(one[2], other[2], strict=True) if x != y}
                if len(differing) == 1:
                    open_ += differing
        return {p for p in pairs if p[0] in self.smallest and p[1] in self.smallest}

    def _agree(self, one: int, other: int) -> bool:
        """True if two terms have the same elements in the instance of the search."""
        aim = self.search.goal
        reading = Reading(self.closure, aim.bindings, self.search.claims)
        try:
            with np.errstate(all="ignore"):
                a, b = (np.asarray(reading.elements(t)) for t in (one, other))
        except (EqsatError, ValueError):
            return False
        return a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True)

    def _closest(self, a: int, b: int) -> list[tuple[int, int]]:
        """Small terms of two classes, those first that have the least beside shared terms."""
        ranked: list[tuple[int, int, int]] = []
        for one, other in itertools.product(self._small(a, _DEPTH), self._small(b, _DEPTH)):
            shared = self._shared(one, other)
            cost = self._size(one, shared) + self._size(other, shared)
            ranked.append((cost, one, other))
        return [(one, other) for _, one, other in sorted(ranked)[:_FORMS]]

    def _small(self, leader: int, depth: int) -> list[int]:
        """The smallest terms of a class, in the closure, that differ in no deeper place than this."""
        key = leader, depth
        if key in self._terms:
            return self._terms[key]
        members = sorted(self._members[leader], key=lambda n: (self._height(n), n))
        terms: list[int] = []
        for number in members[: _FORMS if depth else 1]:
            node = self.egraph.nodes[number]
            known = self.closure.terms[self.search.term(number)]
            below = [self._small(self.egraph.find(k), max(depth - 1, 0)) for k in node.operands]
            for children in itertools.islice(itertools.product(*below), _FORMS):
                term = ClosureTerm(known.op, known.attrs, known.symbols, children, known.leaf)
                terms.append(self.closure.intern(term))
        self._terms[key] = sorted(set(terms), key=lambda t: (self._size(t, ()), t))[:_FORMS]
        return self._terms[key]

    def _height(self, number: int) -> int:
        strange = self.egraph.nodes[number].op not in self._operators
        return 1 + strange + sum(self.smallest[self.egraph.find(k)][0] for k in self.egraph.nodes[number].operands)

    def _size(self, number: int, leaves: Collection[int]) -> int:
        """The size of a term, some terms in it counting as one."""
        if number in leaves:
            return 1
        term = self.closure.terms[number]
        strange = bool(term.op) and term.op not in self._operators  # the rule's own operators are told first
        return 1 + strange + sum(self._size(c, leaves) for c in term.children)

    def _texts(self, a: int, b: int) -> Iterator[str]:
        """Ways of writing the equation, general ones first."""
        shared = self._shared(a, b)
        for concrete in (False, True):
            for abstracted in ([*shared], []) if shared else ([],):
                names = self._leaves(a, b) | dict(zip(abstracted, self._fresh(), strict=False))
                for one, other in ((a, b), (b, a)):
                    symbols = {} if concrete else self._computed(one)
                    printer = Printer(self.closure, names, symbols, concrete=concrete, numbers=not self.itself)
                    text = f"{printer.term(one)} => {printer.term(other)}"
                    yield from (_with_conditions(text, self.search.goal.rule), text)

    def _fresh(self) -> Iterator[str]:
        """Names that the rule does not use."""
        rule = self.search.goal.rule
        return (name for name in _NAMES if name not in rule.tensors | rule.attrs)

    def _computed(self, number: int) -> dict[Symbol, str]:
        """Names for attributes that are computed, which a left side can only bind."""
        inside = [s for n in sorted(self._inside(number)) for _, s in self.closure.terms[n].symbols]
        computed = dict.fromkeys(s for s in inside if isinstance(s, Computed))
        return {s: f"attr{i}" for i, s in enumerate(computed)}

    def _leaves(self, *terms: int) -> dict[int, str]:
        """Names for elements of sequences, which stand alone here."""
        names = {}
        for number in self._inside(*terms):
            leaf = self.closure.terms[number].leaf
            if leaf is not None and leaf[1] is not None:
                names[number] = f"{leaf[0]}{leaf[1]}"
        return names

    def _shared(self, a: int, b: int) -> list[int]:
        """The largest terms that are no leaves and occur in both."""
        both = self._inside(a) & self._inside(b)
        inner = {n for n in both if self.closure.terms[n].children}
        covered = {c for n in inner for c in self.closure.terms[n].children}
        return sorted(inner - covered)

    def _inside(self, *terms: int) -> set[int]:
        inside: set[int] = set()
        pending = list(terms)
        while pending:
            number = pending.pop()
            if number not in inside:
                inside.add(number)
                pending += self.closure.terms[number].children
        return inside


def _is_smaller(text: str, rule: Rule) -> bool:
    """True if an equation has fewer operators than a rule.

    One that has as many restates it: with other names, operands in another order or from right to left, or it is the
    rule with terms for its variables.
    """
    try:
        (gap,) = parse_rules(f"gap: {text}", origin="candidate")
    except EqsatError:
        return False
    return _operators(gap) < _operators(rule)


def _operators(rule: Rule) -> int:
    return sum(1 for side in (rule.roots, rule.right) for pattern in side for _ in applications(pattern))


def _itself(search: ProofSearch) -> str:
    """The rule, unless it is seen to be false."""
    text = search.goal.rule.text
    return text if _holds(text) else ""


def _with_conditions(text: str, rule: Rule) -> str:
    """The equation under those of the rule's conditions about names that it binds."""
    try:
        (bare,) = parse_rules(f"gap: {text}", origin="candidate")
    except EqsatError:
        return text
    bound = bare.tensors | bare.attrs
    conditions = [c.text for c in rule.conditions if set(compiled(c).names) <= bound]
    return text + (" if " + ", ".join(conditions) if conditions else "")


def _holds(text: str) -> bool:
    """True if the equation is well formed and holds on drawn instances."""
    try:
        (rule,) = parse_rules(f"gap: {text}", origin="candidate")
        sampler = Sampler(rule)
        drawn = (sampler.draw(_TRIES) for _ in range(_INSTANCES))
        return all(bindings is not None and mismatch(rule, bindings) is None for bindings in drawn)
    except (EqsatError, ValueError):  # NumPy refuses shapes that a shape rule let pass
        return False
