"""Integers that are unknown: polynomials of named parameters, of which a path says how each comparison went."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.paths import current, followed
from eqsat.language.terms.dims import Dim, Sym, exact_quotient


class NotParametric(Exception):  # noqa: N818 - nothing is wrong
    """Leaves work that asks for the number itself, which no formula stands for.

    The path that is followed notes it, so that code which catches errors of all kinds cannot go on with a guess.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        path = followed()
        if path is not None:
            path.left = self


def formula_of(number: Any) -> Dim:
    """The formula of an unknown integer, or of one that is known."""
    return number.formula if type(number) is Unknown else int(number)


def integer(formula: Dim) -> Any:
    """The integer with a formula: a plain one where that is a number."""
    return Unknown(formula) if isinstance(formula, Sym) else formula


class Unknown:
    """An integer given by a formula, whose comparisons are decided and recorded by the path that is followed.

    It passes for an integer where code asks whether it has one, and arithmetic makes formulas. What would need the
    number, as an index, a range or a hash, raises NotParametric: no decision goes unrecorded.

    >>> from eqsat.language.parametric.paths import Path
    >>> with Path({"n": 3}) as path:
    ...     min(Unknown(Sym.named("n")) * 2, 224), [str(question) for question in path.facts]
    (Unknown(2*n), ['2*n - 224 <= 0'])
    """

    __slots__ = ("formula",)

    def __init__(self, formula: Dim) -> None:
        self.formula = formula

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that code asks for: an integer's."""
        return int

    def __repr__(self) -> str:
        return f"Unknown({self.formula})"

    def __str__(self) -> str:
        return str(self.formula)

    def __hash__(self) -> int:
        raise NotParametric(f"the number {self.formula} is a key")

    def __index__(self) -> int:
        path = followed()
        known = self.formula if path is None else path.reduced(self.formula)
        if isinstance(known, int):  # equations of the path say so
            return known
        raise NotParametric(f"the number {self.formula} itself is asked for")

    __int__ = __index__

    def __float__(self) -> float:
        raise NotParametric(f"the number {self.formula} is made a float")

    def __bool__(self) -> bool:
        return not current().decide(Fact.equal(self.formula, 0))

    def _no_formula(self, *_: Any) -> Any:
        raise NotParametric(f"arithmetic of {self.formula} that no polynomial is")

    def __truediv__(self, other: Any) -> Any:
        return Ratio(self.formula, formula_of(other)) if isinstance(other, int) else NotImplemented

    def __rtruediv__(self, other: Any) -> Any:
        return Ratio(formula_of(other), self.formula) if isinstance(other, int) else NotImplemented

    __pow__ = __rpow__ = _no_formula
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _no_formula
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_formula
    __round__ = __trunc__ = __floor__ = __ceil__ = __complex__ = _no_formula

    def __neg__(self) -> Any:
        return integer(-self.formula)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

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

    def __floordiv__(self, other: Any) -> Any:
        return _made(self, other, _quotient)

    def __rfloordiv__(self, other: Any) -> Any:
        return _made(other, self, _quotient)

    def __mod__(self, other: Any) -> Any:
        return _made(self, other, _remainder)

    def __rmod__(self, other: Any) -> Any:
        return _made(other, self, _remainder)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def smaller(self, other: Any) -> Any:
        """The smaller of this and another integer: a formula, where nothing that is known says which it is."""
        return _bounded("min", self, other)

    def larger(self, other: Any) -> Any:
        """The larger of this and another integer."""
        return _bounded("max", self, other)

    def __lt__(self, other: Any) -> Any:
        return _decided(self, other, lambda a, b: Fact.positive(b - a))

    def __le__(self, other: Any) -> Any:
        return _decided(self, other, lambda a, b: Fact.positive(b - a + 1))

    def __gt__(self, other: Any) -> Any:
        return _decided(self, other, lambda a, b: Fact.positive(a - b))

    def __ge__(self, other: Any) -> Any:
        return _decided(self, other, lambda a, b: Fact.positive(a - b + 1))

    def __eq__(self, other: object) -> Any:
        if type(other) is float:  # a whole one is equal to an integer
            return other.is_integer() and self == int(other)
        if isinstance(other, complex | Fraction | np.generic):
            raise NotParametric(f"whether an integer is {other!r}")
        return _decided(self, other, Fact.equal)

    def __ne__(self, other: object) -> Any:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal


class Ratio:
    """The quotient of integers, one of which is unknown: a real number that nothing is asked of but to stand for it."""

    __slots__ = ("divisor", "number")

    def __init__(self, number: Dim, divisor: Dim) -> None:
        self.number, self.divisor = number, divisor

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class that code asks for: a float's."""
        return float

    def __repr__(self) -> str:
        return f"Ratio({self.number}, {self.divisor})"

    def _asked(self, *_: Any) -> Any:
        raise NotParametric(f"arithmetic of the quotient of {self.number} and {self.divisor}")

    __hash__ = __float__ = __int__ = __index__ = __bool__ = __round__ = __trunc__ = __floor__ = __ceil__ = _asked
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _asked
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __pow__ = __rpow__ = _asked
    __neg__ = __pos__ = __abs__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _asked


def _made(a: Any, b: Any, combine: Callable[[Dim, Dim], Dim]) -> Any:
    if not isinstance(a, int) or not isinstance(b, int):
        return NotImplemented
    return integer(combine(formula_of(a), formula_of(b)))


def _decided(a: Any, b: Any, ask: Callable[[Dim, Dim], Fact]) -> Any:
    if not isinstance(a, int) or not isinstance(b, int):
        return NotImplemented
    return current().decide(ask(formula_of(a), formula_of(b)))


def _bounded(name: str, one: Any, other: Any) -> Any:
    path = current()
    a, b = path.reduced(formula_of(one)), path.reduced(formula_of(other))
    is_less = path.known_answer(Fact.positive(b - a + 1))
    if is_less is not None:
        return integer(a if is_less is (name == "min") else b)
    if path.known_answer(Fact.positive(a - b + 1)):
        return integer(b if name == "min" else a)
    return Unknown(Sym.function(name, *sorted((a, b), key=str)))


def _split(a: Dim, b: Dim) -> tuple[Dim, Dim, Dim]:
    """A quotient, what is left, and the divisor: the terms that a positive divisor divides, and the others."""
    path = current()
    a, b = path.reduced(a), path.reduced(b)
    if not path.decide(Fact.positive(b)):
        raise NotParametric(f"division by {b}, which may not be positive")
    divided, left = _divided(a, b)
    return divided, left, b


def _divided(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """The quotient and rest of polynomials by that term of the divisor which leaves the shortest rest."""
    best: tuple[Dim, Dim] = (0, a)
    for lead in _terms(b):
        quotient: Dim = 0
        for part in _terms(a):
            found = exact_quotient(part, lead) if isinstance(lead, Sym) or not isinstance(b, Sym) else None
            quotient = quotient if found is None else quotient + found
        left = a - quotient * b
        if len(_terms(left)) < len(_terms(best[1])):
            best = quotient, left
    return best


def _terms(formula: Dim) -> list[Dim]:
    """The terms that add up to a formula."""
    if isinstance(formula, int):
        return [formula] if formula else []
    return [Sym([(monomial, factor)]) if monomial else factor for monomial, factor in formula.terms]


def _is_within(left: Dim, b: Dim) -> bool:
    """True if what is left lies between nothing and the divisor, on every size that the path is of."""
    return current().holds(Fact.positive(left + 1)) and current().holds(Fact.positive(b - left))


def _quotient(a: Dim, b: Dim) -> Dim:
    divided, left, b = _split(a, b)
    if isinstance(left, int) and isinstance(b, int):
        return divided + left // b
    return divided if _is_within(left, b) else divided + Sym.function("floordiv", left, b)


def _remainder(a: Dim, b: Dim) -> Dim:
    _, left, b = _split(a, b)
    if isinstance(left, int) and isinstance(b, int):
        return left % b
    return left if _is_within(left, b) else left - b * Sym.function("floordiv", left, b)
