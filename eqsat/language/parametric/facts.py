"""Facts of unknown integers: a formula of them is positive, or zero, or is not; and the terms of Z3 for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from eqsat.language.terms.dims import Dim, Sym, dim_max, dim_min, evaluate, floordiv


@dataclass(frozen=True, slots=True)
class Fact:
    """A formula is positive, or zero, or it is not: a question with its answer."""

    formula: Dim
    is_zero: bool
    held: bool = True

    @staticmethod
    def positive(formula: Dim) -> Fact:
        """The question whether a formula is above 0; whether one with a minus in front is, is asked of its negative."""
        if isinstance(formula, Sym) and formula.terms[0][1] < 0:
            return Fact(1 - formula, False, False)
        return Fact(formula, False)

    @staticmethod
    def equal(a: Dim, b: Dim) -> Fact:
        """The question whether two formulas are equal, the same one whichever comes first."""
        gap = a - b
        turned = isinstance(gap, Sym) and gap.terms[0][1] < 0
        return Fact(-gap if turned else gap, True)

    @property
    def turned(self) -> Fact:
        """The same question with the other answer."""
        return Fact(self.formula, self.is_zero, not self.held)

    @property
    def forms(self) -> tuple[Fact, ...]:
        """The ways to write it: that an integer is above 0 says that 1 less it is not."""
        return (self,) if self.is_zero else (self, Fact(1 - self.formula, False, not self.held))

    def at(self, sizes: Mapping[str, int]) -> bool:
        """True if the answer is the one that these numbers give."""
        value = evaluate(self.formula, sizes)
        return (value == 0 if self.is_zero else value > 0) is self.held

    def names(self) -> frozenset[str]:
        """The names of the unknowns that it is about."""
        return self.formula.names() if isinstance(self.formula, Sym) else frozenset()

    def __str__(self) -> str:
        sign = ("= 0" if self.held else "!= 0") if self.is_zero else ("> 0" if self.held else "<= 0")
        return f"{self.formula} {sign}"


def least_of(formula: Dim, least: Mapping[str, int]) -> float:
    """A number that a formula is never below, by the least that its unknowns may be."""
    if isinstance(formula, int):
        return formula
    total = 0.0
    for monomial, coefficient in formula.terms:
        factor = 1.0
        for atom, power in monomial:
            below = least.get(atom, -1) if isinstance(atom, str) else -1
            if below < 0:
                return -math.inf
            factor *= below**power
        if coefficient < 0 and monomial:
            return -math.inf
        total += coefficient * factor
    return total


def substituted(formula: Dim, values: Mapping[str, Dim]) -> Dim:
    """A formula with unknowns replaced by formulas.

    >>> n = Sym.named("n")
    >>> substituted(n * n + floordiv(n + 1, 2), {"n": 3})
    11
    """
    if not isinstance(formula, Sym) or not values or formula.names().isdisjoint(values):
        return formula
    total: Dim = 0
    for monomial, coefficient in formula.terms:
        made: Dim = coefficient
        for atom, power in monomial:
            if isinstance(atom, str):
                value = values.get(atom, Sym.named(atom))
            else:
                value = _FUNCTIONS[atom[0]](substituted(atom[1], values), substituted(atom[2], values))
            for _ in range(power):
                made = made * value
        total = total + made
    return total


_FUNCTIONS: dict[str, Callable[[Dim, Dim], Dim]] = {
    "floordiv": floordiv,
    "mod": lambda a, b: Sym.function("mod", a, b) if isinstance(b, Sym) else a % b,
    "max": dim_max,
    "min": dim_min,
}


@cache
def term(question: Fact) -> Any:
    """The statement that a question is answered so."""
    import z3

    value = number(question.formula)
    statement = value == 0 if question.is_zero else value > 0
    return statement if question.held else z3.Not(statement)


@cache
def number(formula: Dim) -> Any:
    """The integer term of Z3 that a formula is."""
    import z3

    if isinstance(formula, int):
        return z3.IntVal(formula)
    return z3.Sum(*[_monomial(factors, coefficient) for factors, coefficient in formula.terms])


def _monomial(factors: Any, coefficient: int) -> Any:
    import z3

    result = z3.IntVal(coefficient)
    for atom, power in factors:
        for _ in range(power):
            result = result * _atom(atom)
    return result


def _atom(atom: Any) -> Any:
    import z3

    if isinstance(atom, str):
        return z3.Int(atom)
    name, a, b = atom[0], number(atom[1]), number(atom[2])
    if name == "floordiv":
        return a / b
    if name == "mod":
        return a % b
    smaller, larger = (a, b) if name == "min" else (b, a)
    return z3.If(a <= b, smaller, larger)
