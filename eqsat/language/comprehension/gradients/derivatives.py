"""Derivatives of a value in the elements that it reads, as expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from eqsat.errors import UsageError
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.meaning.element_types import NAMED, ElementType, is_float
from eqsat.language.comprehension.meaning.typed import ElementTypes
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
    walk,
)
from eqsat.language.terms import DType

ZERO, ONE = Number(0.0), Number(1.0)
#: By function, the derivative in each argument: of x, y, z and w. Steps have none where they are flat.
_DERIVATIVES: Mapping[str, tuple[str, ...]] = {
    "acos": ("-1 / sqrt(1 - x * x)",),
    "acosh": ("1 / sqrt(x * x - 1)",),
    "asin": ("1 / sqrt(1 - x * x)",),
    "asinh": ("1 / sqrt(x * x + 1)",),
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
    "sqrt": ("0.5 / sqrt(x)",),
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
    return inside(a, lambda one: b if one == ONE else Binary("*", one, b))


def inside(factor: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """A factor with a change of what its conditions let through; 0 stays 0."""
    if isinstance(factor, Conditional):
        return replace(factor, yes=inside(factor.yes, change), no=inside(factor.no, change))
    return factor if factor == ZERO else change(factor)


def partials(value: Expression, above: Expression, types: ElementTypes) -> Iterator[tuple[Applied | Name, Expression]]:
    """The elements of tensors and the scalars that a value reads, each with its derivative times what is `above`.

    That is a float, from which all is multiplied and divided, so that no factor is one of integers. Where two numbers
    that are compared are equal, the derivative is that of one side. UsageError for a function that has no derivative
    here.
    """
    ranks = types.scope.ranks
    parts: list[tuple[Expression, Expression]] = []
    match value:
        case Name(name=name) if ranks.get(name) == 0 and name not in types.scope.sizes:
            yield value, above
        case Applied(name=name) if name in ranks:
            yield value, above
        case Applied():
            parts = list(zip(value.arguments, _factors(value, above, types), strict=True))
        case Unary(operator="-", operand=operand):
            parts = [(operand, _negative(above))]
        case Binary(operator=("+" | "-") as operator, left=left, right=right):
            parts = [(left, above), (right, above if operator == "+" else _negative(above))]
        case Binary(operator="*", left=left, right=right):
            parts = [(left, times(above, right)), (right, times(above, left))]
        case Binary(operator="/", left=left, right=right):
            parts = [(left, _over(above, right)), (right, _negative(_over(_over(times(above, left), right), right)))]
        case Conditional(condition=condition, yes=yes, no=no):
            parts = [(yes, _where(condition, above, True)), (no, _where(condition, above, False))]
    for part, its in parts:
        if its != ZERO:
            yield from partials(part, its, types)


def _negative(factor: Expression) -> Expression:
    return inside(factor, lambda one: Unary("-", one))


def _over(factor: Expression, divisor: Expression) -> Expression:
    return inside(factor, lambda one: Binary("/", one, divisor))


def _where(condition: Expression, factor: Expression, holds: bool) -> Expression:
    """A factor where a condition holds, or where it does not, which is looked at inside of those that it has."""
    return inside(factor, lambda one: Conditional(condition, *((one, ZERO) if holds else (ZERO, one))))


def _factors(call: Applied, above: Expression, types: ElementTypes) -> list[Expression]:
    """The derivative in each argument of a function, times what is above."""
    if call.name in NAMED:
        return [above if NAMED[call.name].is_float else ZERO]
    known = mathematics.function(call.name)
    name = call.name if known is None else known.name
    if name in _CHOOSING:
        first = Binary(_CHOOSING[name], call.arguments[0], call.arguments[1])
        return [_where(first, above, True), _where(first, above, False)]
    if name not in _DERIVATIVES:
        raise UsageError(
            f"{name} has no derivative here, and its value has no gradient here",
            where=types.scope.function.name,
            expected=", ".join(sorted(_DERIVATIVES)),
        )
    result = types.of(call)
    names = dict(zip("xyzw", (_as_float(one, result, types) for one in call.arguments), strict=False))
    made = []
    for text in _DERIVATIVES[name]:
        template = _template(text) if text else ZERO
        for part in walk(template):
            if isinstance(part, Applied) and part.name in types.scope.ranks:
                raise UsageError(
                    f"{name} beside a tensor called {part.name} has no gradient here",
                    where=types.scope.function.name,
                    expected="another name of the tensor",
                )
        made.append(times(above, replaced(template, names)) if text else ZERO)
    return made


def _as_float(argument: Expression, result: ElementType | None, types: ElementTypes) -> Expression:
    """An argument of a function in the type that this computes in, as templates divide."""
    given = types.of(argument)
    if isinstance(argument, Number):
        return Number(float(argument.value))
    if given is None or is_float(given) or not isinstance(result, DType):
        return argument
    return Applied(result.value, (argument,))
