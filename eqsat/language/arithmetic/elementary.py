"""Arithmetic on functions of one real variable in a normal form, in which equal ones are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any, TypeVar

import numpy as np

Result = TypeVar("Result")

#: Exponentials are powers of the root of this degree of one exponential.
_ROOT = 12
#: The largest denominators of numbers that are told by their value: of fractions, and of multiples of roots.
_DENOMINATOR, _MULTIPLE = 64, 12
#: The relative distance of a number from the one it stands for: a unit in the last place of float32.
_UNIT = 2.0**-23


class UndecidedError(Exception):
    """Leaves the reading of a function that has no normal form here."""


class BreakError(UndecidedError):
    """Leaves the reading of a function that is another one on both sides of `place`."""

    def __init__(self, place: Any) -> None:
        super().__init__(str(place))
        self.place = place


@dataclass(frozen=True)
class Piece:
    """An open interval of the real line, without end where one is None; or the point `at`."""

    low: Any = None
    high: Any = None
    at: Any = None

    def holds(self, place: Any) -> bool:
        """True if a place lies inside the interval."""
        above = self.low is None or bool(place > self.low)
        return self.at is None and above and (self.high is None or bool(place < self.high))

    def parts(self, place: Any) -> tuple[Piece, Piece, Piece]:
        """The interval below a place, the place, and the interval above."""
        return Piece(self.low, place), Piece(at=place), Piece(place, self.high)

    @property
    def inner(self) -> Any:
        """A place inside."""
        if self.at is not None:
            return self.at
        if self.low is None:
            return -1 if self.high is None else self.high - 1
        return self.low + 1 if self.high is None else (self.low + self.high) / 2


@cache
def _sympy() -> Any:
    import sympy

    return sympy


@cache
def exact_number(value: float) -> Any:
    """The number that a constant in float32 stands for: a fraction, a multiple of a root, or its decimals.

    >>> exact_number(0.16666667), exact_number(1.4142135), exact_number(0.044715)
    (1/6, sqrt(2), 8943/200000)
    """
    sympy = _sympy()
    if not np.isfinite(value):
        raise UndecidedError
    two, pi = sympy.Integer(2), sympy.pi
    bases = [(sympy.Integer(1), _DENOMINATOR)]
    bases += [(root, _MULTIPLE) for root in (sympy.sqrt(two), sympy.sqrt(two / pi), sympy.log(two), pi)]
    for base, most in bases:
        scale = float(base)
        multiple = Fraction(value / scale).limit_denominator(most)
        if abs(float(multiple) * scale - value) <= _UNIT * abs(value):
            return sympy.Rational(multiple.numerator, multiple.denominator) * base
    return sympy.Rational(str(np.float32(value)))


@dataclass
class _Atoms:
    """The functions that count as variables, by what they are of."""

    known: dict[tuple[str, Any], Any] = field(default_factory=dict)
    meaning: dict[Any, tuple[str, Any]] = field(default_factory=dict)
    positive: set[Any] = field(default_factory=set)

    def of(self, name: str, argument: Any, positive: bool = False) -> Any:
        """The variable that stands for a function of an argument."""
        key = (name, argument)
        if key not in self.known:
            symbol = _sympy().Symbol(f"{name}{len(self.known)}")
            self.known[key], self.meaning[symbol] = symbol, key
            if positive:
                self.positive.add(symbol)
        return self.known[key]


class ElementaryNamespace:
    """Arithmetic on functions of one real variable, on one piece of the line, with the methods of FloatNamespace.

    Functions are quotients of polynomials of the variable and of atoms, such as its exponential: two that are equal as
    quotients are equal functions. BreakError says where a comparison has one answer below and another above.
    """

    exact = True

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self._x = _sympy().Symbol("x", real=True)
        self._atoms = _Atoms()

    @property
    def variable(self) -> Any:
        """The variable, or the point that it is at."""
        return self._x if self.piece.at is None else self.piece.at

    def number(self, value: Any, like: Any = None) -> Any:
        """A number, as the one that it stands for."""
        return exact_number(float(_inside(value)))

    def add(self, a: Any, b: Any) -> Any:
        """Sum."""
        return self._normal(_inside(a) + _inside(b))

    def subtract(self, a: Any, b: Any) -> Any:
        """Difference."""
        return self._normal(_inside(a) - _inside(b))

    def multiply(self, a: Any, b: Any) -> Any:
        """Product."""
        return self._normal(_inside(a) * _inside(b))

    def negative(self, a: Any) -> Any:
        """Negation."""
        return self._normal(-_inside(a))

    def divide(self, a: Any, b: Any) -> Any:
        """Quotient."""
        b = _inside(b)
        if b == 0:
            raise UndecidedError
        return self._normal(_inside(a) / b)

    def power(self, a: Any, b: Any) -> Any:
        """Power with a whole exponent, or a half of one."""
        a, b = _inside(a), _inside(b)
        if getattr(b, "is_Integer", False) and abs(b) <= _ROOT and not (a == 0 and b <= 0):
            return self._normal(a**b)
        if b == _sympy().Rational(1, 2):
            return self.apply("sqrt", a)
        if b == -_sympy().Rational(1, 2):
            return self.divide(1, self.apply("sqrt", a))
        raise UndecidedError

    def maximum(self, a: Any, b: Any) -> Any:
        """The larger one."""
        return _inside(b) if self.less(a, b) else _inside(a)

    def minimum(self, a: Any, b: Any) -> Any:
        """The smaller one."""
        return _inside(a) if self.less(a, b) else _inside(b)

    def equal(self, a: Any, b: Any) -> bool:
        """True where both are equal, on all of the piece."""
        return self._sign(_inside(a) - _inside(b)) == 0

    def less(self, a: Any, b: Any) -> bool:
        """True where the left one is smaller, on all of the piece."""
        return self._sign(_inside(a) - _inside(b)) < 0

    def less_equal(self, a: Any, b: Any) -> bool:
        """True where the left one is not larger, on all of the piece."""
        return self._sign(_inside(a) - _inside(b)) <= 0

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """The first where the condition is true, else the other."""
        return _inside(a) if _inside(condition) else _inside(b)

    def apply(self, name: str, x: Any) -> Any:
        """A function of one variable."""
        x = _inside(x)
        match name:
            case "abs":
                return self._normal(-x) if self._sign(x) < 0 else x
            case "sign":
                return self.number(float(self._sign(x)))
            case "exp":
                return self._exponential(x)
            case "sigmoid":
                return self.divide(1, self.add(1, self._exponential(-x)))
            case "tanh":
                square = self._exponential(2 * x)
                return self.divide(square - 1, square + 1)
            case "sinh" | "cosh":
                up, down = self._exponential(x), self._exponential(-x)
                return self.divide(up - down if name == "sinh" else up + down, 2)
            case "log":
                return self._logarithm(x)
            case "sqrt":
                return self._root(x)
        return self._odd(name, x) if name == "erf" else self._atoms.of(name, self._normal(x))

    def _normal(self, expression: Any) -> Any:
        return _sympy().cancel(_sympy().sympify(expression))

    def _exponential(self, x: Any) -> Any:
        """The exponential: of logarithms their powers, of each other term a power of the exponential of that."""
        sympy = _sympy()
        result = sympy.Integer(1)
        for term in sympy.Add.make_args(sympy.expand(self._normal(x))):
            factor, logarithm = self._logarithms(term)
            if logarithm is not None and self._definite(logarithm) > 0:
                result *= logarithm**factor
            elif term != 0:
                factor, base = term.as_coeff_Mul()
                power = factor * _ROOT
                if not power.is_Integer:
                    base, power = term, sympy.Integer(_ROOT)
                result *= self._atoms.of("exp", base, positive=True) ** power
        return self._normal(result)

    def _logarithms(self, term: Any) -> tuple[Any, Any]:
        """A term as a whole multiple of a logarithm, and what that is of; None where it is none."""
        factor, base = term.as_coeff_Mul()
        name, argument = self._atoms.meaning.get(base, ("", None))
        return (factor, argument) if name == "log" and factor.is_Integer else (factor, None)

    def _logarithm(self, x: Any) -> Any:
        """The logarithm, of each factor where all are positive."""
        sympy = _sympy()
        x = self._normal(x)
        result, every = sympy.Integer(0), []
        for part, place in zip(x.as_numer_denom(), (1, -1), strict=True):
            factor, factors = self._factors(part)
            if factor <= 0 or any(self._definite(one) <= 0 for one, _ in factors):
                return self._atoms.of("log", x)
            result += place * sympy.log(factor)
            every += [(one, place * power) for one, power in factors]
        for one, power in every:
            base, times = one.as_base_exp()
            name, argument = self._atoms.meaning.get(base, ("", None))
            result += power * times * (argument / _ROOT if name == "exp" else self._atoms.of("log", base))
        return self._normal(result)

    def _factors(self, polynomial: Any) -> tuple[Any, list[tuple[Any, int]]]:
        """A number and the factors of a polynomial, with their powers.

        An exponential counts as a variable to the powers that occur: what has a sign would come apart otherwise.
        """
        sympy = _sympy()
        names = sorted(polynomial.free_symbols & self._atoms.positive, key=str)
        whole = {}
        for name in names:
            powers = [power for (power,) in sympy.Poly(polynomial, name).monoms()]
            whole[name] = int(sympy.gcd_list(powers)) or 1
        reduced = sympy.Poly(polynomial, *names).as_dict() if names else {}
        if not names:
            factor, factors = sympy.factor_list(polynomial)
            return factor, factors
        smaller = sympy.Add(
            *(
                c * sympy.Mul(*(n ** (p // whole[n]) for n, p in zip(names, powers, strict=True)))
                for powers, c in reduced.items()
            )
        )
        factor, factors = sympy.factor_list(smaller)
        return factor, [
            (one.subs({n: n ** whole[n] for n in names}, simultaneous=True), power) for one, power in factors
        ]

    def _root(self, x: Any) -> Any:
        """The square root, of a square where it is one."""
        sympy = _sympy()
        x = self._normal(x)
        above, below = x.as_numer_denom()
        result = sympy.Integer(1)
        for part, place in ((above, 1), (below, -1)):
            factor, factors = sympy.factor_list(part)
            root = sympy.sqrt(factor)
            if not root.is_Rational or any(power % 2 for _, power in factors):
                return self._atoms.of("sqrt", x)
            for one, power in factors:
                result *= (one ** (power // 2)) ** place
            result *= root**place
        return self.apply("abs", result)

    def _odd(self, name: str, x: Any) -> Any:
        x = _sympy().expand(self._normal(x))
        if x == 0:
            return x
        minus = x.could_extract_minus_sign()
        atom = self._atoms.of(name, -x if minus else x)
        return -atom if minus else atom

    def _sign(self, x: Any) -> int:
        """The sign of a function on all of the piece."""
        x = self._normal(x)
        sign = 1
        for part in x.as_numer_denom():
            factor, factors = _sympy().factor_list(part)
            sign *= int(_sympy().sign(factor))
            for one, power in factors:
                sign *= self._decided(one) ** power
        return sign

    def _decided(self, factor: Any) -> int:
        """The sign of a factor, or a break at its root."""
        found = self._definite(factor)
        if found:
            return found
        names = factor.free_symbols
        if len(names) == 1 and factor.is_polynomial(*names):
            (name,) = names
            inside, roots = self._atoms.meaning.get(name, ("", None)), _sympy().Poly(factor, name).real_roots()
            if name == self._x:
                places = [root for root in roots if root.is_Rational]
            elif inside == ("exp", self._x):
                places = [_sympy().Integer(0)] if 1 in roots else []
                roots = [root for root in roots if root > 0]
            else:
                raise UndecidedError
            if len(places) < len(set(roots)):
                raise UndecidedError
            for place in places:
                if self.piece.holds(place):
                    raise BreakError(place)
            value = self.piece.inner if name == self._x else _sympy().exp(_sympy().Rational(self.piece.inner) / _ROOT)
            return 1 if factor.subs(name, value) > 0 else -1
        raise UndecidedError

    def _definite(self, polynomial: Any) -> int:
        """The sign of a polynomial whose terms all have one; 0 where they have several, or none is known."""
        if polynomial.is_number:
            return int(_sympy().sign(polynomial))
        signs = set()
        for term in _sympy().Add.make_args(_sympy().expand(polynomial)):
            factor, base = term.as_coeff_Mul()
            sign = int(_sympy().sign(factor))
            for name, power in base.as_powers_dict().items():
                if name.is_number:
                    sign *= int(_sympy().sign(name**power))
                elif power % 2:
                    sign *= self._sign_of(name)
            signs.add(sign)
        return signs.pop() if len(signs) == 1 else 0

    def _sign_of(self, symbol: Any) -> int:
        piece = self.piece
        if symbol in self._atoms.positive:
            return 1
        if symbol == self._x and piece.low is not None and piece.low >= 0:
            return 1
        return -1 if symbol == self._x and piece.high is not None and piece.high <= 0 else 0


def _inside(x: Any) -> Any:
    """The element of an array that holds nothing else."""
    return x.flat[0] if isinstance(x, np.ndarray) else x


def pieces_of(
    read: Callable[[ElementaryNamespace], Result], most: int = 16
) -> Iterator[tuple[ElementaryNamespace, Result]]:
    """The arithmetic of each piece of the line, and what a reading makes in it; UndecidedError for too many pieces."""
    left, count = [Piece()], 0
    while left:
        piece, count = left.pop(), count + 1
        if count > most:
            raise UndecidedError
        xp = ElementaryNamespace(piece)
        try:
            found = read(xp)
        except BreakError as broken:
            left += piece.parts(broken.place)
            continue
        yield xp, found
