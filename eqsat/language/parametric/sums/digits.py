"""Digits of indices: one for each factor of a size."""

from __future__ import annotations

import itertools

from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.paths import current
from eqsat.language.terms.dims import Dim, Sym, exact_quotient, product


def positive_digits(size: Dim) -> list[tuple[Dim, ...]]:
    """The ways to write an index below a size as digits on this path: one digit where a factor may not be positive."""
    path = current()
    ways = digits(size)
    known = all(path.known_answer(Fact.positive(f)) or path.holds(Fact.positive(f)) for f in ways[0])
    return ways if known else [(size,)]


def digits(size: Dim) -> list[tuple[Dim, ...]]:
    """The ways to write an index below a size as digits: one for each factor, in any order, or one where it has none.

    >>> digits(Sym.named("a") * Sym.named("b"))
    [(Sym('a'), Sym('b')), (Sym('b'), Sym('a'))]
    """
    if not isinstance(size, Sym):
        return [(size,)]
    factors: list[Dim] = []
    for atom in {atom for monomial, _ in size.terms for atom, _ in monomial}:
        one = Sym([(((atom, 1),), 1)])
        while isinstance(size, Sym) and (rest := exact_quotient(size, one)) is not None:
            factors.append(one)
            size = rest
    # A number of equal parts comes before the size of each, as operators count the elements of groups.
    factors.sort(key=lambda factor: ("/(" in str(factor), str(factor)))
    if size != 1:
        factors = [size, *factors] if isinstance(size, int) else [*factors, size]
    return list(dict.fromkeys(itertools.permutations(factors))) if len(factors) < 4 else [(product(factors),)]
