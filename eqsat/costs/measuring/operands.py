"""Data for the operands of kernels that are measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.costs.kernels.key import OpKey
from eqsat.errors import CostError
from eqsat.language.ops import OPS
from eqsat.language.terms import DType, TensorType

Array = np.ndarray[Any, np.dtype[Any]]


class Data:
    """Random nonzero data: overlapping windows of one pool an element type, so that no two are equal and few are made.

    Floats lie between 0.9 and 1, where nearly every function is finite and no long product becomes a denormal number.
    Where they are `signed` each sign is as likely: the units that multiply matrices draw power, and lose clock, by the
    bits that change.
    """

    def __init__(self, seed: int, *, signed: bool = False) -> None:
        self._rng = np.random.default_rng(seed)
        self._signed = signed
        self._pools: dict[DType, Array] = {}
        self._drawn = 0

    def tensor(self, type: TensorType) -> Array:
        """The next tensor of a type."""
        count = int(np.prod(type.static, dtype=np.int64))
        self._drawn += 1
        begin = self._drawn * 16
        pool = self._pools.get(type.dtype)
        if pool is None or len(pool) < begin + count:
            pool = self._pools[type.dtype] = self._pool(type.dtype, begin + count + 4096)
        return pool[begin : begin + count].reshape(type.static)

    def indices(self, type: TensorType, bound: int) -> Array:
        """Indices from 0 to below a bound."""
        return self._rng.integers(0, max(bound, 1), type.static).astype(type.dtype.numpy)

    def operand(self, key: OpKey, index: int, type: TensorType) -> Array:
        """Data for an operand: indices within the axis they index, squares where a power is constant."""
        if index == 1 and key.op in OPS and OPS[key.op].indexed:
            indexed = key.operands[0]
            dims = indexed.static if indexed is not None else ()
            axis = key.attrs.get("axis")
            return self.indices(type, dims[axis] if axis is not None and dims else min(dims, default=1))
        if key.op == "clip" and key.arithmetic and index > 0:  # bounds that the scale of the results holds by itself
            return np.full(type.static, 0 if index == 1 else 8, type.dtype.numpy)
        if key.op == "grouped_attention" and index == 1:
            # Every sequence has all positions there are.
            return np.full(type.static, key.attrs["total"] - 1, type.dtype.numpy)
        if key.op == "pow" and index == 1 and key.const_operands[1] and type.size == 1:
            # Squares are what models raise to a constant power, and what runtimes have a case for.
            return np.full(type.static, 2, type.dtype.numpy)
        return self.tensor(type)

    def _pool(self, dtype: DType, count: int) -> Array:
        if dtype is DType.BOOL:
            return self._rng.random(count) < 0.5
        if dtype.is_integer:
            return self._rng.integers(1, 4, count).astype(dtype.numpy)
        if not dtype.is_float:
            raise CostError(f"no data of {dtype.value} to measure with", expected="numbers or booleans")
        floats = self._rng.random(count, np.float32) * np.float32(0.1) + np.float32(0.9)
        if self._signed:
            floats *= self._rng.integers(0, 2, count).astype(np.float32) * 2 - 1
        return floats.astype(dtype.numpy)
