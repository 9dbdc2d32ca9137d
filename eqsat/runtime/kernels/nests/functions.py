"""The mathematical functions of comprehensions as calls of C, by the names of `meaning.mathematics`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS as OPERATIONS

#: Functions that C's mathematical library has under the same name, with an f behind it for float.
_LIBRARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh",
    "erf", "erfc", "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "hypot",
    "j0", "j1", "lgamma", "log", "log10", "log1p", "log2", "logb", "nextafter", "remainder", "round", "sin",
    "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc", "y0", "y1",
)  # fmt: skip
#: Functions that the text before every kernel defines for float and double.
_OWN = (
    "cospi", "exp10", "norm3d", "norm4d", "normcdf", "rcbrt", "rhypot", "rnorm3d", "rnorm4d", "rsqrt", "sinpi",
)  # fmt: skip


def _of_library(name: str) -> Callable[[Sequence[Expr]], Expr]:
    def function(operands: Sequence[Expr]) -> Expr:
        dtype = operands[0].dtype
        places = ", ".join(f"{{{place}}}" for place in range(len(operands)))
        suffix = "f" if dtype is DType.FLOAT32 else ""
        return Expr(dtype, f"{name}{suffix}({places})", tuple(operands))

    return function


_CALLS: Mapping[str, Callable[[Sequence[Expr]], Expr]] = {
    **{name: _of_library(name) for name in (*_LIBRARY, *_OWN)},
    "fdivide": lambda operands: OPERATIONS["divide"](*operands),
    "pow": lambda operands: OPERATIONS["power"](*operands),
}


def call(name: str, operands: Sequence[Expr]) -> Expr:
    """A function of floats of one type; UnsupportedError for those that C has no form of."""
    made = _CALLS.get(name)
    if made is None:
        raise UnsupportedError(f"{name} in C")
    return made(operands)


def checked_division(operator: str, a: Expr, b: Expr) -> Expr:
    """The quotient of integers cut toward zero, or its remainder; the kernel fails where the divisor is 0."""
    name = "quotient" if operator == "/" else "cut_remainder"
    if b.value:
        return Expr(a.dtype, f"{name}({{0}}, {{1}})", (a, b))
    return Expr(a.dtype, f"CHECKED({name}, {{0}}, {{1}})", (a, b))
