"""The equation that a proof lacks: the smallest true one that would let its two sides meet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.egraph.egraph import EGraph
from eqsat.errors import EqsatError
from eqsat.rewrites.check import Mismatch, build, numeric_mismatch
from eqsat.rewrites.expression import compiled
from eqsat.rewrites.instance import Sampler
from eqsat.rewrites.parser import parse_rules
from eqsat.rewrites.proof.closure import Term
from eqsat.rewrites.proof.search import Search
from eqsat.rewrites.proof.show import Printer
from eqsat.rewrites.rule import Rule

#: More firings than this are not looked through.
_MOST_FIRINGS = 4000
#: How many pairs of classes are tried, and on how many instances each.
_PAIRS, _INSTANCES = 12, 12
_NAMES = ("u", "v", "r", "t", "q")


def missing_law(search: Search) -> str:
    """An equation in rule syntax that would close the proof, "" where none is found that is true on drawn instances.

    Its sides are the smallest terms of two classes, one reached from each side of the goal; what both have in common is
    a variable where the equation holds for any tensor there.
    """
    if len(search.egraph.applications) > _MOST_FIRINGS:
        return ""
    search.egraph.rebuild()
    search.replay()
    return _Gap(search).text()


@dataclass
class _Smallest:
    """The smallest term of each class, by size and then by age."""

    egraph: EGraph

    def __post_init__(self) -> None:
        self.best: dict[int, tuple[int, int]] = {}
        changed = True
        while changed:
            changed = False
            for _, _, operands, number in self.egraph.distinct():
                below = [self.best.get(self.egraph.find(k)) for k in operands]
                if any(b is None for b in below):
                    continue
                entry = (1 + sum(b[0] for b in below if b is not None), number)
                leader = self.egraph.find(number)
                if leader not in self.best or entry < self.best[leader]:
                    self.best[leader] = entry
                    changed = True


class _Gap:
    def __init__(self, search: Search) -> None:
        self.search, self.egraph, self.closure = search, search.egraph, search.goal.closure
        self.smallest = _Smallest(self.egraph).best
        self._terms: dict[int, int] = {}
        self._by_class: dict[int, list[tuple[str, int, tuple[int, ...]]]] = {}
        for op, attrs, operands, number in self.egraph.distinct():
            classes = tuple(self.egraph.find(k) for k in operands)
            self._by_class.setdefault(self.egraph.find(number), []).append((op, attrs, classes))

    def text(self) -> str:
        """The smallest equation that holds."""
        pairs = sorted(self._pairs(), key=lambda p: (self.smallest[p[0]][0] + self.smallest[p[1]][0], p))
        for a, b in pairs[:_PAIRS]:
            for text in self._texts(self._term(a), self._term(b)):
                if _holds(text):
                    return text
        return ""

    def _pairs(self) -> set[tuple[int, int]]:
        """Pairs of classes of which each, made equal, would make a side's two terms equal by congruence."""
        find = self.egraph.find
        found: set[tuple[int, int]] = set()
        ends = zip(self.search.left, self.search.right, strict=True)
        open_ = [(find(a), find(b)) for a, b in ends if find(a) != find(b)]
        if len(set(open_)) != 1:
            open_ = open_[:1]  # each output has a gap of its own; the first one's is named
        while open_:
            a, b = open_.pop()
            if (a, b) in found or len(found) > 200:
                continue
            found.add((a, b))
            for one, other in itertools.product(self._by_class.get(a, ()), self._by_class.get(b, ())):
                if one[:2] != other[:2] or len(one[2]) != len(other[2]):
                    continue
                differing = {(x, y) for x, y in zip(one[2], other[2], strict=True) if x != y}
                if len(differing) == 1:
                    open_ += differing
        return {p for p in found if p[0] in self.smallest and p[1] in self.smallest}

    def _term(self, leader: int) -> int:
        """The smallest term of a class, in the closure."""
        if leader not in self._terms:
            number = self.smallest[leader][1]
            known = self.closure.terms[self.search.term(number)]
            node = self.egraph.nodes[number]
            children = tuple(self._term(self.egraph.find(k)) for k in node.operands)
            made = Term(known.op, known.attrs, known.symbols, children, known.leaf)
            self._terms[leader] = self.closure.intern(made)
        return self._terms[leader]

    def _texts(self, a: int, b: int) -> Iterator[str]:
        """Ways of writing the equation, general ones first."""
        shared = self._shared(a, b)
        for concrete in (False, True):
            for abstracted in ([*shared], []) if shared else ([],):
                names = self._leaves(a, b) | dict(zip(abstracted, _NAMES, strict=False))
                printer = Printer(self.closure, names, concrete=concrete)
                left, right = printer.term(a), printer.term(b)
                for text in (f"{left} => {right}", f"{right} => {left}"):
                    yield from (_with_conditions(text, self.search.goal.rule), text)

    def _leaves(self, *terms: int) -> dict[int, str]:
        """Names for elements of sequences, which stand alone here."""
        found = {}
        for number in self._inside(*terms):
            leaf = self.closure.terms[number].leaf
            if leaf is not None and leaf[1] is not None:
                found[number] = f"{leaf[0]}{leaf[1]}"
        return found

    def _shared(self, a: int, b: int) -> list[int]:
        """The largest terms that are no leaves and occur in both."""
        both = self._inside(a) & self._inside(b)
        inner = {n for n in both if self.closure.terms[n].children}
        covered = {c for n in inner for c in self.closure.terms[n].children}
        return sorted(inner - covered)

    def _inside(self, *terms: int) -> set[int]:
        found: set[int] = set()
        pending = list(terms)
        while pending:
            number = pending.pop()
            if number not in found:
                found.add(number)
                pending += self.closure.terms[number].children
        return found


def _with_conditions(text: str, rule: Rule) -> str:
    """The equation under those of the rule's conditions that speak of what it binds."""
    try:
        (bare,) = parse_rules(f"gap: {text}")
    except EqsatError:
        return text
    bound = bare.tensors | bare.attrs
    kept = [c.text for c in rule.conditions if set(compiled(c).names) <= bound]
    return text + (" if " + ", ".join(kept) if kept else "")


def _holds(text: str) -> bool:
    """Whether the equation is well formed and holds on drawn instances."""
    try:
        (rule,) = parse_rules(f"gap: {text}")
        sampler = Sampler(rule)
        for _ in range(_INSTANCES):
            bindings = sampler.draw(200)
            if bindings is None:
                return False
            made = build(rule, bindings)
            if isinstance(made, Mismatch) or numeric_mismatch(made) is not None:
                return False
    except EqsatError:
        return False
    return True
