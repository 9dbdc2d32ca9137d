"""Operators that have no kernel, run by their references: on the device by CuPy's functions, else on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.errors import DeclarationError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.terms.types import DType, TensorType
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.fallback import run_fallback
from eqsat.runtime.programs.launches import Fallback, Launch

#: Errors that CuPy raises where a reference asks for more than it has, for example an array of NumPy's among its own;
#: in a user's operator it is reported as a fault of the declaration, which running it on the host confirms or not.
_UNFIT = (TypeError, AttributeError, ValueError, NotImplementedError, IndexError, DeclarationError)


class DeviceFallback:
    """References on a device's arrays; operators whose reference does not run there are run on the host from then on.

    `module` is the device's array module, `special` its functions beyond NumPy's; `to_host` copies an array there.
    """

    def __init__(self, module: Any, special: Any, to_host: Callable[[Any], Any]) -> None:
        self._module, self._to_host = module, to_host
        self._floats = DeviceFloats(module, special)
        self.on_host: set[str] = set()

    def run(self, work: Fallback, launch: Launch, array: Callable[[View], Any]) -> None:
        """Compute an operator, and write its results to the arrays of the launch's views."""
        arrays = None if work.node.op in self.on_host else self._run_here(work, launch, array)
        if arrays is None:
            self.on_host.add(work.node.op)
            arrays = run_fallback(work, launch, lambda view: self._to_host(array(view)), Floats())
        for view, one in zip(launch.writes, arrays, strict=True):
            array(view)[...] = self._module.asarray(one)

    def _run_here(self, work: Fallback, launch: Launch, array: Callable[[View], Any]) -> list[Any] | None:
        try:
            return run_fallback(work, launch, array, self._floats)
        except _UNFIT:
            return None


class DeviceFloats:
    """The interpretation of references in floating point on a device's arrays."""

    def __init__(self, module: Any, special: Any) -> None:
        self._namespace = DeviceNamespace(module, special)

    def namespace(self, operands: list[TensorType | None], results: list[TensorType]) -> DeviceNamespace:
        """The same arithmetic for every node."""
        return self._namespace

    def constant(self, array: Any, type: TensorType) -> Any:
        """A constant's elements, on the device."""
        return self._namespace.module.asarray(array)

    def finish(self, array: Any, type: TensorType) -> Any:
        """The result in the element type declared for it."""
        return self._namespace.module.asarray(array).astype(type.dtype.numpy)


class DeviceNamespace:
    """The arithmetic of references, by an array module that has NumPy's functions."""

    exact = False

    def __init__(self, module: Any, special: Any) -> None:
        self.module = module
        self.add, self.subtract, self.multiply = module.add, module.subtract, module.multiply
        self.negative, self.matmul = module.negative, module.matmul
        self.maximum, self.minimum = module.maximum, module.minimum
        self.equal, self.less, self.less_equal = module.equal, module.less, module.less_equal
        self.where = module.where
        self._functions = {"erf": special.erf, "sigmoid": special.expit}

    def divide(self, a: Any, b: Any) -> Any:
        """Quotient; of integers, truncated toward zero."""
        xp = self.module
        if not _is_integer(a):
            return xp.divide(a, b)
        quotient = xp.floor_divide(a, b)
        short = (xp.sign(a) * xp.sign(b) < 0) & (xp.multiply(quotient, b) != a)
        return xp.where(short, quotient + 1, quotient).astype(quotient.dtype)

    def power(self, a: Any, b: Any) -> Any:
        """Power; of integers to negative exponents, truncated toward zero."""
        xp = self.module
        if _is_integer(a) and b.dtype.kind == "i" and bool((b < 0).any()):
            return xp.power(a.astype(np.float64), b).astype(a.dtype)
        return xp.power(a, b)

    def apply(self, name: str, x: Any) -> Any:
        """A function of one variable, element by element."""
        if name == "softplus":
            return self.module.logaddexp(x, self.module.zeros((), x.dtype))
        return (self._functions.get(name) or getattr(self.module, name))(x)

    def number(self, value: float, like: Any) -> Any:
        """A number of the same element type as `like`; a fraction stays one beside integers."""
        given = self.module.asarray(value)
        if _is_integer(like) and np.isfinite(value) and not float(value).is_integer():
            return given
        return given.astype(like.dtype)

    def sum(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Sum over axes."""
        return self.module.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)

    def prod(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Product over axes."""
        return self.module.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype)

    def max(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Maximum over axes; ValueError over no elements."""
        return self.module.max(x, axis=axis, keepdims=keepdims)

    def min(self, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        """Minimum over axes; ValueError over no elements."""
        return self.module.min(x, axis=axis, keepdims=keepdims)

    def argsort(self, x: Any, axis: int) -> Any:
        """The stable ascending order of the elements along an axis."""
        return self.module.argsort(x, axis=axis, kind="stable")

    def einsum(self, equation: str, *operands: Any) -> Any:
        """Sum of products by NumPy's index notation."""
        return self.module.einsum(equation, *operands)

    def cast(self, x: Any, dtype: DType) -> Any:
        """Conversion of the element type."""
        return x.astype(dtype.numpy)


def _is_integer(array: Any) -> bool:
    return array.dtype.kind in "iu"
