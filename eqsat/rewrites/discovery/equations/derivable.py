"""Derivation of equations by other rules: both sides of each in one e-graph, saturated with the other rules.

An optimiser runs no rule of the phase "associate", since associativity and distributivity let every graph explode, and
it starts from the left side alone. A rule that runs by default is therefore derived only where rules that run by
default prove it, within the radius of an optimisation; one that saves work only where, besides, they lead from its left
side to something that is as little work as its right side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat.egraph.egraph import INPUT, EGraph
from eqsat.egraph.explain import Explainer
from eqsat.egraph.matching.build import split_slices
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.errors import GraphError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import Attrs, Bindings, Constant, Siblings, TensorType
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.instance import arrays_of, draw, operands
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import Term, both_sides, left_terms, values

#: Many claims at once, without merging siblings; then a few with all there is.
CHEAP = Limits(nodes=60_000, rounds=4, seconds=60.0, generations=0, radius=2)
THOROUGH = Limits(nodes=3_000, rounds=8, seconds=8.0, generations=2)
#: All there is, for some claims at once and one step farther than CHEAP.
ON_REQUEST = Limits(nodes=30_000, rounds=6, seconds=60.0, generations=0)
#: Both sides of many claims at once, with any rule, one step less far than ON_REQUEST.
BY_LAWS = Limits(nodes=20_000, rounds=4, seconds=60.0, generations=0, radius=2)
#: Number of claims that share an e-graph under each of the limits.
TOGETHER = {CHEAP: 512, THOROUGH: 3, ON_REQUEST: 16, BY_LAWS: 64}
#: The phases of rules that make one output less work.
SAVING = frozenset({"simplify", "fuse"})
#: Weights of operators: one that computes outweighs any number of those that only move elements.
_COMPUTES, _MOVES = 1000, 1
#: Instances that stand for a rule, and how many are drawn to choose them from.
INSTANCES, DRAWN = 4, 24


@dataclass(frozen=True)
class Claim:
    """One instance of an equation, as the terms of its two sides; `name` says whose it is.

    `merges` says that a derivation may have to merge siblings, `associates` that it may use rules of that phase, and
    `saves` that the right side is less work than the left.
    """

    name: str
    left: tuple[Any, ...]
    right: tuple[Any, ...]
    merges: bool = False
    associates: bool = False
    saves: bool = False


@dataclass(frozen=True)
class Derivability:
    """The verdict on whether rules derive an equation, the rules its proofs use, and the number of instances proved."""

    derived: bool
    rules: tuple[str, ...] = ()
    instances: int = 0

    def __bool__(self) -> bool:
        return self.derived


def derivable(rule: Rule, rules: Sequence[Rule], limits: Sequence[Limits] = (CHEAP, THOROUGH)) -> Derivability:
    """Derive a rule: saturate with `rules` until both its sides are equal, on several instances of it.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> text = "once: relu(relu(x)) => relu(x)\\nthrice: relu(relu(relu(x))) => relu(x)"
    >>> once, thrice = parse_rules(text)
    >>> derivable(thrice, [once]).rules, bool(derivable(once, [thrice]))
    (('once',), False)
    """
    return derivations(claims(rule), rules, limits).get(rule.name, Derivability(False))


def derivations(
    wanted: Iterable[Claim], rules: Sequence[Rule], limits: Sequence[Limits] = (CHEAP, THOROUGH)
) -> dict[str, Derivability]:
    """Derivations of many claims by rules, under the name of the claims' owner; all claims of one owner must hold."""
    pending = list(wanted)
    names = dict.fromkeys(c.name for c in pending)
    all_rules = executable(rules) if any(c.associates for c in pending) else ()
    used: dict[str, dict[str, None]] = {name: {} for name in names}
    proved = dict.fromkeys(names, 0)
    for limit in limits:
        open_claims: list[Claim] = []
        for batch in _batches(pending, TOGETHER.get(limit, 1)):
            proofs = _Batch(batch, all_rules if batch[0].associates else rules, limit).proofs()
            for claim, by in zip(batch, proofs, strict=True):
                if by is None:
                    open_claims.append(claim)
                else:
                    used[claim.name] |= dict.fromkeys(by)
                    proved[claim.name] += 1
        pending = open_claims
        if not pending:
            break
    failed = {c.name for c in pending}
    return {n: Derivability(n not in failed, tuple(used[n]) if n not in failed else (), proved[n]) for n in names}


def executable(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Rules in the phases that saturation runs, those of "associate" among those that grow the graph."""
    return tuple(replace(r, phase="expand") if r.phase == "associate" else r for r in rules)


def claims(rule: Rule, count: int = INSTANCES, seed: int = 0, tries: int = 300) -> list[Claim]:
    """Instances of a rule that are as weak as its conditions allow: few constants, few finite operands, any dtype.

    What saturation derives for these it derives for all that conditions tell no further apart. Those about which least
    is special are taken, since a transpose that moves nothing follows from less.
    """
    drawn = draw(rule, DRAWN, seed, tries)
    drawn.sort(key=lambda b: _special(rule, b))
    distinct: dict[str, Claim] = {}
    for bindings in drawn:
        claim = _claim(rule, _weakened(rule, bindings))
        if claim is not None and len(distinct) < count:
            distinct.setdefault(repr([(t.op, t.attrs, t.types) for t in claim.left]), claim)
    return list(distinct.values())


def _special(rule: Rule, bindings: Bindings) -> float:
    """A measure of how special an instance is: dims of one, equal dims, operators that leave their operand as it is."""
    drawn = operands(bindings)
    score = 0.0
    for operand in drawn:
        dims = operand.type.dims
        score += sum(d == 1 for d in dims) + 0.5 * (len(dims) - len(set(dims)))
    interpretation = Floats(wide=True)
    arrays = arrays_of(bindings, interpretation)
    pending: list[Any] = left_terms(rule, bindings)
    while pending:
        term = pending.pop()
        if isinstance(term, Term):
            pending += term.operands
            if (spec(term.op).movement or term.op.startswith("reduce_")) and len(term.operands) == 1:
                before, after = (values([t], interpretation, arrays)[0] for t in (term.operands[0], term))
                score += 4.0 * np.array_equal(before, after)
    return score


def _claim(rule: Rule, bindings: Bindings) -> Claim | None:
    sides = both_sides(rule, bindings)
    if sides is None:
        return None
    merges = isinstance(rule.left, Siblings) or len(rule.left) > 1
    left, right = map(tuple, sides)
    return Claim(rule.name, left, right, merges, rule.phase == "associate", rule.phase in SAVING)


def _weakened(rule: Rule, bindings: Bindings) -> Bindings:
    """The bindings with nothing known of an operand that the conditions do not ask for."""
    drawn = operands(bindings)
    for operand in drawn:
        for fact in ("constant", "finite"):
            before = getattr(operand, fact)
            setattr(operand, fact, False)
            if before and not _fits(rule, bindings):
                setattr(operand, fact, True)
        if operand.constant and not operand.read and operand.array.dtype.kind == "f":
            operand.array = np.abs(operand.array) + 0.25  # no root of a negative number, which the e-graph refuses
    wide = [o for o in drawn if o.type.dtype.value == "float64"]
    for name in ("int64", "float16", "float32"):
        saved = [(o.type, o.array) for o in wide]
        for operand in wide:
            operand.type = TensorType.of(name, operand.type.shape)
            operand.array = np.asarray(operand.array).astype(operand.type.dtype.numpy)
        if _fits(rule, bindings):
            break
        for operand, (type, array) in zip(wide, saved, strict=True):
            operand.type, operand.array = type, array
    return bindings


def _fits(rule: Rule, bindings: Bindings) -> bool:
    return rule.refused(bindings) is None and _claim(rule, bindings) is not None


def _batches(pending: Sequence[Claim], size: int) -> Iterable[list[Claim]]:
    """Claims that share an e-graph: of one kind, since kinds differ in the rules they run."""
    for kind in itertools.product((False, True), repeat=2):
        same = [c for c in pending if (c.merges, c.associates) == kind]
        yield from (same[i : i + size] for i in range(0, len(same), size))


@dataclass
class _Batch:
    """Claims in one e-graph; operands of different claims are different tensors, so nothing joins two of them."""

    claims: Sequence[Claim]
    rules: Sequence[Rule]
    limits: Limits
    egraph: EGraph = field(default_factory=EGraph)
    congruent: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def proofs(self) -> list[tuple[str, ...] | None]:
        """For each claim the rules that prove it, None where its sides stayed apart."""
        merging = any(c.merges for c in self.claims) or self.limits.generations > 0
        rules = self.rules if merging else [r for r in self.rules if r.phase != "merge"]
        limits = self.limits if self.limits.generations else replace(self.limits, generations=int(merging))
        saturator = Saturator(self.egraph, rules, limits)
        encoded: list[dict[int, list[int]]] = [{} for _ in self.claims]
        lefts = [self._encoded(claim.left, index, encoded) for index, claim in enumerate(self.claims)]
        reached = [True] * len(self.claims)
        if any(c.saves for c in self.claims):
            saturator.run()
            reached = self._reached(lefts)
        sides = []
        for index, (claim, left) in enumerate(zip(self.claims, lefts, strict=True)):
            right = self._encoded(claim.right, index, encoded)
            sides.append(None if left is None or right is None else list(zip(left, right, strict=True)))
        saturator.run()
        explainer = Explainer(self.egraph)
        return [
            self._proof(explainer, index, pairs) if pairs is not None and reached[index] else None
            for index, pairs in enumerate(sides)
        ]

    def _reached(self, lefts: Sequence[list[int] | None]) -> list[bool]:
        """For each claim whether its left side came to be as little work as its right side, where that saves any."""
        costs = least_work(self.egraph)
        find = self.egraph.find
        return [
            not claim.saves or left is None or sum(costs[find(n)] for n in left) <= sum(map(_work, claim.right))
            for claim, left in zip(self.claims, lefts, strict=True)
        ]

    def _encoded(self, terms: Iterable[Any], index: int, encoded: list[dict[int, list[int]]]) -> list[int] | None:
        """The e-nodes of terms, None where the e-graph refuses one."""
        try:
            return [n for t in terms for n in self._term(t, index, encoded[index])]
        except GraphError:
            return None

    def _term(self, term: Term | Drawn, index: int, encoded: dict[int, list[int]]) -> list[int]:
        if id(term) not in encoded:
            if isinstance(term, Drawn):
                encoded[id(term)] = [self._leaf(term, index)]
            else:
                below = [self._term(o, index, encoded)[0] for o in term.operands if isinstance(o, Term | Drawn)]
                if term.op == "split":
                    encoded[id(term)] = split_slices(self.egraph, below[0], term.attrs)
                else:
                    encoded[id(term)] = [self.egraph.add(term.op, term.attrs, below)]
                for number in encoded[id(term)]:  # the e-node may be there over other members of the classes
                    self.congruent.setdefault(index, []).extend(
                        zip(below, self.egraph.nodes[number].operands, strict=False)
                    )
        return encoded[id(term)]

    def _leaf(self, operand: Drawn, index: int) -> int:
        if operand.constant:
            return self.egraph.constant(Constant.of(np.asarray(operand.array)))
        number = self.egraph.add(INPUT, Attrs(name=f"{index}.{operand.name}"), (), types=(operand.type,))
        self.egraph.eclass(number).finite = operand.finite
        return number

    def _proof(self, explainer: Explainer, index: int, sides: list[tuple[int, int]]) -> tuple[str, ...] | None:
        find = self.egraph.find
        if any(find(a) != find(b) for a, b in sides):
            return None
        return tuple(sorted(explainer.derive(sides + self.congruent.get(index, [])).rules))


def least_work(egraph: EGraph) -> dict[int, float]:
    """By class, the least work of its trees; a shared subterm counts each time."""
    costs = dict.fromkeys(egraph.leaders(), math.inf)
    changed = True
    while changed:
        changed = False
        for op, _, children, number in egraph.distinct():
            leader = egraph.find(number)
            cost = _weight(op, bool(children)) + sum(costs[egraph.find(k)] for k in children)
            if cost < costs[leader]:
                costs[leader], changed = cost, True
    return costs


def _work(term: Any) -> float:
    if not isinstance(term, Term):
        return 0
    return _weight(term.op, bool(term.operands)) + sum(map(_work, term.operands))


def _weight(op: str, applied: bool) -> int:
    if not applied or op not in OPS:
        return 0
    return _MOVES if OPS[op].movement else _COMPUTES
