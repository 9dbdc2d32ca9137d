"""Symbolic arithmetic for operator references: Z3 real terms, functions of one variable uninterpreted."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.arithmetic.algebra import Algebra, fraction, rational
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.terms import DType, TensorType


class TermNamespace:
    """Arithmetic on object arrays of Z3 terms, with the methods of FloatNamespace."""

    exact = True

    def __init__(self) -> None:
        self._algebra = Algebra()

    def _map(self, function: Any, *operands: Any) -> Any:
        result = np.frompyfunc(function, len(operands), 1)(*(_objects(o) for o in operands))
        return _objects(result)

    def _reals(self, x: Any) -> Any:
        return self._map(self._algebra.real, x)

    def add(self, a: Any, b: Any) -> Any:
        """Sum."""
        return _objects(np.add(self._reals(a), self._reals(b)))

    def subtract(self, a: Any, b: Any) -> Any:
        """Difference."""
        return _objects(np.subtract(self._reals(a), self._reals(b)))

    def multiply(self, a: Any, b: Any) -> Any:
        """Product."""
        return _objects(np.multiply(self._reals(a), self._reals(b)))

    def negative(self, a: Any) -> Any:
        """Negation."""
        return _objects(np.negative(self._reals(a)))

    def divide(self, a: Any, b: Any) -> Any:
        """Quotient: product with the inverse, a function of a term that is no number."""
        return self.multiply(a, self._map(self._algebra.inverse, self._reals(b)))

    def power(self, a: Any, b: Any) -> Any:
        """Power: repeated product for whole exponents up to 8, the root for 1/2, else uninterpreted."""
        return self._map(self._power, self._reals(a), self._reals(b))

    def _power(self, a: Any, b: Any) -> Any:
        z3, b = self._algebra.z3, self._algebra.normal(b)
        exponent = fraction(b) if z3.is_rational_value(b) else None
        if exponent == Fraction(1, 2):
            return self._apply("sqrt", a)
        if exponent is None or exponent.denominator != 1 or abs(exponent) > 8:
            return self._algebra.function("power", a, b)
        whole = reduce(lambda x, y: x * y, [a] * abs(int(exponent)), z3.RealVal(1))
        return whole if exponent >= 0 else self._algebra.inverse(whole)

    def matmul(self, a: Any, b: Any) -> Any:
        """Matrix product."""
        return _objects(np.matmul(self._reals(a), self._reals(b)))

    def einsum(self, equation: str, *operands: Any) -> Any:
        """Sum of products by index notation."""
        return _objects(np.einsum(equation, *(self._reals(o) for o in operands)))

    def maximum(self, a: Any, b: Any) -> Any:
        """The larger element."""
        return self._map(self._algebra.maximum, self._reals(a), self._reals(b))

    def minimum(self, a: Any, b: Any) -> Any:
        """The smaller element: minus the larger of the negated ones."""
        return self.negative(self.maximum(self.negative(a), self.negative(b)))

    def equal(self, a: Any, b: Any) -> Any:
        """True where the elements are equal."""
        return self._map(lambda x, y: self._algebra.compare(x, y, "="), a, b)

    def less(self, a: Any, b: Any) -> Any:
        """True where the left element is smaller."""
        return self._map(lambda x, y: self._algebra.compare(x, y, "<"), a, b)

    def less_equal(self, a: Any, b: Any) -> Any:
        """True where the left element is smaller or equal."""
        return self._map(lambda x, y: self._algebra.compare(x, y, "<="), a, b)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """The element of `a` where the condition is true, else that of `b`."""
        return self._map(self._algebra.choice, condition, a, b)

    def apply(self, name: str, x: Any) -> Any:
        """A function of one variable."""
        return self._map(lambda e: self._apply(name, e), self._reals(x))

    def _apply(self, name: str, x: Any) -> Any:
        algebra, z3 = self._algebra, self._algebra.z3
        if name == "abs":
            return algebra.maximum(x, -x)
        if name == "exp":
            return algebra.exponential(x)
        if name == "sigmoid":
            return algebra.sigmoid(x)
        if name == "log":
            return algebra.logarithm(x)
        x = algebra.normal(x)
        if name == "sqrt" and z3.is_rational_value(x) and fraction(x) >= 0:
            number = fraction(x)
            root = Fraction(math.isqrt(number.numerator), math.isqrt(number.denominator))
            if root * root == number:
                return rational(z3, root)
        if z3.is_rational_value(x) and (whole := _whole(name, fraction(x))) is not None:
            return rational(z3, Fraction(whole))
        return algebra.function(name, x)

    def number(self, value: float, like: Any) -> Any:
        """A number that combines with terms."""
        return _objects(self._algebra.real(value))

    def sum(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Sum over axes."""
        return self._reals(np.sum(self._reals(x), axis=axis, keepdims=keepdims))

    def prod(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Product over axes."""
        return self._reals(np.prod(self._reals(x), axis=axis, keepdims=keepdims))

    def max(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Maximum over axes."""
        x = self._reals(x)
        axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = tuple(a % x.ndim for a in axes)
        others = [a for a in range(x.ndim) if a not in axes]
        moved = x.transpose(*others, *axes).reshape(*(x.shape[a] for a in others), math.prod(x.shape[a] for a in axes))
        result = np.empty(moved.shape[:-1], object)
        for index in np.ndindex(result.shape):
            result[index] = self._algebra.maximum(*moved[index])
        return result.reshape([1 if a in axes else n for a, n in enumerate(x.shape)]) if keepdims else result

    def min(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Minimum over axes."""
        return self.negative(self.max(self.negative(x), axis, keepdims))

    def argsort(self, x: Any, axis: int) -> Any:
        """Refused: the order of terms is not known."""
        raise ShapeError("terms have no order", expected="an operator whose movement does not depend on values")

    def cast(self, x: Any, dtype: DType) -> Any:
        """Conversion: exact between floats, true is 1, to integers uninterpreted."""
        if dtype.is_float:
            return self._reals(x)
        if dtype is DType.BOOL:
            return self._map(lambda e: self._algebra.choice(self._algebra.compare(e, 0, "="), False, True), x)
        return self.apply("trunc", x)


class Reals:
    """The interpretation in Z3 reals; integers stay what they are.

    >>> x = Reals().variable("x", (2,))
    >>> x.shape
    (2,)
    """

    def __init__(self) -> None:
        self._terms = TermNamespace()
        self._plain = FloatNamespace()

    def variable(self, name: str, shape: tuple[int, ...], boolean: bool = False) -> Any:
        """An array of fresh real or truth variables."""
        z3 = self._terms._algebra.z3
        make = z3.Bool if boolean else z3.Real
        result = np.empty(shape, object)
        for index in np.ndindex(shape):
            result[index] = make(f"{name}{list(index)}")
        return result

    def settle(self, a: Any, b: Any, steps: int) -> str:
        """True if two elements are equal for all values of the variables: "proved", "differs" or "unknown".

        Normal forms decide most; else the solver takes so many steps, knowing what a maximum is. A model it finds is a
        difference only where no function is left uninterpreted, so it counts as unknown.
        """
        return self._terms._algebra.settle(a, b, steps)

    def namespace(self, operands: list[TensorType | None], results: list[TensorType]) -> Any:
        """Symbolic arithmetic for nodes that read or make floats or truth values, plain arithmetic for the rest."""
        symbolic = any(t is not None and not t.dtype.is_integer for t in (*operands, *results))
        return self._terms if symbolic else self._plain

    def constant(self, array: Any, type: TensorType) -> Any:
        """The exact rational values of floats."""
        return self.finish(array, type)

    def finish(self, array: Any, type: TensorType) -> Any:
        """Reals for floats, truth values as they are, the declared element type for the rest."""
        if type.dtype.is_float:
            return self._terms._reals(array)
        return _objects(array) if type.dtype is DType.BOOL else np.asarray(array)


def _whole(name: str, number: Fraction) -> int | None:
    """The whole number that a function makes of a number; None for another function."""
    if name == "round":
        return round(number)
    if name == "trunc":
        return math.trunc(number)
    kind = name.removeprefix("saturate-")
    if kind == name or number.denominator != 1:
        return None
    limits = ml_dtypes.iinfo(DType.of(kind).numpy)
    return min(max(int(number), int(limits.min)), int(limits.max))


def _objects(x: Any) -> Any:
    """An object array, of rank 0 for a single term."""
    if isinstance(x, np.ndarray):
        return x if x.dtype == object else x.astype(object)
    result = np.empty((), object)
    result[()] = x
    return result
