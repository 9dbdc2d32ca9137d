"""Sums, products and their common factors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, mul

from benchmarks.expert.case import Maker, Pair, Tensor, case
from eqsat import clip, exp, log, maximum, minimum, relu, sigmoid, sqrt, tanh, where

_GROUP = "factoring"
_SHAPE = (256, 1024)
_ALGEBRA = "high-school algebra; GCC's match.pd and LLVM's reassociate do this for scalars"


def _register(name: str, count: int, make: Callable[..., tuple[Tensor, Tensor]], source: str = _ALGEBRA) -> None:
    @case(_GROUP, name, source)
    def _(m: Maker) -> Pair:
        return make(*(m.x(*_SHAPE) for _ in range(count)))


def _horner(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    value = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        value = value * x + coefficient
    return value


def _powers(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    terms = [x * coefficients[1] + coefficients[0]]
    power = x
    for coefficient in coefficients[2:]:
        power = power * x
        terms.append(power * coefficient)
    return reduce(add, terms)


def _library_powers(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    terms = [x * coefficients[1] + coefficients[0]]
    terms += [(x ** float(n + 2)) * c for n, c in enumerate(coefficients[2:])]
    return reduce(add, terms)


_SERIES = (0.5, -1.25, 0.75, 2.0, -0.375, 1.5, 0.25, -0.625, 1.125)

_register("a b + a c", 3, lambda a, b, c: (a * b + a * c, a * (b + c)))
_register("a b - a c", 3, lambda a, b, c: (a * b - a * c, a * (b - c)))
_register("b a + a c", 3, lambda a, b, c: (b * a + a * c, a * (b + c)))
_register("a b c + a b d", 4, lambda a, b, c, d: ((a * b) * c + (a * b) * d, (a * b) * (c + d)))
_register("a (b c) + d (a e)", 5, lambda a, b, c, d, e: (a * (b * c) + d * (a * e), a * (b * c + d * e)))
_register("four terms with one factor", 5, lambda a, *t: (reduce(add, [a * x for x in t]), a * reduce(add, t)))
_register("eight terms with one factor", 9, lambda a, *t: (reduce(add, [a * x for x in t]), a * reduce(add, t)))
_register("sixteen terms with one factor", 17, lambda a, *t: (reduce(add, [a * x for x in t]), a * reduce(add, t)))
_register(
    "terms with one factor, others between",
    6,
    lambda a, b, c, d, e, f: (((a * b + d) + a * c) + (e + a * f), a * ((b + c) + f) + (d + e)),
)
_register(
    "two factors by turns",
    5,
    lambda a, b, c, d, e: (((a * c + b * d) + a * d) + b * c + e, (a + b) * (c + d) + e),
)
_register("(a + b) (a + b) spelled out", 2, lambda a, b: (a * a + 2.0 * (a * b) + b * b, (a + b) * (a + b)))
_register("difference of squares", 2, lambda a, b: (a * a - b * b, (a + b) * (a - b)))
_register("gate spelled f t + (1 - f) c", 3, lambda f, t, c: (f * t + (1.0 - f) * c, c + f * (t - c)))
_register("gate spelled t - f t + f c", 3, lambda f, t, c: ((t - f * t) + f * c, t + f * (c - t)))
_register("quotients of one divisor", 3, lambda a, b, c: (a / c + b / c, (a + b) / c))
_register("quotient of a quotient", 3, lambda a, b, c: ((a / b) / c, a / (b * c)))
_register("multiplied and divided again", 3, lambda a, b, c: (((a * 4.0) * c) / 4.0 + b, a * c + b))
_register("x + x + x + x", 1, lambda x: (((x + x) + x) + x, x * 4.0))
_register("eight times one operand", 2, lambda x, y: (reduce(add, [x] * 8) + y, x * 8.0 + y))
_register("x + 2 x + y", 2, lambda x, y: ((x + x * 2.0) + y, x * 3.0 + y))
_register("constants apart in a sum", 2, lambda x, y: (((x + 1.0) + y) + 2.0, (x + y) + 3.0))
_register("constants apart in a product", 2, lambda x, y: (((x * 3.0) * y) * 0.5, (x * y) * 1.5))
_register("constants apart in both", 2, lambda x, y: ((x * 2.0 + 1.0) * 3.0 + (y * 2.0) * 3.0, (x + y) * 6.0 + 3.0))
_register("added and taken away", 3, lambda a, b, c: (((a + b) + c) - b, a + c))
_register("a - (a - b)", 2, lambda a, b: (relu(a - (a - b)), relu(b)))
_register("taken away, in a long sum", 5, lambda a, b, c, d, e: ((((a + b) + c) + d) - ((b + d) + e), (a + c) - e))
_register("signs that cancel", 3, lambda a, b, c: (-((-a) * b) - ((-c) * (-b)), (a - c) * b))
_register("negative of a difference", 2, lambda a, b: (relu(-(a - b)), relu(b - a)))
_register("polynomial of degree 2", 1, lambda x: (_powers(x, _SERIES[:3]), _horner(x, _SERIES[:3])), "Horner")
_register("polynomial of degree 3", 1, lambda x: (_powers(x, _SERIES[:4]), _horner(x, _SERIES[:4])), "Horner")
_register("polynomial of degree 5", 1, lambda x: (_powers(x, _SERIES[:6]), _horner(x, _SERIES[:6])), "Horner")
_register("polynomial of degree 8", 1, lambda x: (_powers(x, _SERIES), _horner(x, _SERIES)), "Horner")
_register("cube and square by pow", 1, lambda x: (_library_powers(x, _SERIES[:4]), _horner(x, _SERIES[:4])), "Horner")
_register("degree 5 by pow", 1, lambda x: (_library_powers(x, _SERIES[:6]), _horner(x, _SERIES[:6])), "Horner")
_register("fourth power", 1, lambda x: (((x * x) * x) * x, (x * x) * (x * x)))
_register("eighth power by products", 1, lambda x: (reduce(mul, [x] * 8), _squared(_squared(_squared(x)))))
_register("product of exponentials", 2, lambda a, b: (exp(a) * exp(b), exp(a + b)))
_register("quotient of exponentials", 2, lambda a, b: (exp(a) / exp(b), exp(a - b)))
_register("logarithm of a product of exponentials", 2, lambda a, b: (log(exp(a) * exp(b)), a + b))
_register("square root of a square", 1, lambda x: (sqrt(x * x), abs(x)))
_register("larger plus smaller", 2, lambda a, b: (maximum(a, b) + minimum(a, b), a + b))
_register("larger times smaller", 2, lambda a, b: (maximum(a, b) * minimum(a, b), a * b))
_register("sum of clips", 1, lambda x: (clip(clip(x, -2.0, 2.0), -1.0, 3.0), clip(x, -1.0, 2.0)))
_register("nested maxima of constants", 1, lambda x: (maximum(maximum(x, 0.5), 1.5), maximum(x, 1.5)))
_register("chosen sums", 4, lambda a, b, c, s: (where(s > 0.0, a + c, b + c), where(s > 0.0, a, b) + c))
_register("chosen twice", 4, lambda a, b, c, s: (where(s > 0.0, where(s > 0.0, a, b), c), where(s > 0.0, a, c)))
_register("factor of two sigmoids", 3, lambda a, b, g: (sigmoid(g) * a + sigmoid(g) * b, sigmoid(g) * (a + b)))
_register("one minus a sigmoid", 2, lambda x, y: ((1.0 - sigmoid(x)) * y, sigmoid(-x) * y))


def _squared(x: Tensor) -> Tensor:
    return x * x


@case(_GROUP, "common factor of products of matrices", _ALGEBRA)
def _(m: Maker) -> Pair:
    x, y, w = m.x(256, 512), m.x(256, 512), m.x(512, 512)
    return x @ w + y @ w, (x + y) @ w


@case(_GROUP, "four products of matrices with one factor", _ALGEBRA)
def _(m: Maker) -> Pair:
    x, w = [m.x(128, 256) for _ in range(4)], m.x(256, 256)
    return reduce(add, [one @ w for one in x]), reduce(add, x) @ w


@case(_GROUP, "product of sums of matrices spelled out", _ALGEBRA)
def _(m: Maker) -> Pair:
    a, b, c, d = m.x(256, 256), m.x(256, 256), m.x(256, 256), m.x(256, 256)
    return ((a @ c + a @ d) + b @ c) + b @ d, (a + b) @ (c + d)


@case(_GROUP, "scales of two products", _ALGEBRA)
def _(m: Maker) -> Pair:
    x, a, b = m.x(256, 256), m.x(256, 256), m.x(256, 256)
    return (x @ a) * 0.5 + (x @ b) * 0.5, x @ ((a + b) * 0.5)


@case(_GROUP, "factor that is broadcast", _ALGEBRA)
def _(m: Maker) -> Pair:
    x, y, s = m.x(*_SHAPE), m.x(*_SHAPE), m.x(256, 1)
    return tanh(x * s + y * s), tanh((x + y) * s)


@case(_GROUP, "factors that are broadcast, first with each other", _ALGEBRA)
def _(m: Maker) -> Pair:
    x, s, t = m.x(*_SHAPE), m.x(256, 1), m.x(256, 1)
    return (x * s) * t, x * (s * t)


@case(_GROUP, "two addends that are broadcast", _ALGEBRA)
def _(m: Maker) -> Pair:
    x, s, t = m.x(*_SHAPE), m.x(1, 1024), m.x(1, 1024)
    return (x + s) + t, x + (s + t)
