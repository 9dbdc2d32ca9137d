"""Normal forms of symbolic real terms, and their equality by Z3."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

import numpy as np

from eqsat.language.arithmetic.roots import facts_of_roots, inside

#: Functions of one variable that no number leaves in another order.
_MONOTONE = frozenset({"tanh", "erf", "atan", "sinh", "asinh", "floor", "ceil", "round", "sign"})
#: Which part of the steps of an equality is for facts of roots.
_OF_ROOTS = 10


class Algebra:
    """Normal forms of real terms: what is equal by the laws of fields, maxima and exponentials gets one term.

    A maximum is a function of the set of its operands without what they share and at unit scale, so that
    max(x + c, y + c) = max(x, y) + c and max(2x, 2y) = 2·max(x, y) hold term by term; exp(x + y) is exp(x)·exp(y).
    """

    #: How close to 2 or ½ the square of a number is that stands for √2 or √½: these of single precision are.
    tolerance = 1e-7

    def __init__(self) -> None:
        self._sets: dict[int, tuple[Any, tuple[Any, ...]]] = {}

    @cached_property
    def z3(self) -> Any:
        """The solver's package, imported where a first term is made."""
        import z3

        return z3

    def real(self, value: Any) -> Any:
        """A term: numbers become exact rationals, and the floats next to √2 and √½ these themselves."""
        z3 = self.z3
        if isinstance(value, z3.ExprRef):
            return z3.If(value, z3.RealVal(1), z3.RealVal(0)) if z3.is_bool(value) else value
        if isinstance(value, bool | np.bool_):
            return z3.RealVal(int(value))
        if isinstance(value, np.integer):
            return rational(z3, Fraction(int(value)))
        if not math.isfinite(value):
            return z3.Real("nan" if math.isnan(value) else "-inf" if value < 0 else "inf")
        multiple = _root_two(value, self.tolerance)
        if multiple is not None:
            return z3.Real("sqrt2") * rational(z3, multiple if value > 0 else -multiple)
        return rational(z3, Fraction(value))

    def normal(self, term: Any) -> Any:
        """The term as a sum of monomials in one order."""
        return self.z3.simplify(term, som=True, sort_sums=True)

    def monomials(self, term: Any) -> dict[int, tuple[Fraction, Any]]:
        """Coefficient and product of each monomial, keyed by the product's identity; the constant's product is 1."""
        z3 = self.z3
        terms: dict[int, tuple[Fraction, Any]] = {}
        term = self.normal(term)
        for part in term.children() if z3.is_add(term) else [term]:
            coefficient, factors = Fraction(1), self.factors(part)
            if z3.is_rational_value(factors[0]):
                coefficient, factors = fraction(factors[0]), factors[1:]
            factors = self._merge_exponentials(factors)
            product = self.normal(reduce(lambda a, b: a * b, factors)) if factors else z3.RealVal(1)
            before = terms.get(product.get_id(), (Fraction(0), product))[0]
            terms[product.get_id()] = (before + coefficient, product)
        return {k: v for k, v in terms.items() if v[0]} or {0: (Fraction(0), z3.RealVal(1))}

    def factors(self, term: Any) -> list[Any]:
        """The factors of a product, which the simplifier may nest under its coefficient."""
        if not self.z3.is_mul(term):
            return [term]
        return [f for child in term.children() for f in self.factors(child)]

    def _merge_exponentials(self, factors: list[Any]) -> list[Any]:
        """The factors of a product with exp(x)·exp(y) as the exponential of a sum."""
        z3 = self.z3
        powers = [f for f in factors if z3.is_app(f) and f.decl().name() == "exp"]
        if len(powers) < 2:
            return factors
        rest = [f for f in factors if not any(f.eq(p) for p in powers)]
        merged = self.normal(self.exponential(reduce(lambda a, b: a + b, (p.arg(0) for p in powers))))
        if z3.is_rational_value(merged):
            return rest
        return [*rest, *self.factors(merged)]

    def total(self, parts: Iterable[tuple[Fraction, Any]]) -> Any:
        """The sum of monomials, in normal form."""
        z3 = self.z3
        return self.normal(reduce(lambda a, b: a + b, (rational(z3, c) * p for c, p in parts), z3.RealVal(0)))

    def function(self, name: str, *operands: Any) -> Any:
        """An uninterpreted function of terms in normal form."""
        real = self.z3.RealSort()
        return self.z3.Function(name, *(real for _ in operands), real)(*(self.normal(o) for o in operands))

    def inverse(self, term: Any) -> Any:
        """1 / term: of a product, the product of inverses; of a sum, that of the sum at unit scale."""
        z3 = self.z3
        parts = list(self.monomials(term).values())
        if len(parts) > 1:
            scale = max(abs(c) for c, _ in parts)
            shared = self._shared_exponentials([p for _, p in parts])
            rest = self.total(
                self.monomials(self.total((c / scale, p) for c, p in parts) * self.exponential(-shared)).values()
            )
            return self.function("inverse", rest) * self.exponential(-shared) / rational(z3, scale)
        coefficient, product = parts[0]
        if coefficient == 0:
            return z3.Real("1/0")
        result = rational(z3, 1 / coefficient)
        for factor in self.factors(product):
            result = result * self._inverse_atom(factor)
        return result

    def _shared_exponentials(self, products: list[Any]) -> Any:
        """The sum of the exponents of the exponentials that all products have as factors."""
        z3 = self.z3
        factors = [self.factors(p) for p in products]
        shared = [
            f.arg(0)
            for f in factors[0]
            if z3.is_app(f) and f.decl().name() == "exp" and all(any(f.eq(g) for g in other) for other in factors)
        ]
        return reduce(lambda a, b: a + b, shared, z3.RealVal(0))

    def _inverse_atom(self, atom: Any) -> Any:
        z3 = self.z3
        if z3.is_rational_value(atom):
            return rational(z3, 1 / fraction(atom))
        if atom.eq(z3.Real("sqrt2")):
            return atom / 2
        if z3.is_app(atom) and atom.decl().name() == "inverse":
            return atom.arg(0)
        if z3.is_app(atom) and atom.decl().name() == "exp":
            return self.function("exp", -atom.arg(0))
        return self.function("inverse", atom)

    def exponential(self, term: Any) -> Any:
        """The product of the exponentials of the monomials."""
        z3 = self.z3
        result = z3.RealVal(1)
        for coefficient, product in self.monomials(term).values():
            if coefficient == 1 and product.decl().name() == "log" and self._is_positive(product.arg(0)):
                result = result * product.arg(0)
            elif coefficient:
                result = result * self.function("exp", rational(z3, coefficient) * product)
        return result

    def _is_positive(self, term: Any) -> bool:
        """True for sums of products of exponentials and of inverses of such sums, with positive factors alone."""
        for coefficient, product in self.monomials(term).values():
            for factor in self.factors(product):
                name = factor.decl().name()
                positive = name == "exp" or (name == "inverse" and self._is_positive(factor.arg(0)))
                if not positive and not (self.z3.is_rational_value(factor) and fraction(factor) > 0):
                    return False
            if coefficient <= 0:
                return False
        return True

    def logarithm(self, term: Any) -> Any:
        """The logarithm: of a product of exponentials the sum of their exponents."""
        (coefficient, product), *more = self.monomials(term).values()
        factors = self.factors(product)
        if more or coefficient != 1 or not all(self.z3.is_app(f) and f.decl().name() == "exp" for f in factors):
            return self.function("log", term)
        return self.normal(reduce(lambda a, b: a + b, (f.arg(0) for f in factors)))

    def sigmoid(self, term: Any) -> Any:
        """The logistic function, 1 / (1 + exp(-term))."""
        return self.inverse(self.z3.RealVal(1) + self.exponential(-term))

    def maximum(self, *operands: Any) -> Any:
        """The largest of terms."""
        z3 = self.z3
        members: dict[int, Any] = {}
        for operand in operands:
            operand = self.normal(operand)
            for member in self._sets.get(operand.get_id(), (None, (operand,)))[1]:
                if not member.eq(z3.Real("-inf")):
                    members[member.get_id()] = member
        if len(members) <= 1:
            return next(iter(members.values()), z3.Real("-inf"))
        result = self._largest_image(list(members.values()))
        if result is None:
            result = self._largest(list(members.values()))
        self._sets[result.get_id()] = (result, tuple(members.values()))
        return result

    def members(self, term: Any) -> tuple[Any, ...] | None:
        """The terms that a term is the maximum of; None of one that was not made as a maximum."""
        known = self._sets.get(term.get_id())
        return known[1] if known is not None and known[0].eq(term) else None

    def _largest(self, members: Sequence[Any]) -> Any:
        """The maximum as a function of the set of its operands, without what they share and at unit scale."""
        z3 = self.z3
        forms = [self.monomials(m) for m in members]
        shared = {k: v for k, v in forms[0].items() if all(k in f and f[k][0] == v[0] for f in forms)}
        rests = [{k: v for k, v in f.items() if k not in shared} for f in forms]
        if not any(rests):  # the same sum of products, written in several ways
            return members[0]
        scale = max(abs(c) for rest in rests for c, _ in rest.values())
        unit = sorted((self.total((c / scale, p) for c, p in r.values()) for r in rests), key=lambda t: t.get_id())
        if all(z3.is_rational_value(u) for u in unit):
            largest = rational(z3, max(fraction(u) for u in unit))
        else:
            largest = self.function(f"max{len(unit)}", *unit)
        return self.normal(self.total(shared.values()) + rational(z3, scale) * largest)

    def _largest_image(self, members: Sequence[Any]) -> Any | None:
        """The maximum of what one monotone function makes of terms, or of its negatives: that of their extreme."""
        images = [self.image(m) for m in members]
        first = images[0]
        if first is None or any(i is None or i[:2] != first[:2] for i in images):
            return None
        sign, name, _ = first
        inner = self.maximum(*(i[2] * sign for i in images if i is not None)) * sign
        return self.normal(self.monotone(name, inner) * sign)

    def monotone(self, name: str, term: Any) -> Any:
        """A monotone function of a term, by the name that `image` gives it."""
        return {"exp": self.exponential, "sigmoid": self.sigmoid}.get(name, lambda x: self.function(name, x))(term)

    def image(self, term: Any) -> tuple[int, str, Any] | None:
        """A term as 1 or -1, a monotone function, and its argument; None where it is no such image."""
        (coefficient, product), *more = self.monomials(term).values()
        factors = self.factors(product)
        if more or abs(coefficient) != 1 or not all(self.z3.is_app(f) and f.num_args() == 1 for f in factors):
            return None
        names = {f.decl().name() for f in factors}
        name, argument = names.pop(), factors[0].arg(0)
        if name == "exp" and not names:
            return int(coefficient), name, reduce(lambda a, b: a + b, (f.arg(0) for f in factors))
        if name == "inverse" and len(factors) == 1:
            exponential = self.image(argument - 1)
            return (
                (int(coefficient), "sigmoid", -exponential[2])
                if exponential and exponential[:2] == (1, "exp")
                else None
            )
        return (int(coefficient), name, argument) if name in _MONOTONE and len(factors) == 1 else None

    def choice(self, condition: Any, a: Any, b: Any) -> Any:
        """`a` where the condition is true, else `b`."""
        z3 = self.z3
        if not isinstance(condition, z3.ExprRef):
            return a if condition else b
        if is_bool(z3, a) and is_bool(z3, b):
            return z3.simplify(z3.If(condition, a, b))
        a, b = self.normal(self.real(a)), self.normal(self.real(b))
        return a if a.eq(b) else z3.If(condition, a, b)

    def compare(self, a: Any, b: Any, how: str) -> Any:
        """A truth value: a = b, a < b or a <= b."""
        z3 = self.z3
        if is_bool(z3, a) and is_bool(z3, b):
            if not isinstance(a, z3.ExprRef) and not isinstance(b, z3.ExprRef):
                return bool(a == b if how == "=" else a < b if how == "<" else a <= b)
            return z3.simplify(a == b if how == "=" else z3.And(z3.Not(a), b) if how == "<" else z3.Or(z3.Not(a), b))
        difference = self.normal(self.real(a) - self.real(b))
        zero = z3.RealVal(0)
        relation = difference == zero if how == "=" else difference < zero if how == "<" else difference <= zero
        relation = z3.simplify(relation)
        return True if z3.is_true(relation) else False if z3.is_false(relation) else relation

    def settle(self, a: Any, b: Any, steps: int, facts: Iterable[Any] = ()) -> str:
        """True if two terms are equal for all values of their variables of which some facts hold."""
        z3 = self.z3
        terms = [x for x in (a, b) if isinstance(x, z3.ExprRef)]
        if not terms:
            return "proved" if a == b else "differs"
        if is_bool(z3, a):
            goal = z3.simplify(a != b)
        else:
            difference = self.total(self.monomials(self.real(a) - self.real(b)).values())
            if z3.is_rational_value(difference):
                return "proved" if fraction(difference) == 0 else "differs"
            goal = difference != 0
        if z3.is_false(goal):
            return "proved"
        solver = z3.Solver()
        # Steps rather than time bound the search, so that verdicts do not depend on the load of the machine.
        solver.set("rlimit", steps)
        facts = list(facts)
        solver.add(goal, *self._facts(goal), *facts)
        if solver.check() == z3.unsat:
            return "proved"
        # Products of roots may take all steps: what needs none of them is tried first, and then a tenth of the steps.
        roots = facts_of_roots(z3, [goal, *facts])
        solver.set("rlimit", steps // _OF_ROOTS)
        solver.add(*roots)
        return "proved" if roots and solver.check() == z3.unsat else "unknown"

    def _facts(self, goal: Any) -> list[Any]:
        """Facts that hold of the maxima, exponentials and inverses inside a goal."""
        z3 = self.z3
        facts: list[Any] = []
        for name, term in inside(z3, [goal]):
            if name.startswith("max") and term.num_args():
                facts.append(z3.Or(*(term == c for c in term.children())))
                facts += [term >= c for c in term.children()]
            elif name == "exp":
                facts.append(term > 0)
                of = term.arg(0)
                if z3.is_app(of) and of.decl().name() == "log":
                    facts.append(z3.Implies(of.arg(0) > 0, term == of.arg(0)))
            elif name == "inverse":
                facts.append(z3.Implies(term.arg(0) > 0, z3.And(term > 0, term * term.arg(0) == 1)))
            elif name == "sqrt2":
                facts.append(z3.And(term > 0, term * term == 2))
        return facts


def is_bool(z3: Any, x: Any) -> bool:
    """True for truth values, symbolic or not."""
    return isinstance(x, bool | np.bool_) or (isinstance(x, z3.ExprRef) and z3.is_bool(x))


def rational(z3: Any, value: Fraction) -> Any:
    """The term that is an exact rational number."""
    return z3.Q(value.numerator, value.denominator)


def fraction(term: Any) -> Fraction:
    """The number that a rational term is."""
    return Fraction(term.numerator_as_long(), term.denominator_as_long())


def _root_two(value: float, tolerance: float) -> Fraction | None:
    """The multiple of √2 that a float stands for whose square is that close to 2 or ½."""
    square = value * value
    close = (multiple for multiple in (Fraction(1), Fraction(1, 2)) if abs(square / (2 * multiple**2) - 1) < tolerance)
    return next(close, None)
