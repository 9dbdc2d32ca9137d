"""The mathematical functions of comprehensions: those of CUDA's and C's libraries, by name, with their arity.

Each is also known by its name with an f at its end, as C has it for float.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

Compute = Callable[..., Any]


@dataclass(frozen=True)
class MathFunction:
    """A function of numbers: its arity, and its values by NumPy and SciPy."""

    name: str
    arity: int
    compute: Compute


def _special(name: str) -> Compute:
    def compute(*arguments: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*arguments)

    return compute


def _norm(*arguments: Any) -> Any:
    """The root of the sum of squares, without overflow on the way."""
    total = np.abs(arguments[0])
    for one in arguments[1:]:
        total = np.hypot(total, one)
    return total


def _rounded(x: Any) -> Any:
    """The nearest integer, halves away from zero."""
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1, x), 0).astype(np.asarray(x).dtype)


def _sinpi(x: Any) -> Any:
    """The sine of π times a number, exact at multiples of a half."""
    halves = np.rint(2 * np.fmod(x, 2))
    rest = np.pi * (np.fmod(x, 2) - halves / 2)
    value = np.where(np.equal(np.fmod(halves, 2), 0), np.sin(rest), np.cos(rest))
    turned = np.isin(np.mod(halves, 4), (2, 3))
    return np.where(turned, -value, value)


def _cospi(x: Any) -> Any:
    """The cosine of π times a number, exact at multiples of a half."""
    return _sinpi(np.abs(np.fmod(x, 2)) + np.asarray(0.5, np.asarray(x).dtype))


def _remainder(x: Any, y: Any) -> Any:
    """The rest of x beside the nearest multiple of y, of two the even one, without rounding."""
    size = np.abs(y)
    left = np.fmod(np.abs(x), 2 * size)
    less = left - size
    rest = np.where(left <= size - left, left, np.where(less < size - less, less, less - size))
    return np.where(np.signbit(x), -rest, rest)


def _logb(x: Any) -> Any:
    """The exponent of a float to base 2, that of subnormal numbers included."""
    exponent = np.frexp(x)[1] - 1
    wide = np.where(np.isfinite(x), exponent, np.where(np.isnan(x), np.nan, np.inf))
    return np.where(np.equal(x, 0), -np.inf, wide).astype(np.asarray(x).dtype)


def _fma(x: Any, y: Any, z: Any) -> Any:
    """A product and a sum that are rounded once."""
    given = np.asarray(x).dtype
    if given != np.float64:
        return (np.float64(x) * y + z).astype(given)
    product, plain = x * y, x * y + z
    (a, b), (c, d) = _halves(x), _halves(y)
    missing = ((a * c - product) + a * d + b * c) + b * d
    other = plain - product
    lost = (product - (plain - other)) + (z - other) + missing
    return np.where(np.isfinite(lost), plain + lost, plain)


def _halves(x: Any) -> tuple[Any, Any]:
    """A float64 as the sum of two of 26 bits each, whose products are exact (Dekker 1971)."""
    scaled = x * (2.0**27 + 1)
    high = scaled - (scaled - x)
    return high, x - high


_ONE: dict[str, Compute] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": _cospi,
    "cyl_bessel_i0": _special("i0"),
    "cyl_bessel_i1": _special("i1"),
    "erf": _special("erf"),
    "erfc": _special("erfc"),
    "erfcinv": _special("erfcinv"),
    "erfcx": _special("erfcx"),
    "erfinv": _special("erfinv"),
    "exp": np.exp,
    "exp10": lambda x: np.power(np.asarray(10, np.asarray(x).dtype), x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fabs": np.fabs,
    "floor": np.floor,
    "j0": _special("j0"),
    "j1": _special("j1"),
    "lgamma": _special("gammaln"),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logb": _logb,
    "normcdf": _special("ndtr"),
    "normcdfinv": _special("ndtri"),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "round": _rounded,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": _sinpi,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tgamma": _special("gamma"),
    "trunc": np.trunc,
    "y0": _special("y0"),
    "y1": _special("y1"),
}
_TWO: dict[str, Compute] = {
    "atan2": np.arctan2,
    "copysign": np.copysign,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.where(x > y, x - y, 0)),
    "fdivide": np.divide,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "nextafter": np.nextafter,
    "pow": np.power,
    "remainder": _remainder,
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
}
_THREE: dict[str, Compute] = {
    "fma": _fma,
    "norm3d": _norm,
    "rnorm3d": lambda *x: 1 / _norm(*x),
}
_FOUR: dict[str, Compute] = {"norm4d": _norm, "rnorm4d": lambda *x: 1 / _norm(*x)}
#: The 64 functions by name.
FUNCTIONS = MappingProxyType(
    {
        name: MathFunction(name, arity, compute)
        for arity, known in enumerate((_ONE, _TWO, _THREE, _FOUR), 1)
        for name, compute in known.items()
    }
)
#: Functions that keep the type of their arguments, integers included: the larger and the smaller of two numbers.
CHOOSING = frozenset({"max", "min"})


def function(name: str) -> MathFunction | None:
    """The function of a name, with or without the f at its end; None for a name of none.

    >>> function("fmaxf").name, function("expf").arity, function("softmax")
    ('fmax', 1, None)
    """
    found = FUNCTIONS.get(name)
    return found if found is not None else FUNCTIONS.get(name.removesuffix("f"))
