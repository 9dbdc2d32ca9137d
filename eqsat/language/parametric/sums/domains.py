"""Domains of bound unknowns: facts that all hold in them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from eqsat.language.parametric.facts import Fact, substituted
from eqsat.language.parametric.paths import current
from eqsat.language.terms.dims import Dim, Sym, linear_in


def joined(domains: Sequence[tuple[Fact, ...]]) -> list[tuple[Fact, ...]]:
    """Domains that have no place in common, two of them as one where they differ in the answer to one question alone.

    >>> n = Sym.named("n")
    >>> first, second = Fact.positive(n), Fact.positive(n - 9)
    >>> [len(domain) for domain in joined([(first.turned,), (first, second), (first, second.turned)])]
    [0]
    """
    found = list(domains)
    while True:
        for one, other in itertools.combinations(found, 2):
            apart = set(one) ^ set(other)
            if len(apart) == 2 and len({fact.turned if fact.held else fact for fact in apart}) == 1:
                found[found.index(one)] = tuple(fact for fact in one if fact not in apart)
                found.remove(other)
                break
        else:
            return found


def limits(name: str, domain: Sequence[Fact]) -> tuple[list[Dim], list[Dim]]:
    """The numbers that an unknown is not below, and those that it is not above, by the questions that say one."""
    least, most = [], []
    for question in domain:
        formula = question.formula if question.held else 1 - question.formula
        parts = None if question.is_zero else linear_in(formula, name)
        if parts is not None and parts[0] == 1:
            least.append(1 - parts[1])
        elif parts is not None and parts[0] == -1:
            most.append(parts[1] - 1)
    return least, most


def innermost(bounds: Sequence[Dim]) -> Dim | None:
    """The bound that no other is above, on all sizes of this path; None where none is known to be."""
    path = current()
    return next((a for a in bounds if all(a == b or path.holds(Fact.positive(a - b + 1)) for b in bounds)), None)


def pinned(bound: Sequence[str], domain: Sequence[Fact]) -> list[Fact]:
    """Equations of bound unknowns whose least value is their largest."""
    found = []
    for name in bound:
        least, most = limits(name, domain)
        one, path = Sym.named(name), current()
        found += [Fact.equal(one, low) for low in least for high in most if path.reduced(high - low) == 0]
    return found


def solution(formula: Dim, name: str) -> Dim | None:
    """The formula of an unknown by the equation of another with 0, None where that does not say so."""
    parts = linear_in(formula, name)
    return -parts[0] * parts[1] if parts is not None and abs(parts[0]) == 1 else None


def asked(question: Fact, values: Mapping[str, Dim]) -> Fact:
    """A question with unknowns replaced by formulas."""
    return Fact(substituted(question.formula, values), question.is_zero, question.held)
