"""Floating-point arithmetic for operator references: NumPy, at the graph's own precision or all in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.language.terms import DType, TensorType
from eqsat.language.terms.constant import PART
from eqsat.system.deadline import check


def _erf(x: Any) -> Any:
    from scipy.special import erf

    return erf(x)


def _truncating_divide(a: Any, b: Any) -> Any:
    """Integer division as ONNX has it: rounded toward zero."""
    with np.errstate(divide="ignore"):
        quotient = np.floor_divide(a, b)
        exact = np.multiply(quotient, b) == a
        return np.where((np.sign(a) * np.sign(b) < 0) & ~exact, quotient + 1, quotient).astype(quotient.dtype)


def _sigmoid(x: Any) -> Any:
    from scipy.special import expit

    return expit(x)


def _softplus(x: Any) -> Any:
    return np.logaddexp(x, np.zeros((), np.asarray(x).dtype))


def _extreme(dtype: np.dtype[Any], lowest: bool) -> Any:
    """The least or greatest element there is, the identity of maximum or minimum."""
    if dtype.kind == "b":
        return not lowest
    if dtype.kind in "iu":
        return np.iinfo(dtype).min if lowest else np.iinfo(dtype).max
    return dtype.type(-np.inf if lowest else np.inf)


#: The most elements of operands whose products are all summed as they are.
_SMALL_OPERAND = 256


class FloatNamespace:
    """Arithmetic on plain NumPy arrays.

    `apply(name, x)` is a function of one variable by its NumPy name; a reference uses it for every function that is not
    a polynomial, so that the other interpretations can leave it uninterpreted. `number(c, like)` is a number that
    combines with the elements of `like`.
    """

    exact = False

    add = staticmethod(np.add)
    subtract = staticmethod(np.subtract)
    multiply = staticmethod(np.multiply)
    negative = staticmethod(np.negative)
    matmul = staticmethod(np.matmul)
    maximum = staticmethod(np.maximum)
    minimum = staticmethod(np.minimum)
    equal = staticmethod(np.equal)
    less = staticmethod(np.less)
    less_equal = staticmethod(np.less_equal)
    where = staticmethod(np.where)

    _functions = {"erf": _erf, "sigmoid": _sigmoid, "softplus": _softplus}  # noqa: RUF012

    def divide(self, a: Any, b: Any) -> Any:
        """Quotient; of integers, truncated toward zero."""
        if np.issubdtype(np.asarray(a).dtype, np.integer):
            return _truncating_divide(a, b)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.divide(a, b)

    def power(self, a: Any, b: Any) -> Any:
        """Power; of integers to negative exponents, truncated toward zero."""
        a, b = np.asarray(a), np.asarray(b)
        with np.errstate(all="ignore"):
            below = b < 0 if a.dtype.kind in "iu" and b.dtype.kind == "i" else None
            if below is None or not below.any():
                return np.power(a, b)
            cut = np.power(a.astype(np.float64), np.where(below, b, 0)).astype(a.dtype)
            return np.where(below, cut, np.power(a, np.where(below, 0, b)))

    def apply(self, name: str, x: Any) -> Any:
        """A function of one variable, element by element."""
        function = self._functions.get(name) or getattr(np, name)
        with np.errstate(all="ignore"):
            return function(x)

    def number(self, value: float, like: Any) -> Any:
        """A number of the same element type as `like`; a fraction stays one beside integers, results being cut."""
        dtype = np.asarray(like).dtype
        if dtype.kind in "iu" and np.isfinite(value) and not float(value).is_integer():
            return np.asarray(value)
        return np.asarray(value).astype(dtype)

    def sum(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Sum over axes."""
        return np.sum(x, axis=axis, keepdims=keepdims, dtype=np.asarray(x).dtype)

    def prod(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Product over axes."""
        return np.prod(x, axis=axis, keepdims=keepdims, dtype=np.asarray(x).dtype)

    def max(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Maximum over axes; over no elements, the least element there is."""
        x = np.asarray(x)
        if x.size:
            return np.max(x, axis=axis, keepdims=keepdims)
        return np.max(x, axis=axis, keepdims=keepdims, initial=_extreme(x.dtype, lowest=True))

    def min(self, x: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
        """Minimum over axes; over no elements, the greatest element there is."""
        x = np.asarray(x)
        if x.size:
            return np.min(x, axis=axis, keepdims=keepdims)
        return np.min(x, axis=axis, keepdims=keepdims, initial=_extreme(x.dtype, lowest=False))

    def argsort(self, x: Any, axis: int) -> Any:
        """The stable ascending order of the elements along an axis."""
        return np.argsort(x, axis=axis, kind="stable")

    def einsum(self, equation: str, *operands: Any) -> Any:
        """Sum of products by NumPy's index notation."""
        dtype = np.result_type(*operands)
        if dtype.isbuiltin == 1:
            # Which products are formed first decides what comes of an infinity: where it costs little, none is.
            return np.einsum(equation, *operands, optimize=max(map(np.size, operands)) > _SMALL_OPERAND)
        # NumPy's einsum knows its own element types only.
        return np.einsum(equation, *(np.asarray(x, np.float32) for x in operands), optimize=True).astype(dtype)

    def cast(self, x: Any, dtype: DType) -> Any:
        """Conversion of the element type."""
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(dtype.numpy)


class Floats:
    """The interpretation in floating point; `wide=True` computes every float in float64.

    >>> import numpy as np
    >>> Floats(wide=True).constant(np.float32([1]), TensorType.of("float32", (1,))).dtype
    dtype('float64')
    """

    def __init__(self, *, wide: bool = False) -> None:
        self.wide = wide
        self._namespace = WideNamespace() if wide else FloatNamespace()

    def namespace(self, operands: list[TensorType | None], results: list[TensorType]) -> FloatNamespace:
        """The same arithmetic for every node."""
        return self._namespace

    def constant(self, array: Any, type: TensorType) -> Any:
        """The elements, widened where this interpretation is wide."""
        return _widened(np.asarray(array)) if self.wide and type.dtype.is_float else np.asarray(array)

    def finish(self, array: Any, type: TensorType) -> Any:
        """The result in the element type declared for it, or float64."""
        return np.asarray(array, self.stored(type))

    def stored(self, type: TensorType) -> np.dtype[Any]:
        """The element type of the arrays that hold results of a type."""
        return np.dtype(np.float64) if self.wide and type.dtype.is_float else type.dtype.numpy


def _widened(array: Any) -> Any:
    """The elements in float64, a part at a time where they are many: a copy of gigabytes takes seconds."""
    if array.size <= PART or array.dtype == np.float64:
        return np.asarray(array, np.float64)
    wide = np.empty(array.shape, np.float64)
    given, flat = array.reshape(-1), wide.reshape(-1)
    for start in range(0, flat.size, PART):
        check(0)
        flat[start : start + PART] = given[start : start + PART]
    return wide


class WideNamespace(FloatNamespace):
    """Float arithmetic that keeps float64 through casts to narrower floats."""

    def cast(self, x: Any, dtype: DType) -> Any:
        """Conversion of the element type, floats staying in float64."""
        with np.errstate(all="ignore"):
            return np.asarray(x).astype(np.float64 if dtype.is_float else dtype.numpy)
