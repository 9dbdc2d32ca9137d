"""Normalisations as frameworks spell them, and as one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.expert.case import Maker, Pair, Tensor, case
from eqsat import (
    batch_norm,
    conv,
    global_avg_pool,
    group_norm,
    instance_norm,
    layer_norm,
    lp_norm,
    reciprocal,
    reduce_l2,
    reduce_mean,
    reduce_sum,
    reduce_sum_square,
    rms_norm,
    softmax,
    sqrt,
)

_GROUP = "spellings"
_EPS = 1e-5
_WIDTH = 512


def _mean(x: Tensor) -> Tensor:
    return reduce_mean(x, x.rank - 1, keepdims=True)


def _sum(x: Tensor) -> Tensor:
    return reduce_sum(x, x.rank - 1, keepdims=True)


def _layer(name: str, source: str, make: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
    @case(_GROUP, f"layer norm: {name}", source)
    def _(m: Maker) -> Pair:
        x, g, b = m.x(4, 128, _WIDTH), m.w(_WIDTH), m.w(_WIDTH)
        return make(x, g, b), layer_norm(x, g, b, axis=-1, epsilon=_EPS)


def _rms(name: str, source: str, make: Callable[[Tensor, Tensor], Tensor]) -> None:
    @case(_GROUP, f"root mean square: {name}", source)
    def _(m: Maker) -> Pair:
        x, g = m.x(4, 128, _WIDTH), m.w(_WIDTH)
        return make(x, g), rms_norm(x, g, axis=-1, epsilon=_EPS)


def _from_moments(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    mean = _mean(x)
    variance = _mean(x * x) - mean * mean
    return (x - mean) / sqrt(variance + _EPS) * g + b


def _folded_shift(x: Tensor, g: Tensor, b: Tensor) -> Tensor:
    mean = _mean(x)
    factor = g / sqrt(_mean((x - mean) * (x - mean)) + _EPS)
    return x * factor + (b - mean * factor)


_layer(
    "by pow and division",
    "torch exports before opset 17",
    lambda x, g, b: (x - _mean(x)) / sqrt(_mean((x - _mean(x)) ** 2.0) + _EPS) * g + b,
)
_layer(
    "by a product and the reciprocal root",
    "TensorFlow exports",
    lambda x, g, b: (x - _mean(x)) * reciprocal(sqrt(_mean((x - _mean(x)) * (x - _mean(x))) + _EPS)) * g + b,
)
_layer(
    "by pow of minus a half",
    "JAX exports",
    lambda x, g, b: (x - _mean(x)) * ((_mean((x - _mean(x)) ** 2.0) + _EPS) ** -0.5) * g + b,
)
_layer(
    "by pow of a half",
    "Keras exports",
    lambda x, g, b: (x - _mean(x)) / ((_mean((x - _mean(x)) ** 2.0) + _EPS) ** 0.5) * g + b,
)
_layer("by moments", "Caffe2", _from_moments)
_layer("with the shift folded", "TensorFlow: batch_normalization", _folded_shift)
_layer(
    "scale first", "MXNet exports", lambda x, g, b: g * ((x - _mean(x)) / sqrt(_mean((x - _mean(x)) ** 2.0) + _EPS)) + b
)
_layer(
    "sums divided by the width",
    "hand-written",
    lambda x, g, b: (x - _sum(x) / _WIDTH) / sqrt(_sum((x - _sum(x) / _WIDTH) ** 2.0) / _WIDTH + _EPS) * g + b,
)
_layer(
    "scale and reciprocal root first",
    "TensorFlow exports",
    lambda x, g, b: (x - _mean(x)) * (g * reciprocal(sqrt(_mean((x - _mean(x)) ** 2.0) + _EPS))) + b,
)

_rms("by pow and the reciprocal root", "Llama exports", lambda x, g: x * reciprocal(sqrt(_mean(x**2.0) + _EPS)) * g)
_rms("by division", "T5 exports", lambda x, g: x / sqrt(_mean(x * x) + _EPS) * g)
_rms("scale first", "Hugging Face: weight * hidden", lambda x, g: g * (x / sqrt(_mean(x * x) + _EPS)))
_rms("by pow of minus a half", "JAX exports", lambda x, g: x * ((_mean(x * x) + _EPS) ** -0.5) * g)
_rms("one over the root", "torch: rsqrt exported", lambda x, g: (x * (1.0 / sqrt(_mean(x**2.0) + _EPS))) * g)
_rms(
    "sum of squares divided", "hand-written", lambda x, g: x / sqrt(reduce_sum_square(x, axes=(2,)) / _WIDTH + _EPS) * g
)
_rms("by the norm", "hand-written", lambda x, g: x / sqrt(reduce_l2(x, axes=(2,)) ** 2.0 / _WIDTH + _EPS) * g)


@case(_GROUP, "layer norm without a scale, then a scale", "diffusion transformers")
def _(m: Maker) -> Pair:
    x, g, b = m.x(4, 128, _WIDTH), m.w(_WIDTH), m.w(_WIDTH)
    ones, zeros = m.c(np.ones(_WIDTH)), m.c(np.zeros(_WIDTH))
    return layer_norm(x, ones, zeros, axis=-1) * g + b, layer_norm(x, g, b, axis=-1)


@case(_GROUP, "scale of a layer norm folded into a product", "SmoothQuant, ICML 2023")
def _(m: Maker) -> Pair:
    x, g, w = m.x(4, 128, _WIDTH), m.array(_WIDTH), m.array(_WIDTH, _WIDTH)
    normed = (x - _mean(x)) / sqrt(_mean((x - _mean(x)) ** 2.0) + _EPS)
    ones = m.c(np.ones(_WIDTH))
    return (normed * m.c(g)) @ m.c(w), layer_norm(x, ones, axis=-1) @ m.c(g[:, None] * w)


def _spatial(x: Tensor, g: Tensor, b: Tensor, axes: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    centred = x - reduce_mean(x, axes, keepdims=True)
    return centred / sqrt(reduce_mean(centred * centred, axes, keepdims=True) + _EPS) * g.reshape(*shape) + b.reshape(
        *shape
    )


@case(_GROUP, "instance norm by means", "style transfer exports")
def _(m: Maker) -> Pair:
    x, g, b = m.x(2, 32, 64, 64), m.w(32), m.w(32)
    return _spatial(x, g, b, (2, 3), (32, 1, 1)), instance_norm(x, g, b, epsilon=_EPS)


@case(_GROUP, "group norm by a reshape and instance norm", "torch exports")
def _(m: Maker) -> Pair:
    x, g, b = m.x(2, 32, 64, 64), m.w(32), m.w(32)
    normed = instance_norm(x.reshape(2, 8, 16384), m.c(np.ones(8)), m.c(np.zeros(8)), epsilon=_EPS)
    given = normed.reshape(2, 32, 64, 64) * g.reshape(32, 1, 1) + b.reshape(32, 1, 1)
    return given, group_norm(x, g, b, groups=8, epsilon=_EPS)


@case(_GROUP, "group norm by means", "JAX exports")
def _(m: Maker) -> Pair:
    x, g, b = m.x(2, 32, 64, 64), m.w(32), m.w(32)
    grouped = x.reshape(2, 8, 16384)
    centred = grouped - _mean(grouped)
    normed = (centred / sqrt(_mean(centred * centred) + _EPS)).reshape(2, 32, 64, 64)
    return normed * g.reshape(32, 1, 1) + b.reshape(32, 1, 1), group_norm(x, g, b, groups=8, epsilon=_EPS)


def _affine(m: Maker) -> tuple[Any, ...]:
    return m.array(32), m.array(32), m.array(32), np.square(m.array(32)) + 1


@case(_GROUP, "batch norm by constants", "TensorFlow exports")
def _(m: Maker) -> Pair:
    x = m.x(2, 32, 64, 64)
    g, b, mean, var = _affine(m)
    factor = g / np.sqrt(var + _EPS)
    column = (32, 1, 1)
    given = (x - m.c(mean.reshape(column))) / sqrt(m.c(var.reshape(column)) + _EPS) * m.c(g.reshape(column))
    given = given + m.c(b.reshape(column))
    return given, x * m.c(factor.reshape(column)) + m.c((b - mean * factor).reshape(column))


@case(_GROUP, "batch norm before a convolution of 1 x 1", "DenseNet: pre-activation")
def _(m: Maker) -> Pair:
    x, w = m.x(2, 32, 64, 64), m.array(32, 32, 1, 1)
    g, b, mean, var = _affine(m)
    factor = g / np.sqrt(var + _EPS)
    given = conv(batch_norm(x, *(m.c(one) for one in (g, b, mean, var)), epsilon=_EPS), m.c(w))
    bias = w[:, :, 0, 0] @ (b - mean * factor)
    return given, conv(x, m.c(w * factor[None, :, None, None]), m.c(bias))


@case(_GROUP, "batch norm behind a linear layer", "MLP exports")
def _(m: Maker) -> Pair:
    x, w = m.x(256, 32), m.array(32, 32)
    g, b, mean, var = _affine(m)
    factor = g / np.sqrt(var + _EPS)
    given = batch_norm(x @ m.c(w), *(m.c(one) for one in (g, b, mean, var)), epsilon=_EPS)
    return given, x @ m.c(w * factor) + m.c(b - mean * factor)


@case(_GROUP, "rows of length one, by the root of the sum of squares", "CLIP exports")
def _(m: Maker) -> Pair:
    x = m.x(512, 512)
    return x / sqrt(_sum(x * x)), lp_norm(x, axis=-1, p=2)


@case(_GROUP, "rows of length one, by the norm", "CLIP exports")
def _(m: Maker) -> Pair:
    x = m.x(512, 512)
    return x / reduce_l2(x, axes=(1,)), lp_norm(x, axis=-1, p=2)


@case(_GROUP, "global mean by a sum", "Keras exports")
def _(m: Maker) -> Pair:
    x = m.x(8, 64, 28, 28)
    return reduce_sum(x, [2, 3], keepdims=True) / 784.0, global_avg_pool(x)


@case(_GROUP, "mean of means", "Keras exports")
def _(m: Maker) -> Pair:
    x = m.x(8, 64, 28, 28)
    return reduce_mean(reduce_mean(x, 3, keepdims=True), 2, keepdims=True), reduce_mean(x, [2, 3], keepdims=True)


@case(_GROUP, "sum of squares by parts", "hand-written")
def _(m: Maker) -> Pair:
    x = m.x(512, 512)
    return reduce_sum(x**2.0, 1), reduce_sum_square(x, axes=(1,), keepdims=False)


@case(_GROUP, "norm by parts", "hand-written")
def _(m: Maker) -> Pair:
    x = m.x(512, 512)
    return sqrt(reduce_sum(x * x, 1)), reduce_l2(x, axes=(1,), keepdims=False)


@case(_GROUP, "softmax over the transposed axis", "hand-written")
def _(m: Maker) -> Pair:
    x = m.x(8, 128, 64)
    return softmax(x.transpose(0, 2, 1), axis=1).transpose(0, 2, 1), softmax(x, axis=2)
