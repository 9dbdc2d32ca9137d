"""Functions of one variable, applied to each element."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import (
    InferRule,
    Operands,
    OpSpec,
    Sample,
    op,
    present,
    refuse_integers,
    same_dtype,
    symbolic,
)
from eqsat.language.declaration.spec import Reference, same_as
from eqsat.language.ops import sampling
from eqsat.language.ops.elementwise import broadcasts_to, pointwise
from eqsat.language.terms import Attrs, DType, Shape, TensorType

#: The shape rule of functions of numbers of any type.
_SAME = same_as()


def unary(onnx: str, infer: InferRule = _SAME, **facts: Any) -> Callable[[Reference], OpSpec]:
    """Declare a function of one variable, applied to each element."""
    return pointwise(onnx, infer, **facts)


def _floats(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    """The type of the operand, which holds floats."""
    x = present(operands, 0)
    refuse_integers(x)
    return (x,)


def _function(name: str, onnx: str, doc: str, **facts: Any) -> OpSpec:
    """The operator that applies a function by its NumPy name."""

    def reference(xp: Any, x: Any) -> Any:
        return xp.apply(name, x)

    reference.__doc__ = doc
    return unary(onnx, name=name, **facts)(reference)


abs_ = _function("abs", "Abs", "Absolute value.", hides_sign=True, on_dims=symbolic.absolute)
exp = _function(
    "exp", "Exp", "Exponential.", partial=True, monotone=True, instances=({},), sensitive=True, hides_sign=True
)
log = _function("log", "Log", "Natural logarithm.", partial=True, sensitive=True, hides_sign=True)
sqrt = _function("sqrt", "Sqrt", "Square root.", partial=True, sensitive=True)
erf = _function("erf", "Erf", "Gauss error function.", monotone=True)
sin = _function("sin", "Sin", "Sine of radians.")
cos = _function("cos", "Cos", "Cosine of radians.", hides_sign=True)
tan = _function("tan", "Tan", "Tangent of radians.", partial=True, sensitive=True)
asin = _function("asin", "Asin", "Inverse sine.", partial=True)
acos = _function("acos", "Acos", "Inverse cosine.", partial=True, hides_sign=True)
atan = _function("atan", "Atan", "Inverse tangent.", monotone=True)
sinh = _function("sinh", "Sinh", "Hyperbolic sine.", partial=True, monotone=True, sensitive=True)
cosh = _function("cosh", "Cosh", "Hyperbolic cosine.", partial=True, sensitive=True, hides_sign=True)
tanh = _function("tanh", "Tanh", "Hyperbolic tangent.", monotone=True, instances=({},))
asinh = _function("asinh", "Asinh", "Inverse hyperbolic sine.", monotone=True, sensitive=True)
acosh = _function("acosh", "Acosh", "Inverse hyperbolic cosine.", partial=True, sensitive=True, hides_sign=True)
atanh = _function("atanh", "Atanh", "Inverse hyperbolic tangent.", partial=True, sensitive=True)
sigmoid = _function(
    "sigmoid", "Sigmoid", "Logistic function, 1 / (1 + exp(-x)).", monotone=True, instances=({},), hides_sign=True
)
floor = _function("floor", "Floor", "The largest integer that is not above.", monotone=True)
ceil = _function("ceil", "Ceil", "The smallest integer that is not below.", monotone=True)
round_ = _function("round", "Round", "The nearest integer, halves to the even one.", monotone=True)
sign = _function("sign", "Sign", "-1, 0 or 1.", monotone=True)


@unary("Neg", multilinear=(0,), instances=({},), on_dims=symbolic.negative)
def neg(xp: Any, x: Any) -> Any:
    """Negation."""
    return xp.negative(x)


@unary("Reciprocal", partial=True, sensitive=True)
def reciprocal(xp: Any, x: Any) -> Any:
    """1 / x."""
    return xp.divide(xp.number(1.0, x), x)


@unary("Relu", monotone=True, clamps=True, instances=({},), on_dims=symbolic.relu)
def relu(xp: Any, x: Any) -> Any:
    """max(x, 0)."""
    return xp.maximum(x, xp.number(0.0, x))


def _boolean(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    return (TensorType(DType.BOOL, present(operands, 0).shape),)


@pointwise("IsNaN", _boolean, hides_sign=True, asks_finite=True)
def isnan(xp: Any, x: Any) -> Any:
    """True where the element is NaN, which alone differs from itself."""
    return xp.where(xp.equal(x, x), False, True)


@pointwise("IsInf", _boolean, hides_sign=True, asks_finite=True)
def isinf(xp: Any, x: Any, *, detect_negative: bool = True, detect_positive: bool = True) -> Any:
    """True where the element is an infinity of a sign asked for; there is none among exact numbers."""
    if xp.exact:
        return xp.less(x, x)  # no real number is infinite, or less than itself
    return (np.isneginf(x) & detect_negative) | (np.isposinf(x) & detect_positive)


def _prelu_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x, slope = present(operands, 0), present(operands, 1)
    same_dtype([x, slope])
    if x.shape is not None and slope.shape is not None and not broadcasts_to(slope.shape, x.shape):
        raise ShapeError(f"slope {slope} for {x}", expected="a slope that broadcasts to the shape of the input")
    return (x,)


def _prelu_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    x, slope = known
    if x is None:
        x = sampling.shape(rng) if slope is None else tuple(sampling.dim(rng) if d == 1 else d for d in slope)
    return [x, slope if slope is not None else sampling.broadcastable(rng, x)], attrs


@op(infer=_prelu_type, sample=_prelu_sample, pointwise=True, onnx="PRelu")
def prelu(xp: Any, x: Any, slope: Any) -> Any:
    """The operand x, times `slope` where negative."""
    return xp.where(xp.less(x, xp.number(0.0, x)), xp.multiply(x, slope), x)


@unary("LeakyRelu")
def leaky_relu(xp: Any, x: Any, *, alpha: float = 0.01) -> Any:
    """The operand x, times `alpha` where negative."""
    return xp.where(xp.less(x, xp.number(0.0, x)), xp.multiply(x, xp.number(alpha, x)), x)


def _exp_minus_one(xp: Any, x: Any) -> Any:
    """exp(x) - 1 of the negative part, which cannot overflow."""
    return xp.subtract(xp.apply("exp", xp.minimum(x, xp.number(0.0, x))), xp.number(1.0, x))


@unary("Elu", sensitive=True)
def elu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """The operand x, or alpha · (exp(x) - 1) where negative."""
    return xp.where(xp.less(x, xp.number(0.0, x)), xp.multiply(xp.number(alpha, x), _exp_minus_one(xp, x)), x)


@unary("Celu", sensitive=True)
def celu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """max(x, 0) + min(0, alpha · (exp(x / alpha) - 1))."""
    zero, scale = xp.number(0.0, x), xp.number(alpha, x)
    # Of x > 0 the second part is 0 whatever the sign of alpha is; held at 0 there, exp cannot overflow.
    part = xp.divide(xp.minimum(x, zero), scale)
    curve = xp.multiply(scale, xp.subtract(xp.apply("exp", part), xp.number(1.0, x)))
    return xp.add(xp.maximum(x, zero), xp.minimum(zero, curve))


@unary("Selu", sensitive=True)
def selu(xp: Any, x: Any, *, alpha: float = 1.6732631921768188, gamma: float = 1.0507010221481323) -> Any:
    """Scaled, gamma · x, or gamma · alpha · (exp(x) - 1) where not positive."""
    curve = xp.multiply(xp.number(alpha, x), _exp_minus_one(xp, x))
    return xp.multiply(xp.number(gamma, x), xp.where(xp.less(xp.number(0.0, x), x), x, curve))


@unary("HardSigmoid", _floats, hides_sign=True)
def hard_sigmoid(xp: Any, x: Any, *, alpha: float = 0.2, beta: float = 0.5) -> Any:
    """max(0, min(1, alpha · x + beta))."""
    line = xp.add(xp.multiply(xp.number(alpha, x), x), xp.number(beta, x))
    return xp.maximum(xp.number(0.0, x), xp.minimum(xp.number(1.0, x), line))


@unary("HardSwish")
def hard_swish(xp: Any, x: Any) -> Any:
    """Product x · max(0, min(1, x / 6 + 1/2))."""
    line = xp.add(xp.divide(x, xp.number(6.0, x)), xp.number(0.5, x))
    return xp.multiply(x, xp.maximum(xp.number(0.0, x), xp.minimum(xp.number(1.0, x), line)))


@unary("Softplus", sensitive=True, hides_sign=True)
def softplus(xp: Any, x: Any) -> Any:
    """Natural log(1 + exp(x)), in floats without overflow."""
    if not xp.exact:
        return xp.apply("softplus", x)
    return xp.apply("log", xp.add(xp.number(1.0, x), xp.apply("exp", x)))


@unary("Softsign")
def softsign(xp: Any, x: Any) -> Any:
    """Quotient x / (1 + |x|)."""
    return xp.divide(x, xp.add(xp.number(1.0, x), xp.apply("abs", x)))


@unary("Mish", sensitive=True)
def mish(xp: Any, x: Any) -> Any:
    """Product x · tanh(softplus(x))."""
    return xp.multiply(x, xp.apply("tanh", softplus.reference(xp, x)))


@unary("ThresholdedRelu", _floats)
def thresholded_relu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """The operand x where above `alpha`, else 0."""
    return xp.where(xp.less(xp.number(alpha, x), x), x, xp.number(0.0, x))


@unary("Shrink")
def shrink(xp: Any, x: Any, *, bias: float = 0.0, lambd: float = 0.5) -> Any:
    """Shrunk toward 0: x + bias below -lambd, x - bias above lambd, 0 between."""
    offset = xp.number(bias, x)
    above = xp.where(xp.less(xp.number(lambd, x), x), xp.subtract(x, offset), xp.number(0.0, x))
    return xp.where(xp.less(x, xp.number(-lambd, x)), xp.add(x, offset), above)


@unary("Gelu", _floats)
def gelu(xp: Any, x: Any, *, approximate: str = "none") -> Any:
    """Gaussian error linear unit, x / 2 · (1 + erf(x / √2)), or its approximation by "tanh"."""
    # The constants are those that float32 holds, as exporters write them, so that recognised parts agree exactly.
    half, one = xp.number(0.5, x), xp.number(1.0, x)
    if approximate == "none":
        inner = xp.apply("erf", xp.divide(x, xp.number(_float32(math.sqrt(2.0)), x)))
    else:
        cube = xp.multiply(x, xp.multiply(x, x))
        sum_ = xp.add(x, xp.multiply(xp.number(_float32(0.044715), x), cube))
        inner = xp.apply("tanh", xp.multiply(xp.number(_float32(math.sqrt(2.0 / math.pi)), x), sum_))
    return xp.multiply(xp.multiply(half, x), xp.add(one, inner))


def _float32(value: float) -> float:
    return float(np.float32(value))


@unary("Swish")
def silu(xp: Any, x: Any, *, alpha: float = 1.0) -> Any:
    """Product x · sigmoid(alpha · x)."""
    return xp.multiply(x, xp.apply("sigmoid", x if alpha == 1.0 else xp.multiply(xp.number(alpha, x), x)))
