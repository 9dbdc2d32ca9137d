"""Subscripts as sums of indices with whole factors, and the values that they take over ranges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from eqsat.language.comprehension.text.syntax import Applied, Binary, Expression, Name, Number, Unary
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import Atom, dim_max, dim_min, floordiv

#: The first value of an index and the one after its last.
Range: TypeAlias = "tuple[Dim, Dim]"


@dataclass(frozen=True)
class Affine:
    """constant + Σ factor · index, without indices of factor 0."""

    constant: Dim
    factors: Mapping[str, int]

    def plus(self, other: Affine, times: int = 1) -> Affine:
        """The sum with so many times another one."""
        factors = {
            name: self.factors.get(name, 0) + times * other.factors.get(name, 0)
            for name in dict.fromkeys((*self.factors, *other.factors))
        }
        kept = {name: factor for name, factor in factors.items() if factor}
        return Affine(self.constant + times * other.constant, kept)

    def times(self, factor: int) -> Affine:
        """A multiple."""
        return Affine(0, {}).plus(self, factor)

    def least(self, ranges: Mapping[str, Range]) -> Dim:
        """The smallest value where each index is in its range, none of them empty."""
        total = self.constant
        for name, factor in self.factors.items():
            low, high = ranges[name]
            total = total + factor * (low if factor > 0 else high - 1)
        return total

    def most(self, ranges: Mapping[str, Range]) -> Dim:
        """The largest value where each index is in its range, none of them empty."""
        return -self.times(-1).least(ranges)


def affine(expression: Expression, known: Mapping[str, Dim]) -> Affine | None:
    """An expression as a sum of indices, given sizes and integer scalars by name; None of one that is no such sum.

    >>> from eqsat.language.comprehension.text.parser import parse
    >>> [f] = parse("def f(float(N) x) -> (y) { y(i) = x(2 * (i + 3) - k * N) }")
    >>> affine(f.statements[0].value.arguments[0], {"N": 5})
    Affine(constant=6, factors={'i': 2, 'k': -5})
    """
    match expression:
        case Number(value=value) if isinstance(value, int):
            return Affine(value, {})
        case Name(name=name):
            return Affine(known[name], {}) if name in known else Affine(0, {name: 1})
        case Unary(operator="-", operand=operand):
            inner = affine(operand, known)
            return None if inner is None else inner.times(-1)
        case Binary(operator=operator, left=left, right=right):
            a, b = affine(left, known), affine(right, known)
            return None if a is None or b is None else _combined(operator, a, b)
        case Applied(name=("min" | "max") as name, arguments=(left, right)):
            a, b = affine(left, known), affine(right, known)
            if a is None or b is None or a.factors or b.factors:
                return None
            return Affine((dim_min if name == "min" else dim_max)(a.constant, b.constant), {})
    return None


def _combined(operator: str, a: Affine, b: Affine) -> Affine | None:
    if operator in ("+", "-"):
        return a.plus(b, 1 if operator == "+" else -1)
    if operator == "*":
        if not a.factors and not b.factors:
            return Affine(a.constant * b.constant, {})
        whole, many = (a, b) if not a.factors else (b, a)
        if whole.factors or not isinstance(whole.constant, int):
            return None
        return many.times(whole.constant)
    if operator not in ("/", "%") or a.factors or b.factors:
        return None
    return _divided(operator, a.constant, b.constant)


def _divided(operator: str, a: Dim, b: Dim) -> Affine | None:
    """A quotient or a remainder, rounded to zero: of what is not negative that is the floor.

    Of what may be negative it is that of what is above 0, without that of what is below.
    """
    if isinstance(a, int) and isinstance(b, int):
        if not b:
            return None
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return Affine(quotient if operator == "/" else a - b * quotient, {})
    if not isinstance(b, int) or b <= 0 or isinstance(a, int):
        return None
    if is_never_negative(a):
        return Affine(floordiv(a, b) if operator == "/" else a % b, {})
    rounded = floordiv(dim_max(a, 0), b) - floordiv(dim_max(-a, 0), b)
    return Affine(rounded if operator == "/" else a - b * rounded, {})


def is_never_negative(dim: Dim) -> bool:
    """True where a formula shows that an extent is not negative, whatever sizes are.

    >>> from eqsat.language.terms.dims import Sym
    >>> n = Sym.named("N")
    >>> is_never_negative(floordiv(n, 2) + dim_max(n - 3, 0)), is_never_negative(n - 1)
    (True, False)
    """
    if isinstance(dim, int):
        return dim >= 0
    return all(factor > 0 and all(_counts(atom) for atom, _ in monomial) for monomial, factor in dim.terms)


def _counts(atom: Atom) -> bool:
    if isinstance(atom, str):
        return True
    function, a, b = atom
    match function:
        case "floordiv" | "mod":
            return isinstance(b, int) and b > 0 and (function == "mod" or is_never_negative(a))
        case "max":
            return is_never_negative(a) or is_never_negative(b)
    return is_never_negative(a) and is_never_negative(b)
