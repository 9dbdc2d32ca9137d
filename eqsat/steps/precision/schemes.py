"""Schemes of rounding: the scales of values and weights that the kernels of a device take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from eqsat.costs.kernels.precision import INTEGERS
from eqsat.language.terms import FLOAT8, Array, DType, Float8Scale, Scale
from eqsat.language.terms.float8 import LARGEST
from eqsat.quantisation.ranges import Observer, RangeMethod, best_scale
from eqsat.quantisation.scales import processor_weights, symmetric, weights

#: How much larger than on the data a value may be before float8 cuts it off: a power of two costs no digit of it.
_HEADROOM = 2.0
#: The least step of a scale: a float32 that is no subnormal.
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class RoundingScheme:
    """The scale of a value from what was seen of it and the way to its range, and that of weights from these and the
    axis of their channels.

    `adjusts` says that the numbers of weights may be chosen together, for data.
    """

    value: Callable[[Observer, RangeMethod], Scale]
    weights: Callable[[Array, int | None], Scale]
    adjusts: bool


def _signed(low: float, high: float) -> Scale:
    return symmetric(low, high, DType.INT8)


def _on_gpus(observer: Observer, method: RangeMethod) -> Scale:
    """The scale in int8, without a zero point, which tensor cores do not know."""
    return _signed(*observer.range(method, scheme=_signed))


def _of_gpus(array: Array, axis: int | None) -> Scale:
    return weights(array, axis)


def _in_float8(observer: Observer, _method: RangeMethod) -> Scale:
    return _float8(_HEADROOM * max(-observer.low, observer.high))


def _of_float8(array: Array, axis: int | None) -> Scale:
    return _float8(float(np.max(np.abs(array), initial=0.0)))


def _float8(most: float) -> Scale:
    """The scale whose largest number stands for a magnitude."""
    return Float8Scale.of(float(np.float32(max(most / LARGEST, _TINY))) if most else 1.0)


#: The scheme of processors, in uint8 and int8.
PROCESSORS = RoundingScheme(best_scale, processor_weights, adjusts=True)
#: The schemes of GPUs, by precision.
GPUS: Mapping[str, RoundingScheme] = MappingProxyType(
    {
        INTEGERS: RoundingScheme(_on_gpus, _of_gpus, adjusts=True),
        FLOAT8: RoundingScheme(_in_float8, _of_float8, adjusts=False),
    }
)
