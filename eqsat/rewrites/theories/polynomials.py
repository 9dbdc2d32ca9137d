"""Polynomials over tensors, which are added and multiplied element by element."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import TypeAlias

from eqsat.language.terms.pattern import App, Pattern, Spread, Var

#: The powers of names in a product, by name: those of constants may be negative.
Monomial: TypeAlias = tuple[tuple[str, int], ...]
#: The factors of products, none of them 0.
Polynomial: TypeAlias = Mapping[Monomial, Fraction]

ONE: Polynomial = MappingProxyType({(): Fraction(1)})


def variable(name: str, power: int = 1) -> Polynomial:
    """A name to a power."""
    return {((name, power),): Fraction(1)}


def number(value: Fraction) -> Polynomial:
    """A number."""
    return {(): value} if value else {}


def added(one: Polynomial, other: Polynomial, factor: Fraction = Fraction(1)) -> Polynomial:
    """The sum of a polynomial and a multiple of another one."""
    terms = dict(one)
    for monomial, coefficient in other.items():
        terms[monomial] = terms.get(monomial, Fraction(0)) + factor * coefficient
    return {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}


def multiplied(one: Polynomial, other: Polynomial) -> Polynomial:
    """The product of two polynomials."""
    terms: dict[Monomial, Fraction] = {}
    for left, a in one.items():
        for right, b in other.items():
            product = times(left, right)
            terms[product] = terms.get(product, Fraction(0)) + a * b
    return {monomial: coefficient for monomial, coefficient in terms.items() if coefficient}


def times(one: Monomial, other: Monomial) -> Monomial:
    """The product of two monomials."""
    powers = dict(one)
    for name, power in other:
        powers[name] = powers.get(name, 0) + power
    return tuple(sorted((name, power) for name, power in powers.items() if power))


def quotient(polynomial: Polynomial, name: str) -> tuple[Polynomial, Polynomial]:
    """A polynomial as a name times one, plus another one in which the name has no positive power."""
    within: dict[Monomial, Fraction] = {}
    without: dict[Monomial, Fraction] = {}
    for monomial, coefficient in polynomial.items():
        if dict(monomial).get(name, 0) > 0:
            within[times(monomial, ((name, -1),))] = coefficient
        else:
            without[monomial] = coefficient
    return within, without


def power(polynomial: Polynomial, exponent: int) -> Polynomial:
    """A polynomial to a power that is not negative."""
    result = ONE
    for _ in range(exponent):
        result = multiplied(result, polynomial)
    return result


def expanded(pattern: Pattern | Spread, numbers: Mapping[str, Fraction]) -> Polynomial:
    """The polynomial that a pattern of sums and products is, with `numbers` for some of its variables.

    ValueError for a pattern of other operators, a power that is no small integer, or the reciprocal of a sum.
    """
    match pattern:
        case Var(name):
            return number(numbers[name]) if name in numbers else variable(name)
        case App("fill", ()):
            return number(Fraction(ast.literal_eval(pattern.fields["value"].text)))
        case App("neg", (x,)):
            return added({}, expanded(x, numbers), Fraction(-1))
        case App("add", (x, y)):
            return added(expanded(x, numbers), expanded(y, numbers))
        case App("sub", (x, y)):
            return added(expanded(x, numbers), expanded(y, numbers), Fraction(-1))
        case App("mul", (x, y)):
            return multiplied(expanded(x, numbers), expanded(y, numbers))
        case App("div", (x, y)):
            return multiplied(expanded(x, numbers), inverse(expanded(y, numbers)))
        case App("reciprocal", (x,)):
            return inverse(expanded(x, numbers))
        case App("pow", (x, Var(exponent))) if exponent in numbers and numbers[exponent].denominator == 1:
            return power(expanded(x, numbers), int(numbers[exponent]))
        case App("expand", (x,)):
            return expanded(x, numbers)
    raise ValueError(f"no sum or product: {pattern}")


def inverse(polynomial: Polynomial) -> Polynomial:
    """One over a polynomial of one term; ValueError for others."""
    if len(polynomial) != 1:
        raise ValueError("the reciprocal of a sum is no polynomial")
    ((monomial, coefficient),) = polynomial.items()
    return {tuple((name, -power) for name, power in monomial): 1 / coefficient}
