"""Attention: softmax of the products of queries and keys, by which values are averaged."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.errors import ShapeError
from eqsat.language.declaration import Operands, Sample, op, present, same_dtype
from eqsat.language.ops import sampling
from eqsat.language.ops.nn.normalisation import softmax
from eqsat.language.ops.operands import enumeration
from eqsat.language.terms import Attrs, Dim, DType, Shape, TensorType, broadcast_shapes


def _attention_type(operands: Operands, attrs: Attrs) -> tuple[TensorType]:
    if attrs["hidden"] not in ("zero", "nan", "none"):
        raise ShapeError(f"hidden = {attrs['hidden']!r}", expected="'zero', 'nan' or 'none'")
    q, k, v = (present(operands, i) for i in range(3))
    same_dtype([q, k, v])
    if q.shape is None or k.shape is None or v.shape is None:
        return (q.with_shape(None),)
    if not q.rank == k.rank == v.rank == 4:
        raise ShapeError(f"attention of {q}, {k}, {v}", expected="batch, heads, length, width each")
    # The reference repeats heads; nothing else broadcasts, and the result has the batch of q.
    pairs = ((q, 0, k, "batches"), (k, 0, v, "batches"), (k, 1, v, "heads"), (q, 3, k, "widths"), (k, 2, v, "lengths"))
    for one, axis, other, what in pairs:
        a, b = one.dims[axis], other.dims[axis]
        if isinstance(a, int) and isinstance(b, int) and a != b:
            raise ShapeError(f"attention of {q}, {k}, {v}: {what} {a} and {b} differ", expected=f"equal {what}")
    heads, shared = q.shape[1], k.shape[1]
    if isinstance(heads, int) and isinstance(shared, int) and (heads % shared if shared else heads):
        raise ShapeError(f"attention of {q}, {k}, {v}", expected="heads of q a multiple of those of k and v")
    mask = operands[3] if len(operands) > 3 else None
    if mask is not None and mask.shape is not None:
        _check_mask(mask, (*q.shape[:3], k.shape[2]))
    return (q.with_shape((*q.shape[:3], v.shape[3])),)


def _check_mask(mask: TensorType, scores: Shape) -> None:
    joined = broadcast_shapes(scores, mask.dims)
    known = (d for d in zip(joined, scores, strict=False) if all(isinstance(n, int) for n in d))
    if len(joined) > len(scores) or any(a != b for a, b in known):
        shown = ", ".join(map(str, scores))
        raise ShapeError(f"mask {mask} for scores [{shown}]", expected="a shape that broadcasts to that of the scores")


def _attention_flops(operands: Operands, results: Sequence[TensorType], attrs: Attrs) -> Dim:
    q, k, v = (present(operands, i).dims for i in range(3))
    scores = q[0] * q[1] * q[2] * k[2]
    return scores * (q[3] * 2) + scores * (v[3] * 2) + scores * 9


def _attention_sample(rng: random.Random, known: Sequence[Shape | None], attrs: Mapping[str, Any]) -> Sample:
    q, k, v = known[0], known[1], known[2]
    given = next((s for s in (q, k, v) if s is not None), None)
    if any(s is not None and len(s) != 4 for s in (q, k, v)):
        return None
    batch, heads = (given[0], given[1]) if given is not None else (rng.randint(1, 2), rng.choice((1, 2)))
    width = q[3] if q is not None else k[3] if k is not None else sampling.dim(rng)
    length = k[2] if k is not None else v[2] if v is not None else sampling.dim(rng)
    shared = k[1] if k is not None else v[1] if v is not None else rng.choice((1, heads))
    q = q or (batch, heads, sampling.dim(rng), width)
    k = k or (batch, shared, length, width)
    v = v or (batch, shared, length, sampling.dim(rng))
    masks = [s if s is not None else (q[2], k[2]) for s in known[3:]]
    drawn = {
        "causal": rng.random() < 0.3,
        "scale": rng.choice((None, 0.5, 2.0)),
        "hidden": rng.choice(("zero", "nan", "none")),
    }
    return [q, k, v, *masks], {**drawn, **attrs}


@op(
    infer=_attention_type,
    flops=_attention_flops,
    sample=_attention_sample,
    multilinear=(2,),
    index="b [h q d], b [h k d], b [h k] v -> b [h q] v",
    onnx="Attention",
    accumulates=True,
    beside=enumeration.attended,
)
def attention(
    xp: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    *,
    scale: float | None = None,
    causal: bool = False,
    hidden: str = "zero",
) -> Any:
    """softmax(q kᵀ · scale + mask) v for tensors of batch, heads, length, width; `scale` is 1/√width where left out.

    Fewer heads of k and v are shared by neighbouring heads of q. A mask of booleans keeps where true; `causal` keeps
    keys no later than their query, counted from the start. `hidden` states the shares of a query whose scores
    are all minus infinity: "zero", as in ONNX's operator, or "nan", as softmax makes them; "none" that there is no such
    query, so that either may be computed.
    """
    share = q.shape[1] // max(k.shape[1], 1)
    k, v = (np.repeat(t, share, axis=1) for t in (k, v))
    factor = scale if scale is not None else 1.0 / math.sqrt(q.shape[3])
    scores = _scaled_scores(xp, q, k, factor)
    visible: Any = np.tri(q.shape[2], k.shape[2], dtype=bool) if causal else None
    if mask is not None and _is_boolean(mask):
        visible = mask if visible is None else np.logical_and(visible, mask)
    elif mask is not None:
        scores = xp.add(scores, mask)
    return xp.matmul(_kept_softmax(xp, scores, visible, hidden), v)


def _scaled_scores(xp: Any, q: Any, k: Any, factor: float) -> Any:
    """The scaled products of q and k; floats scale both by the root, as ONNX does, so that halves round alike."""
    if xp.exact or factor < 0:
        return xp.multiply(xp.matmul(q, np.swapaxes(k, -1, -2)), xp.number(factor, q))
    root = xp.number(math.sqrt(factor), q)
    return xp.matmul(xp.multiply(q, root), np.swapaxes(xp.multiply(k, root), -1, -2))


def _is_boolean(mask: Any) -> bool:
    if mask.dtype != object:
        return DType.of(mask.dtype) is DType.BOOL
    first: Any = mask.flat[0] if mask.size else None
    return isinstance(first, bool | np.bool_) or (hasattr(first, "sort") and first.sort().name() == "Bool")


def _kept_softmax(xp: Any, scores: Any, kept: Any, hidden: str) -> Any:
    """Softmax over the last axis of the elements kept, 0 elsewhere; rows of minus infinities as `hidden` says."""
    kept = None if kept is None else np.broadcast_to(kept, scores.shape)
    if not xp.exact:
        low = np.asarray(-np.inf, scores.dtype)
        lowered = scores if kept is None else np.where(kept, scores, low)
        shares = softmax.reference(xp, lowered, axis=-1)
        if hidden != "zero":
            return shares
        return np.where(np.all(lowered == low, axis=-1, keepdims=True), xp.number(0.0, scores), shares)
    if kept is None:
        return softmax.reference(xp, scores, axis=-1)
    # Where none is kept, 0 times whatever the inverse of 0 is.
    weights = xp.where(kept, xp.apply("exp", scores), xp.number(0.0, scores))
    return xp.divide(weights, xp.sum(weights, axis=(-1,), keepdims=True))
