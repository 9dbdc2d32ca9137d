"""Real numbers that are unknown, as attributes are: terms of Z3, whose comparisons are paths."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.language.arithmetic.algebra import Algebra
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric, Unknown
from eqsat.language.parametric.paths import current
from eqsat.language.terms.dims import Dim, Sym


class FiniteAlgebra(Algebra):
    """The algebra of finite numbers, in which only the float64 next to √2 or √½ stands for it."""

    tolerance = 1e-15

    def real(self, value: Any) -> Any:
        """The term of a number; NotParametric for an infinity or NaN, of which the laws of numbers do not hold."""
        if isinstance(value, float | np.floating) and not math.isfinite(value):
            raise NotParametric(f"the number {value}")
        return super().real(value)


class UnknownNumber:
    """A real number given by a term of Z3; of each comparison there is a path with either answer, which says so.

    It passes for a float where code asks whether it has one, and arithmetic makes terms.
    """

    __slots__ = ("term",)

    def __init__(self, term: Any) -> None:
        self.term = term

    @staticmethod
    def named(name: str) -> UnknownNumber:
        """The number with a name."""
        import z3

        return UnknownNumber(z3.Real(name))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that code asks for: a float's."""
        return float

    def __repr__(self) -> str:
        return f"UnknownNumber({self.term})"

    def __hash__(self) -> int:
        raise NotParametric(f"the number {self.term} is a key")

    def __float__(self) -> float:
        raise NotParametric(f"the number {self.term} itself is asked for")

    __int__ = __index__ = __float__

    def _no_term(self, *_: Any) -> Any:
        raise NotParametric(f"arithmetic of {self.term} that is no term")

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __pow__ = __rpow__ = _no_term
    __round__ = __trunc__ = __floor__ = __ceil__ = __complex__ = _no_term

    def __bool__(self) -> bool:
        return _decided(self.term != 0)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __neg__(self) -> Any:
        return UnknownNumber(-self.term)

    def __add__(self, other: Any) -> Any:
        return _made(self, other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return _made(other, self, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return _made(self, other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return _made(other, self, lambda a, b: a - b)

    def __mul__(self, other: Any) -> Any:
        return _made(self, other, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Any:
        return _made(other, self, lambda a, b: a * b)

    def __truediv__(self, other: Any) -> Any:
        if not other:
            raise ZeroDivisionError("division by zero")
        return _made(self, other, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Any:
        if not self:
            raise ZeroDivisionError("division by zero")
        return _made(other, self, lambda a, b: a / b)

    def __lt__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a < b)

    def __le__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a <= b)

    def __gt__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a > b)

    def __ge__(self, other: Any) -> Any:
        return _compared(self, other, lambda a, b: a >= b)

    def __eq__(self, other: object) -> Any:
        return _compared(self, other, lambda a, b: a == b)

    def __ne__(self, other: object) -> Any:
        return _compared(self, other, lambda a, b: a != b)


def real_of(number: Any) -> Any:
    """The term of a number that is known or not; NotParametric for one that is not finite."""
    import z3

    if type(number) is UnknownNumber:
        return number.term
    if type(number) is Unknown:
        raise NotParametric("a size among real numbers")
    try:
        exact = Fraction(number)
    except (OverflowError, ValueError):
        raise NotParametric(f"the number {number} beside unknown ones") from None
    return z3.Q(exact.numerator, exact.denominator)


def size_term(formula: Dim) -> Any:
    """An integer as a real number, with one name for each atom of its formula."""
    import z3

    if isinstance(formula, int):
        return z3.RealVal(formula)
    total = z3.RealVal(0)
    for monomial, coefficient in formula.terms:
        factor = z3.RealVal(coefficient)
        for atom, power in monomial:
            for _ in range(power):
                factor = factor * z3.Real(size_name(Sym([(((atom, 1),), 1)])))
        total = total + factor
    return total


def size_name(atom: Sym) -> str:
    """The name of the real number that an atom of formulas is."""
    return f"<{atom}>"


def _made(a: Any, b: Any, combine: Callable[[Any, Any], Any]) -> Any:
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return NotImplemented
    return UnknownNumber(combine(_term_of(a), _term_of(b)))


def _term_of(number: Any) -> Any:
    """The term of a number, also of a size."""
    return size_term(number.formula) if type(number) is Unknown else real_of(number)


def _compared(a: Any, b: Any, compare: Callable[[Any, Any], Any]) -> Any:
    if not isinstance(a, int | float) or not isinstance(b, int | float):
        return NotImplemented
    return _decided(compare(real_of(a), real_of(b)))


def _decided(statement: Any) -> bool:
    """True where a statement holds on this path, which is noted; of one that does not hold, its negation is."""
    import z3

    statement = z3.simplify(statement)
    if z3.is_true(statement) or z3.is_false(statement):
        return bool(z3.is_true(statement))
    path = current()
    name = f"whether {statement.sexpr()}"  # its text is cut short
    number = path.unknown(name, 0, 2)
    held = not path.decide(Fact.equal(number, 0))
    path.statements.append(statement if held else z3.Not(statement))
    return held
