"""Derivatives of a value in the elements that it reads, as expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from eqsat.errors import UsageError
from eqsat.language.comprehension.meaning.element_types import NAMED
from eqsat.language.comprehension.text.parser import parse
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    Name,
    Number,
    Unary,
    rebuilt,
)

ZERO, ONE = Number(0.0), Number(1.0)
#: By function, the derivative in each argument: of x, y, z and w. Steps have none where they are flat.
_DERIVATIVES: Mapping[str, tuple[str, ...]] = {
    "acos": ("-rsqrt(1 - x * x)",),
    "acosh": ("rsqrt(x * x - 1)",),
    "asin": ("rsqrt(1 - x * x)",),
    "asinh": ("rsqrt(x * x + 1)",),
    "atan": ("1 / (1 + x * x)",),
    "atanh": ("1 / (1 - x * x)",),
    "cbrt": ("1 / (3 * cbrt(x) * cbrt(x))",),
    "ceil": ("",),
    "cos": ("-sin(x)",),
    "cosh": ("sinh(x)",),
    "cospi": ("-3.141592653589793 * sinpi(x)",),
    "cyl_bessel_i0": ("cyl_bessel_i1(x)",),
    "cyl_bessel_i1": ("cyl_bessel_i0(x) - cyl_bessel_i1(x) / x",),
    "erf": ("1.1283791670955126 * exp(-x * x)",),
    "erfc": ("-1.1283791670955126 * exp(-x * x)",),
    "erfcinv": ("-0.886226925452758 * exp(erfcinv(x) * erfcinv(x))",),
    "erfcx": ("2 * x * erfcx(x) - 1.1283791670955126",),
    "erfinv": ("0.886226925452758 * exp(erfinv(x) * erfinv(x))",),
    "exp": ("exp(x)",),
    "exp10": ("2.302585092994046 * exp10(x)",),
    "exp2": ("0.6931471805599453 * exp2(x)",),
    "expm1": ("exp(x)",),
    "fabs": ("x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0",),
    "floor": ("",),
    "j0": ("-j1(x)",),
    "j1": ("j0(x) - j1(x) / x",),
    "log": ("1 / x",),
    "log10": ("0.4342944819032518 / x",),
    "log1p": ("1 / (1 + x)",),
    "log2": ("1.4426950408889634 / x",),
    "logb": ("",),
    "normcdf": ("0.3989422804014327 * exp(-0.5 * x * x)",),
    "normcdfinv": ("2.5066282746310002 * exp(0.5 * normcdfinv(x) * normcdfinv(x))",),
    "rcbrt": ("-rcbrt(x) / (3 * x)",),
    "round": ("",),
    "rsqrt": ("-0.5 * rsqrt(x) / x",),
    "sin": ("cos(x)",),
    "sinh": ("cosh(x)",),
    "sinpi": ("3.141592653589793 * cospi(x)",),
    "sqrt": ("0.5 * rsqrt(x)",),
    "tan": ("1 / (cos(x) * cos(x))",),
    "tanh": ("1 - tanh(x) * tanh(x)",),
    "trunc": ("",),
    "y0": ("-y1(x)",),
    "y1": ("y0(x) - y1(x) / x",),
    "atan2": ("y / (x * x + y * y)", "-x / (x * x + y * y)"),
    "copysign": ("copysign(1.0, x) * copysign(1.0, y)", ""),
    "fdim": ("x > y ? 1.0 : 0.0", "x > y ? -1.0 : 0.0"),
    "fdivide": ("1 / y", "-x / (y * y)"),
    "fmod": ("1.0", "-trunc(x / y)"),
    "hypot": ("x / hypot(x, y)", "y / hypot(x, y)"),
    "pow": ("y * pow(x, y - 1)", "x > 0 ? log(x) * pow(x, y) : 0.0"),
    "rhypot": (
        "-x * rhypot(x, y) * rhypot(x, y) * rhypot(x, y)",
        "-y * rhypot(x, y) * rhypot(x, y) * rhypot(x, y)",
    ),
    "fma": ("y", "x", "1.0"),
    "norm3d": tuple(f"{one} / norm3d(x, y, z)" for one in "xyz"),
    "norm4d": tuple(f"{one} / norm4d(x, y, z, w)" for one in "xyzw"),
    "rnorm3d": tuple(f"-{one} * rnorm3d(x, y, z) * rnorm3d(x, y, z) * rnorm3d(x, y, z)" for one in "xyz"),
    "rnorm4d": tuple(f"-{one} * rnorm4d(x, y, z, w) * rnorm4d(x, y, z, w) * rnorm4d(x, y, z, w)" for one in "xyzw"),
}
#: The smaller and the larger of two numbers: of two that are equal the first one.
_CHOOSING = {"fmax": ">=", "max": ">=", "fmin": "<=", "min": "<="}


@cache
def _template(text: str) -> Expression:
    (function,) = parse(f"def derivative(float x, float y, float z, float w) -> (r) {{ r = {text} }}")
    return function.statements[0].value


def replaced(expression: Expression, names: Mapping[str, Expression]) -> Expression:
    """An expression with names replaced by expressions.

    >>> from eqsat.language.comprehension.text.printer import print_expression
    >>> print_expression(replaced(Binary("*", Name("i"), Number(2)), {"i": Binary("+", Name("j"), Number(1))}))
    '(j + 1) * 2'
    """

    def change(one: Expression) -> Expression:
        return names.get(one.name, one) if isinstance(one, Name) else rebuilt(one, change)

    return change(expression)


def times(a: Expression, b: Expression) -> Expression:
    """A product; the second factor is read only where a condition of the first lets it through."""
    return b if a == ONE else a if b == ONE else _inside(a, lambda one: b if one == ONE else Binary("*", one, b))


def _inside(factor: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """A factor with a change of what its conditions let through; 0 stays 0."""
    if isinstance(factor, Conditional):
        return replace(factor, yes=_inside(factor.yes, change), no=_inside(factor.no, change))
    return factor if factor == ZERO else change(factor)


def _negative(factor: Expression) -> Expression:
    return _inside(factor, lambda one: Unary("-", one))


def partials(value: Expression, ranks: Mapping[str, int], where: str) -> Iterator[tuple[Applied | Name, Expression]]:
    """The elements of tensors and the scalars that a value reads, each with the derivative of the value in it.

    Where two numbers that are compared are equal, the derivative is that of one side. UsageError for a function that
    has no derivative here.
    """
    yield from _through(value, ONE, ranks, where)


def _through(
    value: Expression, factor: Expression, ranks: Mapping[str, int], where: str
) -> Iterator[tuple[Applied | Name, Expression]]:
    parts: list[tuple[Expression, Expression]] = []
    match value:
        case Name(name=name) if ranks.get(name) == 0:
            yield value, factor
        case Applied(name=name) if name in ranks:
            yield value, factor
        case Applied(name=name, arguments=arguments):
            parts = list(zip(arguments, _factors(name, arguments, factor, where), strict=True))
        case Unary(operator="-", operand=operand):
            parts = [(operand, _negative(factor))]
        case Binary(operator=("+" | "-") as operator, left=left, right=right):
            parts = [(left, factor), (right, factor if operator == "+" else _negative(factor))]
        case Binary(operator="*", left=left, right=right):
            parts = [(left, times(factor, right)), (right, times(factor, left))]
        case Binary(operator="/", left=left, right=right):
            above = _negative(times(factor, left))
            parts = [
                (left, _inside(factor, lambda one: Binary("/", one, right))),
                (right, _inside(above, lambda one: Binary("/", one, Binary("*", right, right)))),
            ]
        case Conditional(condition=condition, yes=yes, no=no):
            parts = [(yes, Conditional(condition, factor, ZERO)), (no, Conditional(condition, ZERO, factor))]
    for part, its in parts:
        if its != ZERO:
            yield from _through(part, its, ranks, where)


def _factors(name: str, arguments: tuple[Expression, ...], factor: Expression, where: str) -> list[Expression]:
    """The derivative in each argument of a function, times a factor."""
    if name in NAMED:
        return [factor if NAMED[name].is_float else ZERO]
    if name in _CHOOSING:
        first = Binary(_CHOOSING[name], arguments[0], arguments[1])
        return [Conditional(first, factor, ZERO), Conditional(first, ZERO, factor)]
    if name not in _DERIVATIVES:
        raise UsageError(f"{name} has no derivative here", where=where, expected=", ".join(sorted(_DERIVATIVES)))
    names = dict(zip("xyzw", arguments, strict=False))
    return [times(factor, replaced(_template(text), names)) if text else ZERO for text in _DERIVATIVES[name]]
