"""PolynomialForms of a polynomial with little work: factored, by Horner's scheme, and with small operands first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from eqsat.rewrites.theories.polynomials import Monomial, Polynomial, quotient

#: The most names that factoring begins with in turn.
_FIRST = 4
#: The largest power, and the most terms, of a polynomial that is factored into sums.
_MOST_POWER, _MOST_TERMS = 16, 24


@dataclass(frozen=True)
class Leaf:
    """A tensor that a polynomial is over: its sizes, and whether it is a constant."""

    name: str
    shape: tuple[int, ...]
    constant: bool = False


@dataclass(frozen=True)
class Written:
    """A term as text, the sizes of its result, and the elements that each step of it computes, constants apart."""

    text: str
    shape: tuple[int, ...]
    constant: bool = False
    steps: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def work(self) -> int:
        """The number of elements that are computed."""
        return sum(self.steps.values())

    @property
    def size(self) -> int:
        """The number of elements of the result."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class PolynomialForms:
    """Makes forms over leaves; `like` names one whose element type numbers take."""

    leaves: Mapping[str, Leaf]
    like: str

    def of(self, polynomial: Polynomial) -> Iterator[Written]:
        """PolynomialForms of a polynomial, those of the other candidates for its first factor among them."""
        yield self._factored(polynomial)
        if len(polynomial) < 2:
            return
        collected = self._collected(polynomial)
        if collected is not None:
            yield collected
        for name in self._candidates(polynomial)[:_FIRST]:
            yield self._split(polynomial, name)
        factored = self._factored_whole(polynomial)
        if factored is not None:
            yield factored

    def _collected(self, polynomial: Polynomial) -> Written | None:
        """A polynomial of what is computed, each product once, with polynomials of constants as its factors."""
        factors: dict[Monomial, dict[Monomial, Fraction]] = {}
        for monomial, coefficient in polynomial.items():
            fixed = tuple((name, power) for name, power in monomial if self.leaves[name].constant)
            moving = tuple((name, power) for name, power in monomial if not self.leaves[name].constant)
            factors.setdefault(moving, {})[fixed] = coefficient
        if len(factors) == len(polynomial) or any(power < 0 for moving in factors for _, power in moving):
            return None
        terms: list[tuple[Written, bool]] = []
        for moving, factor in factors.items():
            constant = factor != {(): Fraction(1)}
            parts = [self._factored(factor)] if constant or not moving else []
            terms.append((self.product([*parts, *(self._power(name, power) for name, power in moving)]), False))
        return self.sum(terms)

    def _factored(self, polynomial: Polynomial) -> Written:
        if len(polynomial) < 2:
            return self._sum(polynomial)
        names = self._candidates(polynomial)
        return self._split(polynomial, names[0]) if names else self._sum(polynomial)

    def _candidates(self, polynomial: Polynomial) -> list[str]:
        """The names that more than one product has, those first that save most."""
        count: dict[str, int] = {}
        for monomial in polynomial:
            for name, power in monomial:
                if power > 0:
                    count[name] = count.get(name, 0) + 1
        shared = [name for name, often in count.items() if often > 1]
        return sorted(shared, key=lambda n: (self.leaves[n].constant, -count[n], -math.prod(self.leaves[n].shape), n))

    def _split(self, polynomial: Polynomial, name: str) -> Written:
        """A name times a form, and that of the rest; names with the same factor are added up first."""
        within, rest = quotient(polynomial, name)
        names = [name]
        for other in self._candidates(rest):
            found, left = quotient(rest, other)
            if found == within and len(within) > 1:
                names.append(other)
                rest = left
        first = self.sum([(self._leaf(n), False) for n in names])
        product = self.product([first, self._factored(within)])
        return product if not rest else self.sum([(product, False), *self._parts(rest)])

    def _parts(self, polynomial: Polynomial) -> list[tuple[Written, bool]]:
        """PolynomialForms that add up to a polynomial, each with whether it is taken away."""
        names = self._candidates(polynomial)
        if not names:
            return list(self._signed(polynomial))
        return [(self._split(polynomial, names[0]), False)]

    def _sum(self, polynomial: Polynomial) -> Written:
        return self.sum(list(self._signed(polynomial))) if polynomial else self._number(Fraction(0))

    def _signed(self, polynomial: Polynomial) -> Iterator[tuple[Written, bool]]:
        for monomial, coefficient in polynomial.items():
            yield self._monomial(monomial, abs(coefficient)), coefficient < 0

    def _monomial(self, monomial: Monomial, coefficient: Fraction) -> Written:
        factors = [self._power(name, power) for name, power in monomial]
        return self.product(factors if coefficient == 1 and factors else [self._number(coefficient), *factors])

    def _power(self, name: str, power: int) -> Written:
        leaf = self._leaf(name)
        if power < 0:
            one = Written(f"reciprocal({name})", leaf.shape, constant=True)
            return self.product([one] * -power)
        return self.raised(leaf, power)

    def raised(self, base: Written, power: int) -> Written:
        """A form to a positive power, by squares."""
        if power == 1:
            return base
        half = self.raised(base, power // 2)
        square = self._applied("mul", half, half)
        return square if power % 2 == 0 else self._applied("mul", base, square)

    def product(self, factors: Sequence[Written]) -> Written:
        """A product, small factors first."""
        return self._joined("mul", sorted(factors, key=_small_first))

    def sum(self, terms: Sequence[tuple[Written, bool]]) -> Written:
        """A sum of forms of which some are taken away, small ones first."""
        plus = sorted((form for form, minus in terms if not minus), key=_small_first)
        minus = sorted((form for form, minus in terms if minus), key=_small_first)
        if not plus:
            return self._negative(self._joined("add", minus))
        result = self._joined("add", plus)
        return result if not minus else self._applied("sub", result, self._joined("add", minus))

    def _joined(self, op: str, forms: Sequence[Written]) -> Written:
        result = forms[0]
        for form in forms[1:]:
            result = self._applied(op, result, form)
        return result

    def _applied(self, op: str, one: Written, other: Written) -> Written:
        text, shape = f"{op}({one.text}, {other.text})", _broadcast(one.shape, other.shape)
        if one.constant and other.constant:
            return Written(text, shape, constant=True)
        steps = {**one.steps, **other.steps, text: math.prod(shape)}
        return Written(text, shape, steps=steps)

    def _negative(self, form: Written) -> Written:
        text = f"neg({form.text})"
        return Written(
            text, form.shape, form.constant, form.steps if form.constant else {**form.steps, text: form.size}
        )

    def _leaf(self, name: str) -> Written:
        leaf = self.leaves[name]
        return Written(name, leaf.shape, leaf.constant)

    def _number(self, value: Fraction) -> Written:
        return Written(f"fill(shape=(), value={float(value)!r}, dtype=dtype({self.like}))", (), constant=True)

    def _factored_whole(self, polynomial: Polynomial) -> Written | None:
        """A polynomial as a product of sums, where it is one (by SymPy)."""
        powers = [power for monomial in polynomial for _, power in monomial]
        if not 1 < len(polynomial) <= _MOST_TERMS or min(powers, default=-1) < 0 or max(powers) > _MOST_POWER:
            return None
        import sympy

        symbols = {name: sympy.Symbol(name) for monomial in polynomial for name, _ in monomial}
        terms = [
            sympy.Mul(sympy.Rational(c.numerator, c.denominator), *(symbols[n] ** p for n, p in monomial))
            for monomial, c in polynomial.items()
        ]
        whole = sympy.factor(sympy.Add(*terms))
        return None if whole.is_Add else self._of_expression(whole)

    def _of_expression(self, expression: Any) -> Written:
        if expression.is_Symbol:
            return self._leaf(expression.name)
        if expression.is_Rational:
            return self._number(Fraction(int(expression.p), int(expression.q)))
        if expression.is_Pow:
            return self.raised(self._of_expression(expression.base), int(expression.exp))
        if expression.is_Mul:
            return self.product([self._of_expression(one) for one in expression.args])
        return self.sum(list(self._signed_terms(expression.args)))

    def _signed_terms(self, terms: Iterable[Any]) -> Iterator[tuple[Written, bool]]:
        for term in terms:
            negative = bool(term.could_extract_minus_sign())
            yield self._of_expression(-term if negative else term), negative


def _small_first(form: Written) -> tuple[bool, int, str]:
    return not form.constant, form.size, form.text


def _broadcast(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(one), len(other))
    left, right = ((1,) * (rank - len(s)) + s for s in (one, other))
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True))
