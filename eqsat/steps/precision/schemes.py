"""Schemes of rounding: the scales of values and weights that the kernels of a device take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from eqsat.costs.kernels.precision import INTEGERS
from eqsat.language.terms import FLOAT8, Array, DType, Float8Scale, Scale
from eqsat.language.terms.float8 import LARGEST
from eqsat.quantisation.ranges import Observer, best_scale
from eqsat.quantisation.scales import symmetric, weights
from eqsat.runtime.onnxruntime.saturation import saturates

#: Bits of int8 weights on machines whose kernels overflow, and elsewhere.
_BITS = {True: 7, False: 8}
#: How much larger than on the data a value may be before float8 cuts it off: a power of two costs no digit of it.
_HEADROOM = 2.0
#: The least step of a scale: a float32 that is no subnormal.
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class RoundingScheme:
    """The scale of a value from what was seen of it, and that of weights from these and the axis of their channels.

    `adjusts` says that the numbers of weights may be chosen together, for data.
    """

    value: Callable[[Observer], Scale]
    weights: Callable[[Array, int | None], Scale]
    adjusts: bool


def _of_processors(array: Array, axis: int | None) -> Scale:
    return weights(array, axis, _BITS[saturates()])


def _signed(low: float, high: float) -> Scale:
    return symmetric(low, high, DType.INT8)


def _on_gpus(observer: Observer) -> Scale:
    """The scale in int8 by the range of least squared error, without a zero point, which tensor cores do not know."""
    return _signed(*observer.range("mse", scheme=_signed))


def _of_gpus(array: Array, axis: int | None) -> Scale:
    return weights(array, axis)


def _in_float8(observer: Observer) -> Scale:
    return _float8(_HEADROOM * max(-observer.low, observer.high))


def _of_float8(array: Array, axis: int | None) -> Scale:
    return _float8(float(np.max(np.abs(array), initial=0.0)))


def _float8(most: float) -> Scale:
    """The scale whose largest number stands for a magnitude."""
    return Float8Scale.of(float(np.float32(max(most / LARGEST, _TINY))) if most else 1.0)


#: The scheme of processors, in uint8 and int8.
PROCESSORS = RoundingScheme(best_scale, _of_processors, adjusts=True)
#: The schemes of GPUs, by precision.
GPUS: Mapping[str, RoundingScheme] = MappingProxyType(
    {
        INTEGERS: RoundingScheme(_on_gpus, _of_gpus, adjusts=True),
        FLOAT8: RoundingScheme(_in_float8, _of_float8, adjusts=False),
    }
)
