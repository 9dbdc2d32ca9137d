"""Scales of quantised tensors: the whole numbers that stand for the elements of a float tensor, and in what unit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.errors import UsageError
from eqsat.language.terms.constant import Constant
from eqsat.language.terms.types import DType

Array = np.ndarray[Any, np.dtype[Any]]
#: Elements that are quantised at a time.
_PART = 1 << 18


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers q of an integer type, from `least` to `most`, each standing for (q - zero) · step.

    `steps` and `zeros` have one element, or one for each index of `axis`. UsageError for steps that are not finite and
    above 0, for bounds or zeros that the type does not hold, and for numbers of them that do not agree.
    """

    dtype: DType
    steps: tuple[float, ...]
    zeros: tuple[int, ...] = (0,)
    axis: int | None = None
    least: int = -127
    most: int = 127

    def __post_init__(self) -> None:
        if not self.dtype.is_integer:
            raise UsageError(f"quantisation to {self.dtype.value}", expected="an integer type")
        if not self.steps or not all(math.isfinite(step) and step > 0 for step in self.steps):
            raise UsageError("a scale with a step that is not finite and above 0", expected="positive numbers")
        if len(self.zeros) != len(self.steps) or (self.axis is None and len(self.steps) != 1):
            raise UsageError(
                f"{len(self.steps)} steps and {len(self.zeros)} zeros",
                expected="one of each, or as many as the axis is long",
            )
        bounds = ml_dtypes.iinfo(self.dtype.numpy)
        if not int(bounds.min) <= self.least < self.most <= int(bounds.max):
            raise UsageError(f"numbers from {self.least} to {self.most} as {self.dtype.value}")
        if not all(self.least <= zero <= self.most for zero in self.zeros):
            raise UsageError("a zero point outside the numbers of its scale")

    def quantised(self, x: Array) -> Array:
        """The numbers that stand for a tensor: halves to the even one, those beyond the ends at the ends.

        >>> Scale(DType.INT8, (0.5,)).quantised(np.array([0.0, 0.25, 0.75, -100.0], np.float32))
        array([   0,    0,    2, -127], dtype=int8)
        >>> Scale(DType.UINT8, (0.5,), (8,), least=0, most=255).quantised(np.array(1.5, np.float32))
        array(11, dtype=uint8)
        """
        x = np.asarray(x)  # a number of NumPy's own is no place to write to
        numbers = np.empty(x.shape, self.dtype.numpy)
        for part, target, step, zero in _parts(x, numbers, *self._spread(x.ndim)):
            nearest = part.astype(np.float32)
            with np.errstate(over="ignore"):
                np.divide(nearest, step.astype(np.float32), out=nearest)
            np.rint(nearest, out=nearest)
            # Beyond these numbers float32 holds no sum with a zero point.
            whole = nearest if self._is_short else nearest.astype(np.float64)
            np.add(whole, zero.astype(whole.dtype), out=whole)
            target[...] = np.clip(whole, self.least, self.most, out=whole).astype(self.dtype.numpy)
        return numbers

    def restored(self, q: Array) -> Array:
        """The float32 tensor that numbers stand for."""
        q = np.asarray(q)
        tensor = np.empty(q.shape, np.float32)
        kind = np.dtype(np.float32 if self._is_short else np.int64)
        for part, target, step, zero in _parts(q, tensor, *self._spread(q.ndim)):
            wide = np.subtract(part.astype(kind), zero.astype(kind))
            np.multiply(wide.astype(np.float32, copy=False), step.astype(np.float32), out=target)
        return tensor

    def rounded(self, x: Array) -> Array:
        """A tensor as its numbers restore it."""
        return self.restored(self.quantised(x))

    def corrected(self, bias: Array) -> Array:
        """A bias beside products with the tensor that makes up for what rounding shifts them: here, as it is."""
        return bias

    def adjusted(self, numbers: Array, shift: Array | None) -> Scale:
        """The scale with numbers that were chosen for a tensor of weights, and the shift of a bias beside it."""
        fields = {name: getattr(self, name) for name in ("dtype", "steps", "zeros", "axis", "least", "most")}
        return AdjustedScale(
            **fields,
            numbers=Constant.of(np.ascontiguousarray(numbers), self.dtype),
            shift=None if shift is None else Constant.of(shift.astype(np.float32), DType.FLOAT32),
        )

    @property
    def _is_short(self) -> bool:
        """True if float32 holds every number, and what is added to it or taken from it, as it is."""
        return self.dtype.itemsize <= 2

    def spread(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Steps and zero points of the elements of a tensor of this shape, which broadcast with it."""
        return self._spread(len(shape))

    def _spread(self, rank: int) -> tuple[Array, Array]:
        """Steps and zeros in a shape that broadcasts with the tensor."""
        steps, zeros = np.array(self.steps), np.array(self.zeros)
        if self.axis is None:
            return steps.reshape(()), zeros.reshape(())
        shape = [1] * rank
        shape[self.axis] = len(self.steps)
        return steps.reshape(shape), zeros.reshape(shape)


def _parts(source: Array, target: Array, steps: Array, zeros: Array) -> Iterator[tuple[Array, Array, Array, Array]]:
    """Views of two tensors of one shape, with the steps and zeros of their elements: small enough to stay in caches."""
    if source.size <= _PART or source.ndim == 0:
        yield source, target, steps, zeros
        return
    rows = max(_PART * source.shape[0] // source.size, 1)
    for start in range(0, source.shape[0], rows):
        part = slice(start, start + rows)
        step, zero = (one[part] if one.ndim and one.shape[0] > 1 else one for one in (steps, zeros))
        yield source[part], target[part], step, zero


@dataclass(frozen=True, slots=True)
class AdjustedScale(Scale):
    """The scale of a constant tensor of weights whose numbers were chosen together, each not the nearest by itself.

    `numbers` stand for the tensor; `shift` is added to the bias of the product, one element for each channel.
    """

    numbers: Constant | None = None
    shift: Constant | None = None

    def quantised(self, x: Array) -> Array:
        """The numbers that were chosen for the tensor; UsageError for one of another shape.

        >>> chosen = Constant.of(np.int8([1, 3]), DType.INT8)
        >>> AdjustedScale(DType.INT8, (0.5,), numbers=chosen).quantised(np.float32([0.4, 1.3]))
        array([1, 3], dtype=int8)
        """
        if self.numbers is None:
            return Scale.quantised(self, x)
        if self.numbers.array.shape != x.shape:
            raise UsageError(f"numbers of shape {self.numbers.array.shape} for weights of shape {x.shape}")
        return self.numbers.array

    def corrected(self, bias: Array) -> Array:
        """A bias with the shift."""
        return bias if self.shift is None else (bias + self.shift.array).astype(bias.dtype)
