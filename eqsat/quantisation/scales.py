"""Scales of weights and activations: steps and zero points from the range of the elements.

A step is a number of float32, as a model holds it. It is no subnormal, which runtimes may take for 0, and every number
of a scale restores a finite element: within a percent of the largest float32, elements are clipped for that. The step
is 1 where nothing but 0 was seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.errors import UsageError
from eqsat.language.ops import OPS
from eqsat.language.terms.scale import Scale
from eqsat.language.terms.types import DType
from eqsat.runtime.onnxruntime.saturation import saturates

Array = np.ndarray[Any, np.dtype[Any]]

#: The largest magnitude of int8 weights, by their bits. Magnitudes up to 64 keep sums of two products with uint8 within
#: 16 bits (2 · 255 · 64 < 2¹⁵), where the processor adds them so.
WEIGHT_MOST = {7: 64, 8: 127}
#: The largest magnitude, from zero, of symmetric numbers of 8 bits.
_SYMMETRIC = 127
_TINY, _HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


def symmetric(low: float, high: float, dtype: DType = DType.UINT8) -> Scale:
    """The scale whose step is max(-low, high) / 127.

    Numbers of int8 lie in [-127, 127] around 0. Those of uint8 lie in [0, 255] around 128, of which 0 stands for
    elements beyond `low`: runtimes saturate there. UsageError for other types, and for bounds that are no range.

    >>> symmetric(-2.54, 1.0, DType.INT8)
    Scale(dtype=<DType.INT8: 'int8'>, steps=(0.019999999552965164,), zeros=(0,), axis=None, least=-127, most=127)
    >>> symmetric(-2.54, 1.0).quantised(np.array([-2.54, 0.0, 1.0], np.float32))
    array([  1, 128, 178], dtype=uint8)
    """
    _check_range(low, high)
    most = max(-low, high)
    if dtype is DType.INT8:
        return Scale(dtype, (_step(most, _SYMMETRIC, _SYMMETRIC),))
    if dtype is not DType.UINT8:
        raise UsageError(f"a symmetric scale of {dtype.value}", expected="int8 or uint8")
    return Scale(dtype, (_step(most, _SYMMETRIC, 128),), (128,), least=0, most=255)


def asymmetric(low: float, high: float, dtype: DType = DType.UINT8) -> Scale:
    """The scale from the lower of `low` and 0 to the higher of `high` and 0, with all numbers of an integer type.

    0 is represented exactly, for which both ends move by at most half a step. UsageError for bounds that are no range.

    >>> asymmetric(-1.0, 4.1).zeros, asymmetric(0.0, 5.1).zeros, asymmetric(-5.1, 0.0).zeros
    ((50,), (0,), (255,))
    """
    _check_range(low, high)
    low, high = min(low, 0.0), max(high, 0.0)
    bounds = ml_dtypes.iinfo(dtype.numpy)
    least, most = int(bounds.min), int(bounds.max)
    wanted = high / (most - least) - low / (most - least)  # the difference of two ends may overflow
    zero = min(max(round(least - low / max(wanted, _TINY)), least), most)
    return Scale(dtype, (_step(wanted, 1, max(most - zero, zero - least)),), (zero,), least=least, most=most)


def activations(low: float, high: float) -> Scale:
    """The scale of uint8 from 0 where no element is negative, else symmetric around 128."""
    return asymmetric(0.0, high) if low >= 0 else symmetric(low, high)


def weights(array: Array, axis: int | None = None, bits: int = 8) -> Scale:
    """The symmetric scale of a constant tensor in int8, with one step, or one for each index of an axis.

    Numbers lie in [-127, 127] for 8 bits, and in [-64, 64] for 7. A channel of nothing but zeros has the largest step
    of the others, so that a bias in units of the products' steps is no coarser there. UsageError for other bits, an
    axis that the tensor does not have, and elements that are not finite.

    >>> weights(np.array([[0.0, 1.27], [0.0, 0.0], [-2.54, 1.0]], np.float32), axis=0).steps
    (0.009999999776482582, 0.019999999552965164, 0.019999999552965164)
    """
    if bits not in WEIGHT_MOST:
        raise UsageError(f"weights of {bits} bits", expected="7 or 8")
    if axis is not None and not -array.ndim <= axis < array.ndim:
        raise UsageError(f"axis {axis} of weights with rank {array.ndim}", expected="an axis of theirs, or None")
    others = None if axis is None else tuple(i for i in range(array.ndim) if i != axis % array.ndim)
    with np.errstate(over="ignore"):
        largest = np.atleast_1d(np.max(np.abs(array.astype(np.float32)), axis=others, initial=0.0))
    if not np.isfinite(largest).all():
        raise UsageError("weights that are not finite", expected="finite numbers")
    most = WEIGHT_MOST[bits]
    steps = [_step(one, most, most) if one else 0.0 for one in largest.tolist()]
    spare = max(steps, default=0.0) or 1.0
    if axis is None or not steps:
        return Scale(DType.INT8, (spare,), least=-most, most=most)
    by_channel = tuple(step or spare for step in steps)
    return Scale(DType.INT8, by_channel, (0,) * len(steps), axis % array.ndim, least=-most, most=most)


def channel_axis(op: str, attrs: Mapping[str, Any], rank: int) -> int | None:
    """The axis of a product's weights along which the channels of its result lie; None where there is no one such."""
    if OPS[op].windowed:
        return 0
    if rank != 2:
        return None
    return 0 if attrs.get("trans_b") else 1


def processor_weights(array: Array, axis: int | None) -> Scale:
    """The scale of weights in int8 of as many bits as the kernels of this processor add up."""
    return weights(array, axis, 7 if saturates() else 8)


def _step(extent: float, count: int, side: int) -> float:
    """The number of float32 nearest to extent / count, within what keeps `side` steps finite; 1 for no extent."""
    if extent == 0:
        return 1.0
    step = np.float32(max(min(extent / count, _HUGE / side), _TINY))
    with np.errstate(over="ignore"):
        while not np.isfinite(step * np.float32(side)):
            step = np.nextafter(step, np.float32(0))
    return float(step)


def _check_range(low: float, high: float) -> None:
    if not (math.isfinite(low) and math.isfinite(high) and low <= high and max(-low, high) <= _HUGE):
        raise UsageError(f"a range from {low} to {high}", expected="finite numbers of float32, the lower one first")
