"""Numbers for which facts hold that a solver does not find, as unknowns multiply or divide each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eqsat.language.parametric.facts import Fact
from eqsat.language.terms.dims import Dim, Sym


def model_beside(solver: Any, facts: Iterable[Fact], witness: Mapping[str, int]) -> Any:
    """Numbers for all that a solver was told, with those of a witness where facts would not be linear else; or None.

    Any numbers will do for which the facts hold: where some are fixed these are found by linear arithmetic.
    """
    import z3

    solver.push()
    solver.add(*(z3.Int(name) == witness[name] for name in multiplied(facts) if name in witness))
    model = solver.model() if solver.check() == z3.sat else None
    solver.pop()
    return model


def multiplied(facts: Iterable[Fact]) -> list[str]:
    """Unknowns without which no others are multiplied or divided in facts, those that are so most often.

    >>> a, b, c = map(Sym.named, "abc")
    >>> multiplied([Fact.positive(a * b), Fact.positive(a * c + b)])
    ['a']
    """
    products = [one for fact in facts for one in _products(fact.formula)]
    fixed: list[str] = []
    while True:
        open_products = [[name for name in one if name not in fixed] for one in products]
        counts = Counter(name for one in open_products if len(one) > 1 for name in sorted({*one}))
        if not counts:
            return fixed
        fixed.append(max(counts, key=lambda name: (counts[name], name)))


def _products(formula: Dim) -> Iterator[list[str]]:
    """The names in each product, twice of those that have to be fixed whatever others are.

    Nothing is linear that is divided by an unknown, and of factors that are functions of unknowns one may stay.
    """
    for monomial, _ in formula.terms if isinstance(formula, Sym) else ():
        names: list[str] = []
        functions: list[tuple[str, Dim, Dim]] = []
        for atom, power in monomial:
            if isinstance(atom, str):
                names += [atom] * power
            else:
                functions += [atom] * power
        for name, *parts in functions:
            yield from (one for part in parts for one in _products(part))
            if name in ("floordiv", "mod"):
                yield from _each(parts[1:])
        yield from _each(part for _, *parts in functions[1:] for part in parts)
        yield from ([name, name] for name in names) if functions else [names]


def _each(formulas: Iterable[Dim]) -> Iterator[list[str]]:
    """Each name in formulas twice."""
    for formula in formulas:
        yield from ([name, name] for name in sorted(formula.names() if isinstance(formula, Sym) else ()))
