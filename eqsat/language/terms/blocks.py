"""Weights of a few bits in blocks, each block by a step of its own: how they are packed, and what they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.errors import UsageError
from eqsat.language.terms.constant import Constant
from eqsat.language.terms.types import DType

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Packing:
    """Whole numbers of so many bits, in blocks of so many terms of one output that share a step.

    With `zeros` each block has a zero point of its own, else all have the middle of the range.
    """

    bits: int
    block: int
    zeros: bool = False

    @property
    def name(self) -> str:
        """The name of the precision that weights have in it.

        >>> Packing(4, 32).name, Packing(4, 32, zeros=True).name
        ('int4_32', 'int4_32_zeros')
        """
        return f"{self.kind}_{self.block}" + ("_zeros" if self.zeros else "")

    @property
    def kind(self) -> str:
        """The element type, as policies name it."""
        return f"int{self.bits}"

    @property
    def middle(self) -> int:
        """The number that stands for 0 where blocks have no zero point of their own."""
        return 1 << (self.bits - 1)

    @property
    def most(self) -> int:
        """The largest number; the least is 0."""
        return (1 << self.bits) - 1

    def blocks(self, terms: int) -> int:
        """The blocks of one output of so many terms."""
        return -(-terms // self.block)

    def nbytes(self, outputs: int, terms: int) -> int:
        """The bytes of weights of so many outputs: numbers, steps of float32, and zero points.

        >>> Packing(4, 32).nbytes(64, 64) / (64 * 64 * 4)
        0.15625
        """
        count = self.blocks(terms)
        zeros = outputs * -(-count * self.bits // 8) if self.zeros else 0
        return outputs * count * (self.block * self.bits // 8 + 4) + zeros


#: Every packing of weights by the name of its precision: those of which runtimes have kernels.
PACKINGS: Mapping[str, Packing] = MappingProxyType(
    {one.name: one for one in (Packing(4, 32), Packing(4, 32, zeros=True), Packing(4, 128))}
)


@dataclass(frozen=True, slots=True)
class BlockScale:
    """Numbers of a matrix of weights in blocks along the terms of each output: q stands for (q - zero) · step.

    `axis` is that of the outputs; `steps` has the shape (outputs, blocks), as have `zeros` where blocks have zero
    points of their own. Steps may be negative: numbers reach farther on one side of the middle than on the other.
    `numbers` and `shift` are as in an AdjustedScale. UsageError for steps or zeros of other shapes, and for steps that
    are 0 or not finite.
    """

    packing: Packing
    axis: int
    steps: Constant
    zeros: Constant | None = None
    numbers: Constant | None = None
    shift: Constant | None = None

    def __post_init__(self) -> None:
        steps, zeros = self.steps.array, None if self.zeros is None else self.zeros.array
        if steps.ndim != 2 or not np.isfinite(steps).all() or not steps.all():
            raise UsageError("steps of blocks that are no matrix of finite numbers other than 0")
        if (zeros is not None) is not self.packing.zeros or (zeros is not None and zeros.shape != steps.shape):
            raise UsageError(
                f"zero points of blocks packed as {self.packing.name}",
                expected="one of each block" if self.packing.zeros else "none",
            )

    @staticmethod
    def even(packing: Packing, axis: int, shape: tuple[int, ...]) -> BlockScale:
        """Equal steps for all blocks of weights of this shape: kernels take the same time with any."""
        count = shape[axis], packing.blocks(shape[1 - axis])
        zeros = Constant.of(np.full(count, packing.middle, np.uint8), DType.UINT8) if packing.zeros else None
        return BlockScale(packing, axis, Constant.of(np.full(count, 0.125, np.float32), DType.FLOAT32), zeros)

    @property
    def dtype(self) -> DType:
        """The element type of the numbers."""
        return DType.UINT8

    @property
    def least(self) -> int:
        """The least number."""
        return 0

    @property
    def most(self) -> int:
        """The largest number."""
        return self.packing.most

    def quantised(self, x: Array) -> Array:
        """The numbers of weights: those that were chosen for them, or the nearest ones, halves to the even one."""
        if self.numbers is not None:
            if self.numbers.array.shape != x.shape:
                raise UsageError(f"numbers of shape {self.numbers.array.shape} for weights of shape {x.shape}")
            return self.numbers.array
        steps, zeros = self.spread(x.shape)
        nearest = np.rint(x.astype(np.float32) / steps.astype(np.float32)) + zeros
        numbers: Array = np.clip(nearest, 0, self.most).astype(np.uint8)
        return numbers

    def restored(self, q: Array) -> Array:
        """The float32 weights that numbers stand for."""
        steps, zeros = self.spread(q.shape)
        restored: Array = (q.astype(np.float32) - zeros.astype(np.float32)) * steps.astype(np.float32)
        return restored

    def rounded(self, x: Array) -> Array:
        """Weights as their numbers restore them."""
        return self.restored(self.quantised(x))

    def corrected(self, bias: Array) -> Array:
        """A bias beside products with the weights, with the shift that makes up for what rounding moves them by."""
        return bias if self.shift is None else (bias + self.shift.array).astype(bias.dtype)

    def adjusted(self, numbers: Array, shift: Array | None) -> BlockScale:
        """The scale with numbers that were chosen for the weights, and the shift of a bias."""
        moved = None if shift is None else Constant.of(shift.astype(np.float32), DType.FLOAT32)
        return replace(self, numbers=Constant.of(np.ascontiguousarray(numbers), self.dtype), shift=moved)

    def spread(self, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Steps and zero points of each element of weights of this shape."""
        terms = shape[1 - self.axis]
        zeros = np.full((1, 1), self.packing.middle) if self.zeros is None else self.zeros.array.astype(np.int64)
        steps = np.repeat(self.steps.array, self.packing.block, axis=1)[:, :terms]
        if self.zeros is not None:
            zeros = np.repeat(zeros, self.packing.block, axis=1)[:, :terms]
        return (steps, zeros) if self.axis == 0 else (steps.T, zeros.T)
