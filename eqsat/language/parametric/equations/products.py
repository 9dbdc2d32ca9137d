"""Contradictions between facts in which unknowns are multiplied and divided, found by linear arithmetic.

Z3 often does not know what follows where unknown integers divide each other. Here each product of unknowns is one more
number of which nothing is known but what the products of two facts say of it (compare D. Handelman, 1988, and the
relaxations of H. Sherali and W. Adams, 1990), and a quotient that it is the largest integer which times the divisor is
not above the dividend. What has no solution then has none in integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from eqsat.language.parametric.facts import Fact, substituted
from eqsat.language.terms.dims import Atom, Dim, Monomial, Sym, linear_in

#: The steps of the solver for one contradiction, and the most statements that it is looked for in.
STEPS, STATEMENTS = 2_000_000, 1_500


def contradicts(facts: Iterable[Fact]) -> bool:
    """True if no integers are as these facts say; false where that was not shown.

    >>> n, p = Sym.named("n"), Sym.named("p")
    >>> rest = n - p * Sym.function("floordiv", n, p)
    >>> contradicts([Fact.positive(p), Fact.positive(1 - rest), Fact.equal(n, p * Sym.named("k") + 1)])
    False
    >>> contradicts([Fact.positive(p), Fact.positive(-rest)])
    True
    """
    import z3

    facts = _solved(list(facts))
    atoms = _functions(fact.formula for fact in facts)
    known = [one for fact in facts for one in _least(fact)]
    positive = {formula for formula in known if isinstance(formula, Sym)}
    divisors = [atom[2] for atom in atoms if not isinstance(atom, str) and atom[0] == "floordiv"]
    divisors = list(dict.fromkeys(one for one in divisors if _is_positive(one, positive)))
    for atom in atoms:
        known += _said_of(atom, divisors)
    factors = _factors(divisors, positive)
    if len(known) * len(factors) > STATEMENTS:
        return False
    number = _Products(z3).number

    def hold(*formulas: Dim) -> Any:
        """The statement that formulas are not below 0, and no products of them with factors."""
        return z3.And(*(number(one * factor) >= 0 for one in formulas for factor in factors))

    solver = z3.SolverFor("QF_LRA")
    solver.set("rlimit", STEPS)
    solver.add(*map(hold, dict.fromkeys(known)))
    for fact in facts:
        if fact.is_zero and not fact.held:
            solver.add(z3.Or(hold(fact.formula - 1), hold(-fact.formula - 1)))
    for atom in atoms:
        if not isinstance(atom, str) and atom[0] in ("min", "max"):
            value = _value(atom)
            solver.add(z3.Or(*(hold(value - part, part - value) for part in atom[1:])))
    return bool(solver.check() == z3.unsat)


def _solved(facts: list[Fact]) -> list[Fact]:
    """The same facts without unknowns that equations say what they are."""
    for place, fact in enumerate(facts):
        formula = fact.formula
        for name in sorted(formula.names()) if fact.is_zero and fact.held and isinstance(formula, Sym) else ():
            parts = linear_in(formula, name)
            if parts is not None and abs(parts[0]) == 1:
                values = {name: -parts[0] * parts[1]}
                rest = [one for other, one in enumerate(facts) if other != place]
                return _solved([Fact(substituted(one.formula, values), one.is_zero, one.held) for one in rest])
    return facts


def _least(fact: Fact) -> Iterator[Dim]:
    """Formulas that a fact says are not below 0."""
    if fact.is_zero:
        if fact.held:
            yield from (fact.formula, -fact.formula)
    else:
        yield fact.formula - 1 if fact.held else -fact.formula


def _functions(formulas: Iterable[Dim]) -> list[Atom]:
    """The quotients and bounds that formulas are made of, with those inside others."""
    found: dict[Atom, None] = {}
    pending = list(formulas)
    while pending:
        one = pending.pop()
        for monomial, _ in one.terms if isinstance(one, Sym) else ():
            for atom, _power in monomial:
                if not isinstance(atom, str) and atom not in found:
                    found[atom] = None
                    pending += atom[1:]
    return list(found)


def _is_positive(divisor: Dim, known: set[Sym]) -> bool:
    """True if a divisor is above 0, by a fact about it or about each of its factors; `known` are not below 0."""
    if isinstance(divisor, int):
        return divisor > 0
    if divisor - 1 in known:
        return True
    if len(divisor.terms) != 1 or divisor.terms[0][1] < 1:
        return False
    factors = [Sym([(((atom, 1),), 1)]) for atom, _ in divisor.terms[0][0]]
    return all(factor - 1 in known for factor in factors)


def _value(atom: Atom) -> Sym:
    return Sym([(((atom, 1),), 1)])


def _said_of(atom: Atom, divisors: Sequence[Dim]) -> Iterator[Dim]:
    """Formulas that are not below 0, by the meaning of a function."""
    if isinstance(atom, str):
        return
    name, a, b = atom
    value = _value(atom)
    if name == "floordiv" and b in divisors:
        rest = a - value * b
        yield from (rest, b - 1 - rest)
    elif name in ("min", "max"):
        yield from (part - value if name == "min" else value - part for part in (a, b))


def _factors(divisors: Sequence[Dim], known: set[Sym]) -> list[Dim]:
    """The factors of all facts: 1, divisors and what those are made of, and how much these exceed 1."""
    found: dict[Dim, None] = {1: None}
    for divisor in divisors:
        if isinstance(divisor, int):
            continue
        parts = [divisor]
        if len(divisor.terms) == 1 and len(divisor.terms[0][0]) > 1:
            factors = [_value(atom) for atom, _ in divisor.terms[0][0]]
            parts += [factor for factor in factors if factor - 1 in known]  # both may be negative
        found |= dict.fromkeys([*parts, *(part - 1 for part in parts)])
    return list(found)


class _Products:
    """Numbers of Z3 for products of atoms, one for each."""

    def __init__(self, z3: Any) -> None:
        self._z3 = z3
        self._numbers: dict[Monomial, Any] = {(): z3.RealVal(1)}

    def number(self, formula: Dim) -> Any:
        """The linear term that a formula is."""
        terms = formula.terms if isinstance(formula, Sym) else (((), formula),)
        return self._z3.Sum(*[self._z3.RealVal(factor) * self._product(monomial) for monomial, factor in terms])

    def _product(self, monomial: Monomial) -> Any:
        if monomial not in self._numbers:
            self._numbers[monomial] = self._z3.Real(f"product {len(self._numbers)}")
        return self._numbers[monomial]
