"""Attention over a cache of keys and values, whose heads queries share in groups."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, same_dtype
from eqsat.language.declaration.symbolic import at_least
from eqsat.language.ops.operands import demands
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType, dim_max, exact_quotient, floordiv

#: The operands by place; those after the second may be left out, most of them in pairs.
_NAMES = ("queries", "lengths", "keys", "values", "past keys", "past values", "cosines", "sines", "bias", "sinks")
_PAIRS = ((2, 3), (4, 5), (6, 7))


def width_of(q: Shape, packed: bool, heads: int, shared: int) -> Dim:
    """The width of one head; ShapeError where the heads do not share the columns evenly."""
    count = heads + 2 * shared if packed else heads
    if isinstance(q[2], int) and q[2] % count:
        raise ShapeError(f"{q[2]} columns in {count} heads", expected=f"a multiple of {count} columns")
    return floordiv(q[2], count)


def held(past: Dim, length: Dim, total: Dim) -> Dim:
    """The number of positions the cache has afterwards: all that there are, or as many as it had if that is more."""
    if total == past + length or at_least(total, past):
        return total
    return past if at_least(past, total) else dim_max(total, past)


def _type(operands: Operands, attrs: Attrs) -> tuple[TensorType, ...]:
    given = [*operands, *(None for _ in range(len(_NAMES) - len(operands)))]
    q, lens = present(operands, 0), present(operands, 1)
    heads, shared, total = attrs["heads"], attrs["shared"], attrs["total"]
    if heads < 1 or shared < 1 or heads % shared:
        raise ShapeError(f"{heads} heads of queries and {shared} of keys", expected="a multiple of those of keys")
    if lens.dtype is not DType.INT32:
        raise ShapeError(f"lengths of sequences {lens}", expected="int32", remedy="cast them")
    for one, other in _PAIRS:
        if (given[one] is None) != (given[other] is None):
            raise ShapeError(f"{_NAMES[one]} or {_NAMES[other]} alone", expected="both, or neither")
    same_dtype([t for i, t in enumerate(given) if t is not None and i != 1])
    past = given[4]
    if q.shape is None or (past is not None and past.shape is None):
        return (q.with_shape(None),) * 3
    if q.rank != 3 or (past is not None and past.rank != 4):
        raise ShapeError(f"queries {q} and a cache {past}", expected="ranks 3 and 4")
    batch, length = q.shape[:2]
    size = width_of(q.shape, given[2] is None, heads, shared)
    before = past.dims[2] if past is not None else 0
    _check_counts(batch, length, before, total)
    wanted: dict[int, Shape] = {1: (batch,)}
    wanted |= dict.fromkeys((2, 3), (batch, length, size * shared))
    wanted |= dict.fromkeys((4, 5), (batch, shared, before, size)) | {9: (heads,)}
    for place, shape in wanted.items():
        _check(given[place], shape, _NAMES[place])
    _check_angles(given[6], given[7], size, total)
    _check_bias(given[8], (batch, heads, length, total))
    cache = q.with_shape((batch, shared, held(before, length, total), size))
    return (q.with_shape((batch, length, size * heads)), cache, cache)


def _check(operand: TensorType | None, shape: Shape, name: str) -> None:
    if operand is None or operand.shape is None:
        return
    pairs = zip(operand.shape, shape, strict=False)
    if operand.rank != len(shape) or any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        shown = ", ".join(map(str, shape))
        raise ShapeError(f"{name} {operand} of grouped attention", expected=f"shape [{shown}]")


def _check_counts(batch: Dim, length: Dim, before: Dim, total: Dim) -> None:
    """ShapeError where it is certain that a cache neither grows by the new positions nor has room for them."""
    if not all(isinstance(d, int) for d in (length, before, total)):
        return
    if total < length or (total > before and total != before + length):  # type: ignore[operator]  # all are integers
        raise ShapeError(
            f"{total} positions with {length} new ones and a cache of {before}",
            expected=f"{before + length}, or {length} to {before}",
        )
    if length not in (1, total) and isinstance(batch, int) and batch > 1:
        raise ShapeError(
            f"{length} new positions of {total} in each of {batch} sequences",
            expected="one sequence, one new position, or no earlier ones",
        )


def _check_angles(cos: TensorType | None, sin: TensorType | None, size: Dim, total: Dim) -> None:
    for angles in (cos, sin):
        if angles is None or angles.shape is None:
            continue
        if angles.rank != 2:
            raise ShapeError(f"angles {angles}", expected="positions by half of a width")
        rows, half = angles.shape
        short = isinstance(rows, int) and isinstance(total, int) and rows < total
        if short or (isinstance(half, int) and isinstance(size, int) and 2 * half > size):
            raise ShapeError(
                f"angles {angles} for {total} positions of width {size}", expected="no fewer rows, and no wider pairs"
            )
    if cos is not None and sin is not None and cos.is_static and sin.is_static and cos.shape[-1:] != sin.shape[-1:]:  # type: ignore[index]
        raise ShapeError(f"cosines {cos} and sines {sin}", expected="as many columns")


def _check_bias(bias: TensorType | None, scores: Shape) -> None:
    if bias is None or bias.shape is None:
        return
    if bias.rank != 4:
        raise ShapeError(f"bias {bias}", expected="batch, heads, queries, keys")
    for axis, (given, wanted) in enumerate(zip(bias.shape, scores, strict=True)):
        known = isinstance(given, int) and isinstance(wanted, int)
        if known and given != wanted and (axis > 1 or given != 1):
            raise ShapeError(f"bias {bias} for scores [{', '.join(map(str, scores))}]", expected="those dims")


def _flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    batch, length, columns = results[0].dims
    keys = results[1].dims[2]
    return batch * length * keys * (columns * 4 + 9 * int(attrs["heads"]))


def _sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    count = len(known)
    if count in (3, 5, 7):
        return None
    given = [*known, *(None for _ in range(len(_NAMES) - count))]
    q, lens, cache, angles, bias = given[0], given[1], given[4] or given[5], given[6] or given[7], given[8]
    keys = given[2] or given[3]
    shared = attrs.get("shared", cache[1] if cache else rng.choice((1, 2)))
    heads = attrs.get("heads", given[9][0] if given[9] else shared * rng.choice((1, 2)))
    packed = count == 2
    lead = next((s for s in (q, keys) if s), None)
    batch = lead[0] if lead else cache[0] if cache else lens[0] if lens else rng.randint(1, 2)
    width = cache[3] if cache else None
    if width is None and q:
        width = exact_quotient(q[2], heads + 2 * shared if packed else heads)
    if width is None:
        width = exact_quotient(keys[2], shared) if keys else rng.choice((2, 4))
    past = cache[2] if cache else rng.randint(1, 3) if count > 4 else 0
    lengths = [lead[1]] if lead else [bias[2]] if bias else [1] if batch != 1 and past else [1, 2]
    length = rng.choice(lengths)
    total = attrs.get("total", bias[3] if bias else length + past)
    half = angles[1] if angles else 1
    drawn: list[Any] = [
        (batch, length, width * (heads + 2 * shared if packed else heads)),
        (batch,),
        *[(batch, length, width * shared)] * 2,
        *[(batch, shared, past, width)] * 2,
        *[(angles[0] if angles else total + rng.randint(0, 2), half)] * 2,
        (rng.choice((1, batch)), rng.choice((1, heads)), length, total),
        (heads,),
    ]
    full = {
        "heads": heads,
        "shared": shared,
        "total": total,
        "causal": rng.random() < 0.7,
        "window": rng.choice((0, 0, 2)),
        "softcap": rng.choice((0.0, 3.0)),
        "smooth": rng.random() < 0.3,
        "interleaved": rng.random() < 0.5,
        **attrs,
    }
    return [s if s is not None else d for s, d in zip(known, drawn, strict=False)], full


@op(
    infer=_type,
    flops=_flops,
    sample=_sample,
    operands=(2, 10),
    dtypes={1: "int32"},
    shapes="batch, length, heads·width; the two caches are batch, shared, positions, width.",
    demands=demands.cached,
)
def grouped_attention(
    xp: Any,
    q: Any,
    lens: Any,
    k: Any = None,
    v: Any = None,
    past_k: Any = None,
    past_v: Any = None,
    cos: Any = None,
    sin: Any = None,
    bias: Any = None,
    sink: Any = None,
    *,
    heads: int,
    shared: int,
    total: int,
    scale: float | None = None,
    softcap: float = 0.0,
    window: int = 0,
    causal: bool = True,
    smooth: bool = False,
    interleaved: bool = False,
) -> tuple[Any, Any, Any]:
    """Attention of new positions to all so far, and the keys and values of all so far, which are the next cache.

    The operand `q` is batch, length, heads · width, `k` and `v` have `shared` heads, each of several heads of `q` in
    turn; without them `q` holds all three side by side. Each sequence has lens + 1 positions, of which the last are
    new; `total` is the most of them. Where all positions are new, sequences may be padded at their end, and the padding
    sees the keys of its sequence; what it makes with a window is left open. The cache is batch, heads, positions,
    width, padded at the end by zeros. Pairs of columns of `q` and `k`, neighbours with `interleaved`, else halves, are
    turned by the angles of their position. Scores, `softcap` · tanh of them over it where it is above 0, plus the bias,
    become shares as by softmax, to which `sink` adds a score for each head that has no value, and `smooth` one of 0;
    nothing to look at makes 0. A query sees no later keys with `causal`, and then the last `window` ones alone where
    that is above 0.
    Source: GroupQueryAttention of ONNX Runtime; Ainslie et al. (2023).
    """
    batch, length = q.shape[:2]
    parts = (heads, shared, shared) if k is None else (heads,)
    size = q.shape[2] // sum(parts)
    if k is None:
        q, k, v = (q[:, :, a * size : b * size] for a, b in _ranges(parts))
    q, k, v = (_apart(x, n) for x, n in ((q, heads), (k, shared), (v, shared)))
    ends = np.asarray(lens, np.int64).reshape(batch) + 1
    before = 0 if past_k is None else past_k.shape[2]
    start = np.clip(ends - length, 0, before) if total != length else ends * 0
    if cos is not None:
        places = np.clip(start[:, None] + np.arange(length), 0, cos.shape[0] - 1)
        cos, sin = (np.take(x, places, axis=0)[:, None] for x in (cos, sin))
        q, k = (_turned(xp, x, cos, sin, interleaved) for x in (q, k))
    keys, values = (_filled(xp, p, x, start, max(total, before)) for p, x in ((past_k, k), (past_v, v)))
    seen = _seen(start, ends, length, keys.shape[2], causal, window)
    wide = [np.repeat(x, heads // shared, axis=1) for x in (keys, values)]
    factor = scale if scale is not None else 1.0 / math.sqrt(size)
    scores = xp.multiply(xp.matmul(q, np.swapaxes(wide[0], 2, 3)), xp.number(factor, q))
    if softcap > 0:
        cap = xp.number(softcap, q)
        scores = xp.multiply(cap, xp.apply("tanh", xp.divide(scores, cap)))
    if bias is not None:
        scores = xp.add(scores, _widened(xp, bias, scores.shape[3]))
    extra = sink.reshape(heads, 1, 1) if sink is not None else xp.number(0.0, q) if smooth else None
    attended = xp.matmul(_shares(xp, scores, seen, extra), wide[1])
    return np.swapaxes(attended, 1, 2).reshape(batch, length, heads * size), keys, values


def _ranges(parts: Sequence[int]) -> list[tuple[int, int]]:
    return [(sum(parts[:i]), sum(parts[: i + 1])) for i in range(len(parts))]


def _apart(x: Any, heads: int) -> Any:
    """Batch, length, heads · width with the heads as an axis of their own, before the length."""
    return np.swapaxes(x.reshape(*x.shape[:2], heads, x.shape[2] // heads), 1, 2)


def _turned(xp: Any, x: Any, cos: Any, sin: Any, interleaved: bool) -> Any:
    """The leading columns turned in pairs by angles; the rest as it is."""
    half = cos.shape[-1]
    one, two = (x[..., i : 2 * half : 2] if interleaved else x[..., i * half : (i + 1) * half] for i in range(2))
    pair = [
        xp.subtract(xp.multiply(one, cos), xp.multiply(two, sin)),
        xp.add(xp.multiply(two, cos), xp.multiply(one, sin)),
    ]
    whole = np.stack(pair, -1).reshape(*x.shape[:-1], 2 * half) if interleaved else np.concatenate(pair, -1)
    return np.concatenate([whole, x[..., 2 * half :]], -1)


def _filled(xp: Any, past: Any, new: Any, start: Any, count: int) -> Any:
    """The cache with each sequence's new positions after its earlier ones, and zeros after these."""
    before = 0 if past is None else past.shape[2]
    joined = new if past is None else np.concatenate([past, new], 2)
    places, first = np.arange(count), start[:, None]
    index = np.where(places < first, places, places - first + before)
    valid = places < first + new.shape[2]
    if not joined.shape[2]:
        return joined[:, :, :0]
    picked = np.take_along_axis(joined, np.where(valid, index, 0)[:, None, :, None], axis=2)
    return xp.where(valid[:, None, :, None], picked, xp.number(0.0, new))


def _seen(start: Any, ends: Any, length: int, count: int, causal: bool, window: int) -> Any:
    """A mask of the keys that each query looks at, of shape (batch, 1, queries, keys)."""
    places = np.arange(count)
    seen = places < ends[:, None, None]
    if causal:
        own = start[:, None, None] + np.arange(length)[:, None]
        seen = seen & (places <= own)
        if window > 0:
            seen = seen & (places > own - window)
    return np.broadcast_to(seen, (start.shape[0], length, count))[:, None]


def _widened(xp: Any, bias: Any, count: int) -> Any:
    """The bias with zeros for positions that it lacks, where nothing is."""
    lacking = count - bias.shape[3]
    if lacking <= 0:
        return bias
    zeros = np.broadcast_to(xp.number(0.0, bias), (*bias.shape[:3], lacking))
    return np.concatenate([bias, zeros], 3)


def _shares(xp: Any, scores: Any, seen: Any, extra: Any) -> Any:
    """Softmax of the scores that are seen, of a score beside them where there is one; 0 where nothing is seen."""
    seen, zero = np.broadcast_to(seen, scores.shape), xp.number(0.0, scores)
    if not xp.exact:
        top = xp.max(np.where(seen, scores, np.asarray(-np.inf, scores.dtype)), axis=(3,), keepdims=True)
        top = np.where(np.isneginf(top), zero, top)
        top = top if extra is None else np.maximum(top, extra)
        scores = xp.subtract(scores, top)
        extra = None if extra is None else xp.subtract(extra, top)
    weights = xp.where(seen, xp.apply("exp", scores), zero)
    whole = xp.sum(weights, axis=(3,), keepdims=True)
    if extra is not None:
        whole = xp.add(whole, xp.apply("exp", extra))
    # Where nothing is seen, 0 times whatever the inverse of 0 is.
    return xp.divide(weights, whole if xp.exact else np.where(seen.any(axis=3, keepdims=True), whole, zero + 1))
