"""Functions of C expressions: those that references apply by name, NumPy's own, and operators with a faster form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eqsat.language.terms.types import DType
from eqsat.runtime.kernels.expressions.expression import C_TYPES, NUMPY, Expr, convert, joined, number

Function = Callable[..., Expr]

#: Functions of one float: NumPy's names, those of references, and C's.
_OF_ANGLES = ("sin", "cos", "tan", "sinh", "cosh", "tanh")
_SAME = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "cbrt", "erf", *_OF_ANGLES)
_MATH = {name: name for name in _SAME} | {f"arc{name}": f"a{name}" for name in _OF_ANGLES}
#: Functions that leave an integer as it is.
_ROUNDING = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "rint", "round": "rint"}
_COMPARISONS = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
#: Other names of functions: in NumPy, or in the namespace of references.
_ALIASES = {
    "abs": "absolute",
    "fabs": "absolute",
    "invert": "bitwise_not",
    "bitwise_invert": "bitwise_not",
    "remainder": "mod",
    "true_divide": "divide",
    "pow": "power",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
} | {c: n for n, c in _MATH.items() if n.startswith("arc")}


def _call(name: str, *, real: bool = False, typed: bool = False) -> Function:
    """A function of C, on the element type that its operands have together: of floats alone where it is `real`.

    A `typed` one has a name of its own for float32.
    """

    def function(*values: Expr) -> Expr:
        operands = joined(*map(_float, values)) if real else joined(*values)
        dtype = operands[0].dtype
        places = ", ".join(f"{{{place}}}" for place in range(len(operands)))
        return Expr(dtype, f"{name}{'f' if typed and dtype is DType.FLOAT32 else ''}({places})", operands)

    return function


def _math(name: str) -> Function:
    return _call(name, real=True, typed=True)


def _rounding(name: str) -> Function:
    apply = _math(name)

    def function(x: Expr) -> Expr:
        return apply(x) if x.dtype.is_float else x

    return function


def _comparison(sign: str) -> Function:
    def function(a: Expr, b: Expr) -> Expr:
        return Expr(DType.BOOL, f"({{0}} {sign} {{1}})", joined(a, b))

    return function


def _arithmetic(sign: str, wrapping: str, logical: str) -> Function:
    """Sums, differences and products: of floats as in C, of integers wrapping around, of truth values as in NumPy."""

    def function(a: Expr, b: Expr) -> Expr:
        a, b = joined(a, b)
        if a.dtype.is_float:
            if sign == "*" and 1.0 in (a.value, b.value):
                return b if a.value == 1.0 else a
            return Expr(a.dtype, f"({{0}} {sign} {{1}})", (a, b))
        if a.dtype is DType.BOOL:
            if not logical:
                raise TypeError(f"{sign} of truth values")
            return Expr(a.dtype, f"({{0}} {logical} {{1}})", (a, b))
        return Expr(a.dtype, f"{wrapping}({{0}}, {{1}})", (a, b))

    return function


def _bits(sign: str, of_truth: str) -> Function:
    def function(a: Expr, b: Expr) -> Expr:
        a, b = joined(a, b)
        if a.dtype.is_float:
            raise TypeError(f"{sign} of floats")
        if a.dtype is DType.BOOL:
            if of_truth == "&&" and b.value is not None:
                return a if b.value else b
            return Expr(a.dtype, f"({{0}} {of_truth} {{1}})", (a, b))
        return Expr(a.dtype, f"({C_TYPES[a.dtype]})({{0}} {sign} {{1}})", (a, b))

    return function


def _float(x: Expr) -> Expr:
    """A float as it is; an integer as double, of which results are cut."""
    return x if x.dtype.is_float else convert(x, DType.FLOAT64)


def _truth(x: Expr) -> Expr:
    return convert(x, DType.BOOL)


def _is(template: str) -> Function:
    """A question about floats; the answer for anything else is no."""

    def function(x: Expr) -> Expr:
        return Expr(DType.BOOL, template, (x,)) if x.dtype.is_float else number(False, DType.BOOL)

    return function


def _extreme(name: str, sign: str) -> Function:
    """Maximum or minimum; beside a number, which is not NaN, one comparison says which."""

    def function(a: Expr, b: Expr) -> Expr:
        a, b = joined(a, b)
        if a.value is not None and b.value is None:
            a, b = b, a
        if b.value is not None and b.value == b.value:
            return Expr(a.dtype, f"({{0}} {sign} {{1}} ? {{1}} : {{0}})", (a, b))
        return Expr(a.dtype, f"{name}({{0}}, {{1}})", (a, b))

    return function


def _negative(x: Expr) -> Expr:
    if x.dtype is DType.BOOL:
        raise TypeError("the negative of a truth value")
    if x.value is not None and x.dtype.is_float:
        return number(-x.value, x.dtype)
    return Expr(x.dtype, "(-{0})", (x,)) if x.dtype.is_float else _DIFFERENCE(number(0, x.dtype), x)


def _absolute(x: Expr) -> Expr:
    if x.dtype is DType.BOOL:
        return x
    if x.dtype.is_float:
        return _math("fabs")(x)
    return Expr(x.dtype, "magnitude({0})", (x,))


def _divide(a: Expr, b: Expr) -> Expr:
    """Quotient as references have it; of integers, truncated toward zero."""
    a, b = joined(a, b)
    if a.dtype is DType.BOOL:
        raise TypeError("the quotient of truth values")
    if not a.dtype.is_float:
        return Expr(a.dtype, "quotient({0}, {1})", (a, b))
    if b.value is not None and _is_power_of_two(b.value):  # times the inverse, which is exact
        return Expr(a.dtype, "({0} * {1})", (a, number(1.0 / b.value, b.dtype)))
    return Expr(a.dtype, "({0} / {1})", (a, b))


def _is_power_of_two(value: float) -> bool:
    return bool(value) and math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5 and 2**-60 < abs(value) < 2**60


def _true_divide(a: Expr, b: Expr) -> Expr:
    """Quotient as NumPy has it, a float."""
    return _divide(*joined(_float(a), _float(b)))


def _power(a: Expr, b: Expr) -> Expr:
    """Power in the type of the base; a whole number as exponent may make it a product or two."""
    if b.value in (1, 2, 3) and a.dtype is not DType.BOOL:
        square = a if b.value == 1 else _PRODUCT(a, a)
        return _PRODUCT(square, a) if b.value == 3 else square
    if not a.dtype.is_float and not b.dtype.is_float:
        if a.dtype is DType.BOOL:
            raise TypeError("a power of a truth value")
        return Expr(a.dtype, "power({0}, {1})", (a, b))
    if a.dtype is DType.FLOAT32 and b.dtype is not DType.FLOAT64:
        return Expr(a.dtype, "powf({0}, {1})", (a, convert(b, a.dtype)))
    return Expr(DType.FLOAT64, "pow({0}, {1})", (convert(a, DType.FLOAT64), convert(b, DType.FLOAT64)))


def _where(condition: Expr, a: Expr, b: Expr) -> Expr:
    a, b = joined(a, b)
    if a.dtype is DType.BOOL and a.value is not None and b.value is not None and a.value != b.value:
        return _truth(condition) if a.value else NUMPY["logical_not"](condition)
    return Expr(a.dtype, "({0} ? {1} : {2})", (_truth(condition), a, b))


def _clip(x: Expr, low: Expr, high: Expr) -> Expr:
    return NUMPY["minimum"](NUMPY["maximum"](x, low), high)


def _bitwise_not(x: Expr) -> Expr:
    if x.dtype.is_float:
        raise TypeError("the bits of a float")
    return Expr(x.dtype, "(!{0})" if x.dtype is DType.BOOL else f"({C_TYPES[x.dtype]})(~{{0}})", (x,))


def _sign(x: Expr) -> Expr:
    if x.dtype is DType.BOOL:
        raise TypeError("the sign of a truth value")
    return Expr(x.dtype, "signum({0})", (x,))


_PRODUCT = _arithmetic("*", "product", "&&")
_DIFFERENCE = _arithmetic("-", "difference", "")

NUMPY |= {n: _math(c) for n, c in _MATH.items()}
NUMPY |= {n: _rounding(c) for n, c in _ROUNDING.items()}
NUMPY |= {n: _comparison(c) for n, c in _COMPARISONS.items()}
NUMPY |= {
    "add": _arithmetic("+", "sum", "||"),
    "subtract": _DIFFERENCE,
    "multiply": _PRODUCT,
    "negative": _negative,
    "positive": lambda x: x,
    "absolute": _absolute,
    "sign": _sign,
    "square": lambda x: _PRODUCT(x, x),
    "reciprocal": lambda x: _true_divide(number(1.0, _float(x).dtype), x),
    "divide": _true_divide,
    "power": _power,
    "mod": _call("remainder_of"),
    "fmod": _call("cut_remainder"),
    "maximum": _extreme("maximum", "<="),
    "minimum": _extreme("minimum", ">="),
    "arctan2": _math("atan2"),
    "hypot": _math("hypot"),
    "copysign": _math("copysign"),
    "where": _where,
    "clip": _clip,
    "isnan": _is("({0} != {0})"),
    "isinf": _is("({0} == INFINITY || {0} == -INFINITY)"),
    "isposinf": _is("({0} == INFINITY)"),
    "isneginf": _is("({0} == -INFINITY)"),
    "logical_and": lambda a, b: Expr(DType.BOOL, "({0} && {1})", (_truth(a), _truth(b))),
    "logical_or": lambda a, b: Expr(DType.BOOL, "({0} || {1})", (_truth(a), _truth(b))),
    "logical_xor": lambda a, b: Expr(DType.BOOL, "({0} != {1})", (_truth(a), _truth(b))),
    "logical_not": lambda x: Expr(DType.BOOL, "(!{0})", (_truth(x),)),
    "bitwise_and": _bits("&", "&&"),
    "bitwise_or": _bits("|", "||"),
    "bitwise_xor": _bits("^", "!="),
    "bitwise_not": _bitwise_not,
    "left_shift": _call("left_shift"),
    "right_shift": _call("right_shift"),
}
NUMPY |= {name: NUMPY[known] for name, known in _ALIASES.items()}

#: Functions by the names that references ask for: NumPy's, but for those that references have another meaning for.
FUNCTIONS: Mapping[str, Function] = {
    **NUMPY,
    "divide": _divide,
    "sigmoid": _call("sigmoid", real=True),
    "softplus": _call("softplus", real=True),
}


def _gelu(xp: Any, x: Expr, *, approximate: str) -> Expr:
    """Half of x times (1 + erf(x / √2)), with products in place of divisions."""
    half, one = number(0.5, x.dtype), number(1.0, x.dtype)
    if approximate == "none":
        inner = xp.apply("erf", xp.multiply(x, number(1.0 / _float32(math.sqrt(2.0)), x.dtype)))
    else:
        slope = _float32(math.sqrt(2.0 / math.pi))
        cubic = number(slope * _float32(0.044715), x.dtype)
        factor = xp.add(number(slope, x.dtype), xp.multiply(cubic, xp.multiply(x, x)))
        inner = xp.apply("tanh", xp.multiply(x, factor))
    return _PRODUCT(_PRODUCT(half, x), xp.add(one, inner))


def _float32(value: float) -> float:
    """The nearest number that float32 holds, as the reference has it."""
    return float(np.float32(value))


def _hard_swish(xp: Any, x: Expr) -> Expr:
    line = xp.add(xp.multiply(x, number(np.float64(1) / 6, x.dtype)), number(0.5, x.dtype))
    clipped: Expr = xp.maximum(number(0.0, x.dtype), xp.minimum(number(1.0, x.dtype), line))
    return _PRODUCT(x, clipped)


#: References of operators for which arithmetic of another order is faster, or closer to the truth.
SPECIAL: Mapping[str, Callable[..., Any]] = {"gelu": _gelu, "hard_swish": _hard_swish}
