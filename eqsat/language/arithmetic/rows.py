"""Arithmetic on the elements of rows, whose sums and maxima are atoms of a normal form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np

from eqsat.language.arithmetic.elementary import ElementaryNamespace, Piece, UndecidedError


class RowNamespace(ElementaryNamespace):
    """Arithmetic on tensors by one element that stands for all, with the methods of FloatNamespace.

    Elements are functions of the element of an operand, of those of others, and of means and maxima over `axes`, which
    are the same all along them: a mean is linear, and what does not vary along the axes comes out of it. Two elements
    that are equal as quotients of polynomials are equal whatever the tensors hold. Comparisons are not decided, but for
    equality, which is taken not to hold: what two functions are where it does is to be asked by `is_defined`.
    """

    def __init__(self, axes: Iterable[int], rank: int) -> None:
        super().__init__(Piece())
        self._axes, self._rank = tuple(sorted(axes)), rank
        self._varying: set[Any] = {self._x}
        self._excluded: list[Any] = []

    def operand(self, name: str, shape: tuple[int, ...]) -> Any:
        """A tensor; the one named "x" is the variable."""
        along = [axis for axis in self._axes if axis - self._rank + len(shape) >= 0]
        element = self._x if name == "x" else self._atoms.of("operand", name)
        if any(shape[axis - self._rank + len(shape)] != 1 for axis in along):
            self._varying.add(element)
        return np.broadcast_to(np.array(element, dtype=object), shape)

    def number(self, value: Any, like: Any = None) -> Any:
        """A number, as the one that it stands for."""
        return np.array(super().number(value), dtype=object)

    def equal(self, a: Any, b: Any) -> Any:
        """False, where two elements are not equal whatever the tensors hold."""
        difference = self._normal(a.flat[0] - b.flat[0])
        if difference == 0:
            return np.array(True)
        self._excluded.append(difference)
        return np.array(False)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """The first where the condition is true, else the other."""
        chosen = np.asarray(a if bool(np.all(condition)) else b, dtype=object)
        shape = np.broadcast_shapes(*(np.shape(one) for one in (condition, a, b)))
        return np.broadcast_to(np.array(chosen.flat[0], dtype=object), shape)

    def is_defined(self, element: Any) -> bool:
        """True if an element may be a number where two elements are equal that were taken not to be."""
        _, below = self._normal(np.asarray(element, dtype=object).flat[0]).as_numer_denom()
        return any(not self._normal(below / one).is_polynomial() for one in self._excluded)

    def sum(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Sum over the axes."""
        shape, count = self._reduced(x, axis, keepdims)
        return np.broadcast_to(np.array(self._normal(count * self._mean(x.flat[0])), dtype=object), shape)

    def max(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Maximum over the axes: what does not vary along them is added to it."""
        shape, _ = self._reduced(x, axis, keepdims)
        terms = self._terms(x.flat[0])
        varying = sum((term for term in terms if self._varies(term)), start=0)
        fixed = sum((term for term in terms if not self._varies(term)), start=0)
        top = self._atoms.of("max", varying) if varying != 0 else 0
        return np.broadcast_to(np.array(self._normal(fixed + top), dtype=object), shape)

    def _reduced(self, x: Any, axis: Any, keepdims: bool) -> tuple[tuple[int, ...], int]:
        """The shape of what is reduced, and over how many elements; UndecidedError over other axes."""
        axes = (axis,) if isinstance(axis, int) else axis
        if axes is None or not keepdims or np.ndim(x) != self._rank:
            raise UndecidedError
        if tuple(sorted(a % self._rank for a in axes)) != self._axes:
            raise UndecidedError
        shape = np.shape(x)
        return tuple(1 if a in self._axes else d for a, d in enumerate(shape)), prod(shape[a] for a in self._axes)

    def _mean(self, element: Any) -> Any:
        """The mean over the axes: a sum of products of what is fixed and means of what varies."""
        total: Any = 0
        for term in self._terms(element):
            factors = term.as_powers_dict().items()
            varying = [base**power for base, power in factors if self._varies(base)]
            fixed = [base**power for base, power in factors if not self._varies(base)]
            product = prod(varying, start=self._normal(1))
            positive = all(one.as_base_exp()[0] in self._atoms.positive for one in varying)
            mean = self._atoms.of("mean", product, positive=positive) if varying else 1
            total += prod(fixed, start=self._normal(1)) * mean
        return self._normal(total)

    def _terms(self, element: Any) -> list[Any]:
        """The terms of a sum, over a denominator that is fixed or a product."""
        import sympy

        above, below = self._normal(element).as_numer_denom()
        if self._varies(below) and len(sympy.Add.make_args(below)) > 1:
            raise UndecidedError
        return [term / below for term in sympy.Add.make_args(sympy.expand(above)) if term != 0]

    def _varies(self, expression: Any) -> bool:
        return any(self._symbol_varies(symbol) for symbol in getattr(expression, "free_symbols", ()))

    def _symbol_varies(self, symbol: Any) -> bool:
        name, argument = self._atoms.meaning.get(symbol, ("", None))
        if name in ("mean", "max"):
            return False
        return symbol in self._varying or (name not in ("", "operand") and self._varies(argument))

    def _normal(self, expression: Any) -> Any:
        """The normal form; the square of a root is what it is the root of."""
        found = super()._normal(expression)
        for symbol in sorted(getattr(found, "free_symbols", ()), key=str):
            name, argument = self._atoms.meaning.get(symbol, ("", None))
            if name != "sqrt":
                continue
            above, below = (self._lowered(part, symbol, argument) for part in found.as_numer_denom())
            found = super()._normal(above / below)
        return found

    def _lowered(self, polynomial: Any, root: Any, argument: Any) -> Any:
        import sympy

        if root not in polynomial.free_symbols:
            return polynomial
        terms = sympy.Poly(polynomial, root).as_dict()
        return sum(c * argument ** (power // 2) * root ** (power % 2) for (power,), c in terms.items())

    def _lifted(self, function: Callable[..., Any], *operands: Any) -> Any:
        """A function of elements as one of tensors, which broadcast."""
        made = function(*operands)
        shape = np.broadcast_shapes(*(np.shape(one) for one in operands))
        return np.broadcast_to(np.array(made, dtype=object), shape)

    def add(self, a: Any, b: Any) -> Any:
        """Sum."""
        return self._lifted(super().add, a, b)

    def subtract(self, a: Any, b: Any) -> Any:
        """Difference."""
        return self._lifted(super().subtract, a, b)

    def multiply(self, a: Any, b: Any) -> Any:
        """Product."""
        return self._lifted(super().multiply, a, b)

    def maximum(self, a: Any, b: Any) -> Any:
        """The larger one."""
        return self._lifted(super().maximum, a, b)

    def minimum(self, a: Any, b: Any) -> Any:
        """The smaller one."""
        return self._lifted(super().minimum, a, b)

    def negative(self, a: Any) -> Any:
        """Negation."""
        return self._lifted(super().negative, a)

    def divide(self, a: Any, b: Any) -> Any:
        """Quotient."""
        return self._lifted(super().divide, a, b)

    def power(self, a: Any, b: Any) -> Any:
        """Power with a whole exponent, or a half of one."""
        return self._lifted(super().power, a, b)

    def apply(self, name: str, x: Any) -> Any:
        """A function of one variable."""
        return self._lifted(lambda element: super(RowNamespace, self).apply(name, element), x)
