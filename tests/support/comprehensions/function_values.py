"""Values of the functions of comprehensions by mpmath and Python's math: nothing here is NumPy's or SciPy's."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath

ALL = (-2.75, -1.5, -0.5, 0.0, 0.25, 0.5, 1.5, 2.5, 3.0)
UNIT = (-0.875, -0.5, 0.0, 0.25, 0.75)
ABOVE = (0.125, 0.5, 1.0, 2.5, 6.0)
NOT_0 = (-2.75, -1.5, -0.5, 0.25, 1.5, 6.0)
#: Pairs of numbers, of both signs.
TWO = tuple((x, y) for x in (-5.5, -1.5, 0.5, 2.5, 7.0) for y in (-2.0, -0.75, 1.0, 1.25, 3.0))
POSITIVE = tuple((x, y) for x in ABOVE for y in (-2.0, -0.5, 0.0, 1.5))
THREE = tuple((x, y, z) for x in (-2.0, 0.5, 3.0) for y in (-1.0, 2.5) for z in (-4.0, 0.0, 1.25))
FOUR = tuple((*one, w) for one in THREE for w in (-6.0, 1.0))
#: Ties, infinite divisors, and quotients beyond the digits of a double.
REMAINDERS = ((1.5, 1.0), (2.5, 1.0), (-0.5, 1.0), (-1.5, 1.0), (3.0, math.inf), (2.0**60 + 2.0**40, 3.0))


def ones(numbers: tuple[float, ...]) -> tuple[tuple[float, ...], ...]:
    """Numbers as tuples of one argument."""
    return tuple((x,) for x in numbers)


def numbers(*xs: float) -> list[float]:
    """Those that are not NaN."""
    return [x for x in xs if not math.isnan(x)]


def root(x: float) -> Any:
    """The real cube root."""
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


def away(x: float) -> float:
    """The nearest integer, halves away from zero."""
    return math.copysign(math.floor(abs(Fraction(x)) + Fraction(1, 2)), x)


def norm(*xs: float) -> Any:
    """The root of the sum of squares."""
    return mpmath.sqrt(sum(mpmath.mpf(x) ** 2 for x in xs))


def normal_quantile(p: float) -> Any:
    """The number below which a normal variable is with a probability."""
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(p) - 1)


#: The value of each function for some arguments, and these.
VALUES: dict[str, tuple[Callable[..., Any], tuple[tuple[float, ...], ...]]] = {
    "acos": (math.acos, ones(UNIT)),
    "acosh": (math.acosh, ones((1.0, 1.5, 8.0))),
    "asin": (math.asin, ones(UNIT)),
    "asinh": (math.asinh, ones(ALL)),
    "atan": (math.atan, ones(ALL)),
    "atanh": (math.atanh, ones(UNIT)),
    "cbrt": (root, ones(ALL)),
    "ceil": (math.ceil, ones(ALL)),
    "cos": (math.cos, ones(ALL)),
    "cosh": (math.cosh, ones(ALL)),
    "cospi": (mpmath.cospi, ones((*ALL, 101.25))),
    "cyl_bessel_i0": (lambda x: mpmath.besseli(0, x), ones(ALL)),
    "cyl_bessel_i1": (lambda x: mpmath.besseli(1, x), ones(ALL)),
    "erf": (mpmath.erf, ones(ALL)),
    "erfc": (mpmath.erfc, ones(ALL)),
    "erfcinv": (lambda x: mpmath.erfinv(1 - mpmath.mpf(x)), ones((0.125, 0.5, 1.0, 1.75))),
    "erfcx": (lambda x: mpmath.exp(mpmath.mpf(x) ** 2) * mpmath.erfc(x), ones(ALL)),
    "erfinv": (mpmath.erfinv, ones(UNIT)),
    "exp": (math.exp, ones(ALL)),
    "exp10": (lambda x: mpmath.mpf(10) ** x, ones(ALL)),
    "exp2": (lambda x: mpmath.mpf(2) ** x, ones(ALL)),
    "expm1": (math.expm1, ones(ALL)),
    "fabs": (math.fabs, ones(ALL)),
    "floor": (math.floor, ones(ALL)),
    "j0": (lambda x: mpmath.besselj(0, x), ones(ALL)),
    "j1": (lambda x: mpmath.besselj(1, x), ones(ALL)),
    "lgamma": (math.lgamma, ones(NOT_0)),
    "log": (math.log, ones(ABOVE)),
    "log10": (math.log10, ones(ABOVE)),
    "log1p": (math.log1p, ones((-0.5, 0.0, 0.25, 3.0))),
    "log2": (math.log2, ones(ABOVE)),
    "logb": (lambda x: math.frexp(x)[1] - 1, ones((*NOT_0, 2.0**-140))),
    "normcdf": (mpmath.ncdf, ones(ALL)),
    "normcdfinv": (normal_quantile, ones((0.125, 0.5, 0.75))),
    "rcbrt": (lambda x: 1 / root(x), ones(NOT_0)),
    "round": (away, ones((*ALL, -2.5, -3.5, 0.4375))),
    "rsqrt": (lambda x: 1 / math.sqrt(x), ones(ABOVE)),
    "sin": (math.sin, ones(ALL)),
    "sinh": (math.sinh, ones(ALL)),
    "sinpi": (mpmath.sinpi, ones((*ALL, 101.25))),
    "sqrt": (math.sqrt, ones(ABOVE)),
    "tan": (math.tan, ones(UNIT)),
    "tanh": (math.tanh, ones(ALL)),
    "tgamma": (math.gamma, ones(NOT_0)),
    "trunc": (math.trunc, ones(ALL)),
    "y0": (lambda x: mpmath.bessely(0, x), ones(ABOVE)),
    "y1": (lambda x: mpmath.bessely(1, x), ones(ABOVE)),
    "atan2": (math.atan2, TWO),
    "copysign": (math.copysign, TWO),
    "fdim": (lambda x, y: max(x - y, 0), TWO),
    "fdivide": (lambda x, y: x / y, TWO),
    "fmax": (lambda x, y: max(numbers(x, y)), (*TWO, (math.nan, 1.0), (2.0, math.nan))),
    "fmin": (lambda x, y: min(numbers(x, y)), (*TWO, (math.nan, 1.0), (2.0, math.nan))),
    "fmod": (math.fmod, TWO),
    "hypot": (norm, TWO),
    "nextafter": (math.nextafter, TWO),
    "pow": (lambda x, y: mpmath.mpf(x) ** y, POSITIVE),
    "remainder": (math.remainder, (*TWO, *REMAINDERS)),
    "rhypot": (lambda x, y: 1 / norm(x, y), TWO),
    "fma": (lambda x, y, z: Fraction(x) * Fraction(y) + Fraction(z), THREE),
    "norm3d": (norm, THREE),
    "rnorm3d": (lambda *xs: 1 / norm(*xs), THREE),
    "norm4d": (norm, FOUR),
    "rnorm4d": (lambda *xs: 1 / norm(*xs), FOUR),
}  # fmt: skip
