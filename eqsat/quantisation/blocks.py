"""Steps and zero points of weights in blocks, each block by those of least squared error."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from eqsat.errors import UsageError
from eqsat.language.terms import BlockScale, Constant, DType, Packing

Array = np.ndarray[Any, np.dtype[Any]]

#: The shares of a block's largest magnitude that the least number may stand for: what lies beyond is clipped. By the
#: last one of them, numbers reach as far on the other side.
_SHARES = (*np.linspace(0.65, 1.05, 17).tolist(), 8 / 7)
#: The same for each of two ends.
_ENDS = tuple(np.linspace(0.7, 1.0, 7).tolist())
_TINY = float(np.finfo(np.float32).tiny)


def block_scale(array: Array, axis: int, packing: Packing) -> BlockScale:
    """The scale of a matrix of weights packed in blocks along the terms of each output, which lie along `axis`.

    Without zero points of their own, the least number stands for the largest magnitude of a block, whichever sign it
    has, since numbers reach one step farther there. UsageError for weights that are not finite.

    >>> scale = block_scale(np.float32([[-4.0, 3.0, 1.0]]), 0, Packing(4, 32))
    >>> scale.rounded(np.float32([[-4.0, 3.0, 1.0]])).tolist()
    [[-4.0, 3.0, 1.0]]
    """
    if not np.isfinite(array).all():
        raise UsageError("weights that are not finite", expected="finite numbers")
    rows = array if axis == 0 else array.T
    blocks = packing.blocks(rows.shape[1])
    missing = blocks * packing.block - rows.shape[1]
    # What fills up the last block is an element of it: it widens no range.
    filled = np.pad(rows.astype(np.float32), ((0, 0), (0, missing)), mode="edge")
    parts = filled.reshape(len(rows), blocks, packing.block)
    best = np.full((len(rows), blocks), np.inf, np.float32)
    steps, zeros = np.ones_like(best), np.full(best.shape, packing.middle, np.uint8)
    free = _free(parts, packing) if packing.zeros else ()
    for step, zero in itertools.chain(_symmetric(parts, packing), free):
        numbers = np.clip(np.rint(parts / step[..., None]) + zero[..., None], 0, packing.most)
        missed = (numbers - zero[..., None]) * step[..., None] - parts
        loss = np.einsum("obt,obt->ob", missed, missed)
        better = loss < best
        best[better], steps[better], zeros[better] = loss[better], step[better], zero[better]
    stored = Constant.of(zeros, DType.UINT8) if packing.zeros else None
    return BlockScale(packing, axis, Constant.of(steps, DType.FLOAT32), stored)


def _symmetric(parts: Array, packing: Packing) -> Iterator[tuple[Array, Array]]:
    """Steps by which the least number reaches a share of the largest magnitude."""
    place = np.abs(parts).argmax(axis=-1, keepdims=True)
    far = np.take_along_axis(parts, place, axis=-1)[..., 0]
    middle = np.full(far.shape, packing.middle, np.float32)
    for share in _SHARES:
        step = (far * np.float32(share) / -packing.middle).astype(np.float32)
        yield np.where(np.abs(step) < _TINY, np.float32(1), step), middle


def _free(parts: Array, packing: Packing) -> Iterator[tuple[Array, Array]]:
    """Steps and zero points by which numbers reach from a share of the least element to one of the largest."""
    low, high = np.minimum(parts.min(axis=-1), 0), np.maximum(parts.max(axis=-1), 0)
    for below, above in itertools.product(_ENDS, repeat=2):
        step = ((high * np.float32(above) - low * np.float32(below)) / packing.most).astype(np.float32)
        step = np.where(step < _TINY, np.float32(1), step)
        yield step, np.clip(np.rint(-low * np.float32(below) / step), 0, packing.most).astype(np.float32)
