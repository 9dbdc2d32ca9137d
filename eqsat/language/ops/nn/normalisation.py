"""Softmax, normalisations and attention, composed of the arithmetic that defines them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import InferRule, Operands, Sample, SampleRule, op, present, refuse_integers
from eqsat.language.ops import sampling
from eqsat.language.ops.elementwise import broadcasts_to
from eqsat.language.ops.movement import axis_of
from eqsat.language.ops.operands import demands, enumeration
from eqsat.language.ops.reduce import first_extreme, flops_per_input, mean
from eqsat.language.terms import Attrs, Shape, TensorType


def _along_axis(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    if x.shape is not None:
        axis_of(x, attrs["axis"])
    return (x,)


_AXIS_SAMPLE = sampling.one_operand(axis=sampling.axis)


#: Shares of a whole along an axis.
_shares = partial(
    op,
    infer=_along_axis,
    flops=flops_per_input(8),
    sample=_AXIS_SAMPLE,
    index="...{axis} -> ...{axis}",
    accumulates=True,
    sensitive=True,
    rowwise=True,
    hides_sign=True,
    total="static",
)


@_shares(onnx="Softmax", instances=({"axis": 0}, {"axis": 1}))
def softmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    """exp(x) / sum of exp(x) along an axis; floats are shifted by their maximum, so as not to overflow."""
    if not xp.exact:
        with np.errstate(invalid="ignore"):
            x = xp.subtract(x, xp.max(x, axis=(axis,), keepdims=True))
    weights = xp.apply("exp", x)
    return xp.divide(weights, xp.sum(weights, axis=(axis,), keepdims=True))


@_shares(onnx="LogSoftmax")
def log_softmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    """Logarithm of the softmax, in floats without the detour."""
    if xp.exact:
        return xp.apply("log", softmax.reference(xp, x, axis=axis))
    with np.errstate(invalid="ignore"):
        x = xp.subtract(x, xp.max(x, axis=(axis,), keepdims=True))
    return xp.subtract(x, xp.apply("log", xp.sum(xp.apply("exp", x), axis=(axis,), keepdims=True)))


@op(
    infer=_along_axis,
    flops=flops_per_input(2),
    sample=_AXIS_SAMPLE,
    index="...{axis} -> ...{axis}",
    onnx="Hardmax",
    rowwise=True,
)
def hardmax(xp: Any, x: Any, *, axis: int = -1) -> Any:
    """1 at the first largest element along an axis, 0 elsewhere."""
    axis = axis % x.ndim
    places = np.arange(x.shape[axis]).reshape(-1, *(1,) * (x.ndim - 1 - axis))
    if not x.size:
        return np.array(x)
    first = first_extreme(xp, x, axis, True, smallest=False, last=False)
    return xp.where(xp.equal(places, first), xp.number(1.0, x), xp.number(0.0, x))


def _lp_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    return sampling.one_operand(axis=sampling.axis, p=sampling.choice(1, 2))(rng, known, attrs)


@op(
    infer=_along_axis,
    flops=flops_per_input(4),
    sample=_lp_sample,
    index="...{axis} -> ...{axis}",
    onnx="LpNormalization",
    sensitive=True,
    rowwise=True,
)
def lp_norm(xp: Any, x: Any, *, axis: int = -1, p: int = 2) -> Any:
    """The operand divided by its p-norm along an axis, p 1 or 2; 0 where that norm is 0."""
    if p == 1:
        norm = xp.sum(xp.apply("abs", x), axis=(axis,), keepdims=True)
    else:
        norm = xp.apply("sqrt", xp.sum(xp.multiply(x, x), axis=(axis,), keepdims=True))
    zero = xp.number(0.0, x)
    return xp.where(xp.equal(norm, zero), zero, xp.divide(x, norm))


def _trailing_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    """Layer and RMS normalisation: scale and bias broadcast to the axes normalised, and differ along no other."""
    x = present(operands, 0)
    refuse_integers(x)
    if x.shape is None:
        return (x,)
    normalised = x.shape[axis_of(x, attrs["axis"]) :]
    for operand in operands[1:]:
        if operand is None or operand.shape is None:
            continue
        others = operand.shape[: max(len(operand.shape) - len(normalised), 0)]
        fits = len(operand.shape) <= len(x.shape) and all(dim == 1 for dim in others)
        if not fits or not broadcasts_to(operand.shape[len(others) :], normalised):
            raise ShapeError(
                f"scale or bias {operand} for {x} normalised from axis {attrs['axis']} on",
                expected="a shape that broadcasts to the axes normalised",
                remedy="normalise with a scale of ones, then multiply and add",
            )
    return (x,)


def _trailing_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    drawn = _AXIS_SAMPLE(rng, known[:1], attrs)
    if drawn is None:
        return None
    (x,), full = drawn
    normalised = x[full["axis"] % len(x) :]
    return [x, *(s if s is not None else normalised for s in known[1:])], full


def normalised(xp: Any, x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    """The operand less its mean, divided by √(variance + epsilon)."""
    centred = xp.subtract(x, mean(xp, x, axes))
    variance = mean(xp, xp.multiply(centred, centred), axes)
    return xp.divide(centred, xp.apply("sqrt", xp.add(variance, xp.number(epsilon, x))))


def _affine(xp: Any, x: Any, scale: Any, bias: Any) -> Any:
    scaled = xp.multiply(x, scale)
    return scaled if bias is None else xp.add(scaled, bias)


#: Normalisations over the last axes.
_over_trailing = partial(
    op,
    infer=_trailing_type,
    sample=_trailing_sample,
    instances=({"axis": 1}, {"axis": 2}),
    accumulates=True,
    sensitive=True,
    rowwise=True,
    total="static",
    beside=enumeration.normalised,
    demands=demands.trailing,
)


@_over_trailing(
    flops=flops_per_input(8), index="...{axis:}, {axis:}, + {axis:} -> ...{axis:}", onnx="LayerNormalization"
)
def layer_norm(xp: Any, x: Any, scale: Any, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5) -> Any:
    """Normalised over the axes from `axis` on: (x - mean) / √(variance + epsilon) · scale + bias."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    return _affine(xp, normalised(xp, x, axes, epsilon), scale, bias)


@_over_trailing(flops=flops_per_input(5), index="...{axis:}, {axis:} -> ...{axis:}", onnx="RMSNormalization")
def rms_norm(xp: Any, x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5) -> Any:
    """Normalised over the axes from `axis` on: x / √(mean of squares + epsilon) · scale."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    square = mean(xp, xp.multiply(x, x), axes)
    return xp.multiply(xp.divide(x, xp.apply("sqrt", xp.add(square, xp.number(epsilon, x)))), scale)


def _by_channel(least: int) -> InferRule:
    """A shape rule: N,C,… of at least a rank, and vectors with an element for each channel."""

    def infer(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
        x = present(operands, 0)
        refuse_integers(x)
        if x.shape is None:
            return (x,)
        if x.rank < least:
            raise ShapeError(f"normalisation of {x}", expected="N,C" + ",spatial…" * (least > 2))
        channels = x.shape[1]
        for operand in operands[1:]:
            if operand is None or operand.shape is None:
                continue
            fits = operand.rank == 1 and (
                not isinstance(channels, int) or not isinstance(operand.dims[0], int) or operand.dims[0] == channels
            )
            if not fits:
                raise ShapeError(f"{operand} for {channels} channels of {x}", expected=f"a vector of {channels}")
        groups = attrs.get("groups", 1)
        if isinstance(channels, int) and channels % groups:
            raise ShapeError(f"{channels} channels in {groups} groups", expected="a multiple of groups")
        return (x,)

    return infer


def _channel_sample(least: int) -> SampleRule:
    def sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
        x, vector = known[0], next((s for s in known[1:] if s), None)
        if x is None:
            x = sampling.shape(rng, least, 4)
            x = (x[0], vector[0] if vector is not None else x[1] * attrs.get("groups", 1), *x[2:])
        if len(x) < least:
            return None
        return [x, *(s if s is not None else (x[1],) for s in known[1:])], attrs

    return sample


def _group_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    return _channel_sample(3)(rng, known, {"groups": rng.choice((1, 2)) if known[0] is None else 1, **attrs})


def _channels(x: Any, vector: Any) -> Any:
    return np.reshape(vector, (-1, *(1,) * (x.ndim - 2)))


#: Normalisations with parameters for each channel.
_over_channels = partial(op, accumulates=True, sensitive=True, beside=enumeration.per_channel, affine=True)


@_over_channels(
    infer=_by_channel(2),
    flops=flops_per_input(2),
    sample=_channel_sample(2),
    partial=True,
    index="n c h..., c, c, c, c -> n c h...",
    onnx="BatchNormalization",
    instances=({},),
    total="static",
    parameters="channel",
)
def batch_norm(xp: Any, x: Any, scale: Any, bias: Any, mean: Any, var: Any, *, epsilon: float = 1e-5) -> Any:
    """Normalised by stored statistics of each channel: (x - mean) / √(var + epsilon) · scale + bias (inference)."""
    deviation = xp.apply("sqrt", xp.add(var, xp.number(epsilon, x)))
    centred = xp.subtract(x, _channels(x, mean))
    return _affine(xp, xp.divide(centred, _channels(x, deviation)), _channels(x, scale), _channels(x, bias))


@_over_channels(
    infer=_by_channel(3),
    flops=flops_per_input(8),
    sample=_channel_sample(3),
    index="n c [h...], c, c -> n c [h...]",
    onnx="InstanceNormalization",
)
def instance_norm(xp: Any, x: Any, scale: Any, bias: Any, *, epsilon: float = 1e-5) -> Any:
    """Normalised over the spatial axes of each channel, then scaled and shifted by channel."""
    inner = normalised(xp, x, tuple(range(2, x.ndim)), epsilon)
    return _affine(xp, inner, _channels(x, scale), _channels(x, bias))


@_over_channels(
    infer=_by_channel(3),
    flops=flops_per_input(8),
    sample=_group_sample,
    index="n [c h...], [c], [c] -> n [c h...]",
    onnx="GroupNormalization",
    choices={"groups": enumeration.divisors},
)
def group_norm(xp: Any, x: Any, scale: Any, bias: Any, *, groups: int, epsilon: float = 1e-5) -> Any:
    """Normalised over the channels of a group and the spatial axes, then scaled and shifted by channel."""
    parts = np.reshape(x, (x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]))
    inner = normalised(xp, parts, tuple(range(2, parts.ndim)), epsilon).reshape(x.shape)
    return _affine(xp, inner, _channels(x, scale), _channels(x, bias))


def _mvn_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    x = present(operands, 0)
    if x.shape is not None:
        for axis in attrs["axes"]:
            axis_of(x, axis)
    if any(axis < 0 for axis in attrs["axes"]) or len(set(attrs["axes"])) < len(attrs["axes"]):
        # Laws ask which axes there are, so each has one name.
        raise ShapeError(f"axes {list(attrs['axes'])}", expected="axes counted from the left, each once")
    return (x,)


@op(
    infer=_mvn_type,
    flops=flops_per_input(8),
    sample=sampling.one_operand(axes=sampling.axes),
    index="...{axes} -> ...{axes}",
    onnx="MeanVarianceNormalization",
    sensitive=True,
)
def mvn(xp: Any, x: Any, *, axes: tuple[int, ...] = (0, 2, 3)) -> Any:
    """(x - mean) / (√variance + 1e-9) over axes."""
    centred = xp.subtract(x, mean(xp, x, axes))
    deviation = xp.apply("sqrt", mean(xp, xp.multiply(centred, centred), axes))
    return xp.divide(centred, xp.add(deviation, xp.number(1e-9, x)))
