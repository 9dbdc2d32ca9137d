"""Scales of tensors in floats of 8 bits: a step for all elements, since each number has an exponent of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from eqsat.errors import UsageError
from eqsat.language.terms.scale import Array, Scale
from eqsat.language.terms.types import DType

#: The largest float of 8 bits with 4 bits of exponent and 3 of mantissa, which has no infinity.
LARGEST = 448


@dataclass(frozen=True, slots=True)
class Float8Scale(Scale):
    """Floats q of 8 bits, from -448 to 448, each standing for q · step.

    UsageError for a step that is not finite and above 0, and for an axis, a zero point or other bounds.
    """

    least: int = -LARGEST
    most: int = LARGEST

    @staticmethod
    def of(step: float) -> Float8Scale:
        """The scale with a step."""
        return Float8Scale(DType.FLOAT8E4M3FN, (step,))

    def __post_init__(self) -> None:
        plain = (DType.FLOAT8E4M3FN, (0,), None, -LARGEST, LARGEST)
        if (self.dtype, self.zeros, self.axis, self.least, self.most) != plain or len(self.steps) != 1:
            raise UsageError("a scale of float8 with more than a step", expected="float8e4m3fn by one step")
        if not (math.isfinite(self.steps[0]) and self.steps[0] > 0):
            raise UsageError("a scale with a step that is not finite and above 0", expected="positive numbers")

    def quantised(self, x: Array) -> Array:
        """The floats of 8 bits that stand for a tensor: the nearest, ties to even, those beyond the ends at the ends.

        >>> Float8Scale.of(0.5).quantised(np.array([0.0, 0.53, -1000.0], np.float32)).astype(np.float32).tolist()
        [0.0, 1.0, -448.0]
        """
        with np.errstate(over="ignore", invalid="ignore"):
            units = x.astype(np.float32) / np.float32(self.steps[0])
            numbers: Array = np.clip(units, -LARGEST, LARGEST).astype(self.dtype.numpy)
        return numbers

    def restored(self, q: Array) -> Array:
        """The float32 tensor that floats of 8 bits stand for."""
        return q.astype(np.float32) * np.float32(self.steps[0])
