"""Rotary position embeddings as models spell them."""

from __future__ import annotations

import numpy as np

from benchmarks.expert.case import Maker, Pair, Tensor, case
from eqsat import concat, gather, split, stack

_GROUP = "spellings"
_B, _H, _S, _D = 2, 8, 64, 64


def _angles(width: int) -> tuple[np.ndarray, np.ndarray]:
    positions = np.arange(_S)[:, None] * 10000.0 ** (-np.arange(width)[None, :] / width)
    return np.cos(positions), np.sin(positions)


def _halves(m: Maker) -> tuple[Tensor, Tensor, Tensor]:
    cos, sin = _angles(_D // 2)
    return m.x(_B, _H, _S, _D), m.c(np.concatenate([cos, cos], 1)), m.c(np.concatenate([sin, sin], 1))


def _turned(x: Tensor) -> Tensor:
    return concat([-x[..., _D // 2 :], x[..., : _D // 2]], axis=3)


@case(_GROUP, "rotary: halves, negated apart", "Llama exports")
def _(m: Maker) -> Pair:
    x, cos, sin = _halves(m)
    half = _D // 2
    signed = concat([-sin[:, :half], sin[:, half:]], axis=1)
    expert = x * cos + concat([x[..., half:], x[..., :half]], axis=3) * signed
    return x * cos + _turned(x) * sin, expert


@case(_GROUP, "rotary: queries and keys apart", "Llama exports")
def _(m: Maker) -> Pair:
    q, cos, sin = _halves(m)
    k = m.x(_B, _H, _S, _D)
    given = (q * cos + _turned(q) * sin, k * cos + _turned(k) * sin)
    both = concat([q, k], axis=1)
    y = both * cos + _turned(both) * sin
    return given, (y[:, :_H], y[:, _H:])


@case(_GROUP, "rotary: halves split and joined", "GPT-NeoX exports")
def _(m: Maker) -> Pair:
    x, cos, sin = _halves(m)
    a, b = split(x, 2, axis=3)
    return x * cos + concat([b * -1.0, a], axis=3) * sin, x * cos + _turned(x) * sin


@case(_GROUP, "rotary: angles of all positions, sliced", "Llama exports")
def _(m: Maker) -> Pair:
    x, cos, sin = _halves(m)
    positions = m.c(np.arange(_S), "int64")
    given = x * gather(cos, positions).reshape(1, 1, _S, _D) + _turned(x) * gather(sin, positions).reshape(1, 1, _S, _D)
    return given, x * cos + _turned(x) * sin


@case(_GROUP, "rotary: heads before the transpose", "Qwen exports")
def _(m: Maker) -> Pair:
    x = m.x(_B, _S, _H, _D)
    _, cos, sin = _halves(m)
    heads = x.transpose(0, 2, 1, 3)
    given = (heads * cos + _turned(heads) * sin).transpose(0, 2, 1, 3)
    cos, sin = cos.reshape(_S, 1, _D), sin.reshape(_S, 1, _D)
    return given, x * cos + _turned(x) * sin


@case(_GROUP, "rotary: pairs, by a stack", "GPT-J exports")
def _(m: Maker) -> Pair:
    x = m.x(_B, _H, _S, _D)
    cos, sin = (m.c(one) for one in _angles(_D // 2))
    even, odd = x[..., ::2], x[..., 1::2]
    given = stack([even * cos - odd * sin, odd * cos + even * sin], axis=4).reshape(_B, _H, _S, _D)
    pairs = x.reshape(_B, _H, _S, _D // 2, 2)
    turned = stack([-pairs[..., 1], pairs[..., 0]], axis=4)
    expert = pairs * cos.reshape(_S, _D // 2, 1) + turned * sin.reshape(_S, _D // 2, 1)
    return given, expert.reshape(_B, _H, _S, _D)


@case(_GROUP, "rotary: the same queries turned twice", "carelessness of caches")
def _(m: Maker) -> Pair:
    x, cos, sin = _halves(m)
    first = x * cos + _turned(x) * sin
    again = x * cos + concat([-x[..., _D // 2 :], x[..., : _D // 2]], axis=3) * sin
    return first + again, first * 2.0
