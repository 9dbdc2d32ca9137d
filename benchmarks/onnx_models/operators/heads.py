"""Attention as operators of several heads, and what turns queries and keys by their places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import Growing, RefusedError, Value
from benchmarks.onnx_models.layers import weight

_OURS = {"domain": "com.microsoft"}


def _angles(g: Growing, count: int, half: int) -> list[Value]:
    angle = g.rng.uniform(-3, 3, (count, half))
    return [g.constant(v.astype(np.float32), plain=True) for v in (np.cos(angle), np.sin(angle))]


def _rotary(g: Growing) -> None:
    half, length = g.integer(1, 3), g.integer(1, 4)
    x = g.input(np.float32, [g.among([1, 2]), 2, length, 2 * half])
    flags: dict[str, Any] = {"interleaved": g.among([None, 1])}
    tables = _angles(g, 6, half)
    at = g.constant(g.rng.integers(0, 6, (x.shape[0], length)), plain=True)
    if g.has("RotaryEmbedding") and g.flip():
        g.add("RotaryEmbedding", [x, *tables, at], **flags)
    else:
        g.add("RotaryEmbedding", [x, at, *tables], **flags, **_OURS)


def _multi_head(g: Growing) -> None:
    heads, size, length = g.among([1, 2]), g.among([2, 4]), g.integer(1, 3)
    batch: int | str = g.among([1, 2, "n"])
    q = g.input(np.float32, [batch, length, heads * size])
    k, v = (g.input(np.float32, [batch, length + 1, heads * size]) for _ in "kv")
    bias = weight(g, q, 3 * heads * size) if g.flip(0.4) else None
    mask = g.constant(g.rng.normal(size=(1, heads, length, length + 1)).astype(np.float32)) if g.flip(0.3) else None
    attrs = {"num_heads": heads, "scale": g.among([None, 0.5]), "unidirectional": g.among([None, None, 1])}
    g.add("MultiHeadAttention", [q, k, v, bias, None, mask], **attrs, **_OURS)


def _packed(g: Growing) -> None:
    heads, size = g.among([1, 2]), g.among([2, 4])
    x = g.input(np.float32, [g.among([1, 2, "n"]), g.among([1, 3, "m"]), 3])
    w, b = weight(g, x, 3, 3 * heads * size), weight(g, x, 3 * heads * size)
    g.add("Attention", [x, w, b], num_heads=heads, unidirectional=g.among([None, 1]), **_OURS)


def _grouped(g: Growing) -> None:
    """Queries of more heads than keys, with a cache that starts empty or holds something."""
    held, length = g.among([0, 2]), g.integer(1, 3)
    batch = 1 if held and length > 1 else g.among([1, 2])
    heads, shared, size = *g.among([(2, 1), (2, 2), (4, 2)]), 16
    q = g.input(np.float32, [batch, length, heads * size])
    k, v = (g.input(np.float32, [batch, length, shared * size]) for _ in "kv")
    total = held + length
    past: list[Value | None] = [None, None]
    if held:
        past = [g.input(np.float32, [batch, shared, held, size]) for _ in "kv"]
    lengths = g.constant(np.full(batch, total - 1, np.int32), plain=True)
    last = g.constant(np.array(total, np.int32), plain=True)
    attrs = {"num_heads": heads, "kv_num_heads": shared, "scale": g.among([None, 0.5])}
    rotated = {"do_rotary": 1, "rotary_interleaved": g.among([None, 1])} if g.flip(0.3) else {}
    tables = _angles(g, 8, size // 2) if rotated else []
    g.add("GroupQueryAttention", [q, k, v, *past, lengths, last, *tables], 3, **attrs, **rotated, **_OURS)


def _normalised(g: Growing) -> None:
    x = g.pick("f", 3)
    if x.dtype != np.float32 or x.free(-1) or 0 in x.shape:
        raise RefusedError("no kernel")
    other = g.like(x)
    if other.dims != x.dims:
        other = x
    g.add("SkipSimplifiedLayerNormalization", [x, other, weight(g, x, x.shape[-1])], epsilon=1e-5, **_OURS)


STEPS: Mapping[Step, float] = {_rotary: 1, _multi_head: 1.5, _packed: 1, _grouped: 1.5, _normalised: 0.7}
