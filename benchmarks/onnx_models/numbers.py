"""Random tensors: ordinary numbers, or those where arithmetic has its edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: The share of elements at an edge, in tensors that have any.
_EDGES = 0.3
#: Element types that NumPy has of its own; bfloat16 lives only between two casts.
FLOATS = (np.float32, np.float64, np.float16)
INTEGERS = (np.int64, np.int32, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64)


class Numbers:
    """Draws tensors. `edges` are "none", "finite" (zeros and denormals too) or "all" (infinities, NaN, the largest)."""

    def __init__(self, rng: np.random.Generator, edges: str) -> None:
        self.rng, self.edges = rng, edges

    def array(self, dtype: Any, shape: Sequence[int]) -> Array:
        """A tensor of any element type."""
        kind = np.dtype(dtype)
        if kind == np.bool_:
            return np.asarray(self.rng.random(tuple(shape)) < 0.5)
        if kind.kind in "iu":
            return self._integers(kind, shape)
        if kind.kind in "OU":
            return np.asarray(self.rng.choice(["", "a", "b a", "Zürich"], tuple(shape)), dtype=object)
        return self._floats(kind, shape)

    def positive(self, dtype: Any, shape: Sequence[int]) -> Array:
        """A tensor of ordinary numbers above zero."""
        found = np.abs(self.rng.normal(size=tuple(shape))) + 0.25
        return np.asarray(found, dtype) if np.dtype(dtype).kind == "f" else np.asarray(np.ceil(found), dtype)

    def _integers(self, kind: np.dtype[Any], shape: Sequence[int]) -> Array:
        limits = np.iinfo(kind)
        low = 0 if kind.kind == "u" else -5
        drawn = self.rng.integers(low, 6, tuple(shape)).astype(kind)
        if self.edges == "all":
            edge = [limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1]
            edge += [n for n in (2**53 + 1, 2**24 + 1, -(2**53) - 1, -1) if limits.min <= n <= limits.max]
            drawn = np.where(self._some(shape), self.rng.choice(np.array(edge, kind), tuple(shape)), drawn)
        return np.asarray(drawn, kind)

    def _floats(self, kind: np.dtype[Any], shape: Sequence[int]) -> Array:
        rng, size = self.rng, tuple(shape)
        match int(rng.integers(6)):
            case 0:  # ties, and sums that are exact
                drawn = rng.integers(-4, 5, size).astype(np.float64) / 2
            case 1:
                drawn = rng.normal(size=size) * 10 + float(rng.integers(-20, 21))
            case _:
                drawn = rng.normal(size=size)
        found = np.asarray(drawn, kind)
        if self.edges == "none":
            return found
        info = np.finfo(kind)
        edge = [0.0, -0.0, float(info.smallest_subnormal), -float(info.smallest_subnormal), float(info.tiny), 1.0]
        if self.edges == "all":
            edge += [np.inf, -np.inf, np.nan, float(info.max), -float(info.max), float(info.eps)]
        edges = rng.choice(np.array(edge, kind), size)
        return np.asarray(np.where(self._some(shape), edges, found), kind)

    def _some(self, shape: Sequence[int]) -> Array:
        return np.asarray(self.rng.random(tuple(shape)) < _EDGES)
