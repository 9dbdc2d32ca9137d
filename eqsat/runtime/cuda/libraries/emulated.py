"""Calls of libraries computed in NumPy: the reference where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import spec
from eqsat.language.terms.constant import Array
from eqsat.language.terms.types import DType
from eqsat.runtime.cuda.libraries.calls import Attention, Call, Convolution, Matmul, Normalisation
from eqsat.runtime.kernels.view import View

_XP = FloatNamespace()
#: Bits of a float32's mantissa that TF32 leaves out.
_TF32_DROPPED = 13


def compute(call: Call, array: Callable[[View], Array]) -> None:
    """Run a call on the arrays that `array` finds for its views, and write its result there.

    Products are summed in float64 and rounded to float32, but for operands of float64: in float32 the order of a sum,
    and with it the last digits, would be those of this processor. The result is rounded once, to its element type.
    """
    if isinstance(call, Matmul):
        made = _matmul(call, array)
    elif isinstance(call, Convolution):
        made = _convolution(call, array)
    elif isinstance(call, Attention):
        made = _attention(call, array)
    else:
        made = _normalisation(call, array)
    with np.errstate(over="ignore"):
        array(call.result)[...] = made.astype(call.result.dtype.numpy)


def tf32(x: Array) -> Array:
    """Elements of float32 rounded to TF32: 10 bits of mantissa, to nearest, ties away from zero.

    >>> tf32(np.float32([1 + 2**-11, 1 + 2**-12]))
    array([1.0009766, 1.       ], dtype=float32)
    """
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    half = np.uint32(1 << (_TF32_DROPPED - 1))
    kept = (bits + half) & np.uint32(~((1 << _TF32_DROPPED) - 1) & 0xFFFFFFFF)
    return np.where(np.isfinite(x), kept.view(np.float32), x)


def _wide(x: Array, arithmetic: str = "") -> Array:
    """The elements in the type that a library computes with."""
    if x.dtype == np.float64:
        return x
    wide = x.astype(np.float32)
    return tf32(wide) if arithmetic == "tf32" and x.dtype == np.float32 else wide


def _product(a: Array, b: Array) -> Array:
    """The product of matrices, its sums rounded once."""
    return np.asarray(np.matmul(a, b, dtype=np.float64)).astype(a.dtype)


def _matmul(call: Matmul, array: Callable[[View], Array]) -> Array:
    a, b = (_wide(array(view), call.arithmetic) for view in (call.a, call.b))
    with np.errstate(all="ignore"):
        made = _product(a, b)
        made = made * made.dtype.type(call.alpha)
        if call.bias is not None:
            made = made + _wide(array(call.bias))
    if call.epilogue.startswith("relu"):
        return np.asarray(np.maximum(made, made.dtype.type(0)))
    if call.epilogue.startswith("gelu"):
        return np.asarray(spec("gelu").reference(_XP, made, approximate="tanh"))
    return np.asarray(made)


def _convolution(call: Convolution, array: Callable[[View], Array]) -> Array:
    x, w = (_wide(array(view), call.arithmetic) for view in (call.x, call.w))
    bias = None if call.bias is None else array(call.bias).astype(np.float64)
    made = spec("conv").reference(
        _XP,
        x.astype(np.float64),
        w.astype(np.float64),
        bias,
        strides=call.strides,
        pads=call.pads,
        dilations=call.dilations,
        group=call.groups,
        activation="none",
    )
    with np.errstate(all="ignore"):
        made = made.astype(x.dtype)
        made = made if call.addend is None else made + _wide(array(call.addend))
    return np.asarray(np.maximum(made, made.dtype.type(0)) if call.relu else made)


def _normalisation(call: Normalisation, array: Callable[[View], Array]) -> Array:
    x, scale = (_wide(array(view)) for view in (call.x, call.scale))
    with np.errstate(all="ignore"):
        if call.bias is None:
            return np.asarray(spec("rms_norm").reference(_XP, x, scale, epsilon=call.epsilon))
        bias = _wide(array(call.bias))
        return np.asarray(spec("layer_norm").reference(_XP, x, scale, bias, epsilon=call.epsilon))


def _attention(call: Attention, array: Callable[[View], Array]) -> Array:
    """Scores and their softmax in float32; the weights are rounded to the element type of v before they are summed."""
    q, k, v = (_wide(array(view)) for view in (call.q, call.k, call.v))
    share = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, share, axis=1), np.repeat(v, share, axis=1)
    with np.errstate(all="ignore"):
        scores = _product(q, np.swapaxes(k, -1, -2)) * q.dtype.type(call.scale)
        kept: Any = np.ones(scores.shape, bool)
        if call.causal:
            kept = kept & np.tri(*scores.shape[-2:], dtype=np.bool_)
        if call.mask is not None and call.mask.dtype is DType.BOOL:
            kept = kept & array(call.mask)
        elif call.mask is not None:
            scores = scores + _wide(array(call.mask))
        scores = np.where(kept, scores, -np.inf)
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
        total = weights.sum(axis=-1, keepdims=True)
        weights = np.where(total > 0, weights / np.where(total > 0, total, 1), 0 * total)
    rounded = weights.astype(call.v.dtype.numpy)
    return _product(_wide(rounded), v)
