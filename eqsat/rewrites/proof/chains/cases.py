"""Proofs of a rule for all of its instances: one chain for many, more where one does not fit all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat.egraph.saturation import Limits
from eqsat.errors import GraphError
from eqsat.language.terms.pattern import Bindings
from eqsat.rewrites.instances.instance import operands
from eqsat.rewrites.proof.chains.closure import ChainTooLongError, Closure, ClosureLink
from eqsat.rewrites.proof.chains.reading import Claims, Reading
from eqsat.rewrites.proof.chains.search import Goal, ProofSearch, goal, minimal, proves
from eqsat.rewrites.proof.chains.symbols import Symbol
from eqsat.rewrites.proof.chains.terms import Equation
from eqsat.rewrites.rules.rule import Rule

#: So many chains at most for the instances of one form, for rules that hold by cases.
MOST_CASES = 6
#: Sequences are looked at in these lengths.
ARITIES = (2, 3)


@dataclass(frozen=True)
class ProofCase:
    """A proof found in one instance: equations, the chain of each output, and how many instances it holds in."""

    goal: Goal
    closure: Closure
    equations: tuple[Equation, ...]
    chains: tuple[tuple[ClosureLink, ...], ...]
    holds: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each equation's rule."""
        return tuple(e.rule.name for e in self.equations)

    def attribute_steps(self) -> list[tuple[Symbol, Symbol]]:
        """Pairs of attributes that steps by congruence take for equal."""
        steps = []
        for chain in self.chains:
            for link in chain:
                if link.equation is None:
                    one, other = self.closure.terms[link.source], self.closure.terms[link.target]
                    steps += [(a, b) for (_, a), (_, b) in zip(one.symbols, other.symbols, strict=True) if a != b]
        return list(dict.fromkeys(steps))

    def fails(self, bindings: Bindings, claims: Claims) -> str | None:
        """Why the proof is none in another instance; None where it is one."""
        reading = Reading(self.closure, bindings, claims)
        for equation in self.equations:
            why = reading.holds(equation)
            if why is not None:
                return why
        try:
            if all(reading.agree(a, b) for a, b in self.attribute_steps()):
                return None
        except (GraphError, KeyError, IndexError, TypeError) as error:
            return str(error)
        return "attributes differ"


@dataclass(frozen=True)
class Proved:
    """Cases that together hold in every instance of one form."""

    cases: tuple[ProofCase, ...]
    instances: int


def rules_used(proved: Sequence[Proved]) -> tuple[str, ...]:
    """The rules that any of the cases use, by name."""
    return tuple(dict.fromkeys(name for p in proved for case in p.cases for name in case.names))


@dataclass(frozen=True)
class Stuck:
    """An instance in which the sides did not meet, and the limit that stopped the search."""

    search: ProofSearch | None
    stopped_by: str


def forms(rule: Rule, instances: Sequence[Bindings]) -> list[list[Bindings]]:
    """The instances by the lengths of their sequences, those of two or three elements where there are any."""
    groups: dict[tuple[Any, ...], list[Bindings]] = {}
    names = sorted(rule.tensor_groups | rule.attr_groups)
    for bindings in instances:
        sequences: list[Any] = [bindings.tensors.get(n) or bindings.attrs[n] for n in names]
        key = tuple(map(len, sequences))
        groups.setdefault(key, []).append(bindings)
    usual = {k: v for k, v in groups.items() if all(n in ARITIES for n in k)} or groups
    return sorted(usual.values(), key=len, reverse=True)[:4]


def by_cases(rule: Rule, laws: Sequence[Rule], instances: Sequence[Bindings], limits: Limits) -> Proved | Stuck:
    """Chains for all these instances, found in the most typical ones first."""
    claims = Claims(rule)
    typical = sorted(instances, key=lambda b: _typicality(rule, b), reverse=True)
    open_ = list(typical)
    cases: list[tuple[ProofCase, set[int]]] = []
    while open_:
        try:
            search = ProofSearch(goal(rule, open_[0]), claims)
        except GraphError as error:
            return Stuck(None, f"the right side does not type: {error.what}")
        if not search.run(laws, limits):
            return Stuck(search, search.stopped_by)
        case = extract(search)
        if case is None or case.fails(open_[0], claims) is not None:
            return Stuck(search, "a chain that cannot be followed")
        cases.append((case, {i for i, b in enumerate(typical) if case.fails(b, claims) is None}))
        covered = set().union(*(c for _, c in cases))
        open_ = [b for i, b in enumerate(typical) if i not in covered]
        if open_ and len(cases) == MOST_CASES:
            return Stuck(search, f"more than {MOST_CASES} cases")
    return Proved(tuple(_fewest(cases, len(typical))), len(typical))


def _fewest(cases: Sequence[tuple[ProofCase, set[int]]], count: int) -> list[ProofCase]:
    """Cases that together hold everywhere, those that hold most widely first."""
    chosen: list[ProofCase] = []
    covered: set[int] = set()
    for case, holds in sorted(cases, key=lambda f: len(f[1]), reverse=True):
        if not holds <= covered:
            covered |= holds
            chosen.append(replace(case, holds=len(holds)))
        if len(covered) == count:
            break
    return chosen


def extract(search: ProofSearch) -> ProofCase | None:
    """The proof that a search has found, as short as dropping equations makes it."""
    search.replay()
    aim = search.goal
    if not aim.is_met(aim.closure):
        return None
    equations = minimal(aim, search.equations)
    closure = proves(aim, equations)
    if closure is None:
        return None
    try:
        chains = [closure.chain(a, b) for a, b in aim.pairs]
    except ChainTooLongError:
        return None
    return ProofCase(aim, closure, tuple(equations), tuple(tuple(c or ()) for c in chains))


def _typicality(rule: Rule, bindings: Bindings) -> float:
    """A score, high where little is special in an instance: no dims of one or equal, no attribute without effect."""
    try:
        terms = goal(rule, bindings).closure.terms
    except GraphError:
        terms = []
    score = 0.0
    for operand in operands(bindings):
        dims = [d for d in operand.type.dims if isinstance(d, int)]
        score += len({d for d in dims if d > 1}) - sum(d <= 1 for d in dims) - 0.5 * (len(dims) - len(set(dims)))
    return score - sum(2.0 * _is_idle(value) for term in terms for value in term.attrs.values())


def _is_idle(value: Any) -> bool:
    """A permutation that moves nothing, pads of zero, strides of one."""
    if isinstance(value, tuple) and value:
        return value == tuple(range(len(value))) or len(set(value)) == 1
    return False
