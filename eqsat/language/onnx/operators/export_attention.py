"""Export of attention, by its parts where the opset lacks ONNX's operator, or that would mean something else."""

from __future__ import annotations

import numpy as np

from eqsat.language.graphs.attending import attends
from eqsat.language.onnx.write.exporting import ExportTarget
from eqsat.language.terms import DType
from eqsat.language.terms.matrices import lowest


def write_attention(target: ExportTarget) -> None:
    """Write ONNX's operator where it means the same, else products and a softmax.

    Products of queries and keys count as finite, so that only masks hide all keys from a query.
    """
    scale, causal = target.attrs["scale"], target.attrs["causal"]
    hidden = target.attrs["hidden"]
    # ONNX Runtime multiplies queries and keys by the root of the scale, as a float32.
    factor = _factor(target)
    exact = factor >= 0 and target.keeps(scale) and target.keeps(factor**0.5)
    if target.knows("Attention") and ((exact and hidden != "nan") or _parts_lack(target)):
        if hidden == "nan" and not attends(target.model.graph, _mask(target), causal=causal):
            raise target.refusal(_parts_lack(target), "a mask that is known to hide no query's keys all")
        values = ({"scale": scale} if scale is not None else {}) | ({"is_causal": 1} if causal else {})
        mask = [_spread(target)] if target.input(3) else []
        return target.emit("Attention", *target.inputs[:3], *mask, **values)
    if _parts_lack(target):
        target.needs(23, _parts_lack(target))
    dtype = target.type(0).dtype
    turned = target.make("Transpose", _for_each_head(target, 1), perm=[0, 1, 3, 2])
    scores = target.make("MatMul", target.input(0), turned)
    scores = target.make("Mul", scores, target.number(factor, dtype))
    visible = _kept(target) if causal or _has_boolean_mask(target) else ""
    if target.input(3) and not _has_boolean_mask(target):
        scores = target.make("Add", scores, target.input(3))
    if visible:
        scores = target.make("Where", visible, scores, target.number(-np.inf, dtype))
    shares = target.make("Softmax", scores, axis=3)
    guard = _guard(target, visible) if hidden == "zero" else ""
    if guard:
        # Softmax makes NaN of minus infinities alone.
        shares = target.make("Where", guard, shares, target.number(0.0, dtype))
    return target.emit("MatMul", shares, _for_each_head(target, 2))


def _for_each_head(target: ExportTarget, place: int) -> str:
    """Keys or values, repeated for the heads of queries that share them, but for one that a product spreads itself."""
    heads, shared = (target.type(index).dims[1] for index in (0, place))
    if shared in (heads, 1):
        return target.input(place)
    batch, _, length, width = target.type(place).dims
    count = int(str(heads)) // int(str(shared))
    apart = target.make("Reshape", target.input(place), target.shape((batch, shared, 1, length, width)))
    spread = target.make("Expand", apart, target.shape((batch, shared, count, length, width)))
    return target.make("Reshape", spread, target.shape((batch, heads, length, width)))


def _factor(target: ExportTarget) -> float:
    """The factor of the scores; 1 where only the size of a named dim tells."""
    width, scale = target.type(0).dims[3], target.attrs["scale"]
    if scale is not None:
        return float(scale)
    return 1.0 / float(np.sqrt(width)) if isinstance(width, int) else 1.0


def _parts_lack(target: ExportTarget) -> str:
    """The reason why the parts cannot be written; the empty string where they can."""
    query, key = target.type(0), target.type(1)
    if query.dims[1] != key.dims[1] and not all(isinstance(t.dims[1], int) for t in (query, key)):
        return "heads that share keys, as many as a name says"
    if target.attrs["scale"] is None and not isinstance(query.dims[3], int):
        return "a width known by name only"
    if target.attrs["causal"] and not all(isinstance(n, int) for n in (query.dims[2], key.dims[2])):
        return "a causal mask of a length known by name only"
    return ""


def _mask(target: ExportTarget) -> str | None:
    return target.node.inputs[3] if target.input(3) else None


def _spread(target: ExportTarget) -> str:
    """The mask with an axis of queries and one of keys; ONNX Runtime 1.31 refuses others, or 1 of either.

    ONNX itself takes a mask for fewer keys than there are as one that hides the others.
    """
    mask, lengths = target.type(3), (target.type(0).dims[2], target.type(1).dims[2])
    if mask.rank >= 2 and mask.dims[-2:] == lengths:
        return target.input(3)
    return target.make("Expand", target.input(3), target.shape((*mask.dims[:-2], *lengths)))


def _has_boolean_mask(target: ExportTarget) -> bool:
    return bool(target.input(3)) and target.type(3).dtype is DType.BOOL


def _kept(target: ExportTarget) -> str:
    """Booleans that say which keys a query may look at."""
    mask = target.input(3) if _has_boolean_mask(target) else ""
    if not target.attrs["causal"]:
        return mask
    causal = _causal(target)
    return target.make("And", causal, mask) if mask else causal


def _causal(target: ExportTarget) -> str:
    rows, columns = (int(str(target.type(i).dims[2])) for i in (0, 1))
    return target.model.parameter(np.tri(rows, columns, dtype=bool), DType.BOOL)


def _guard(target: ExportTarget, kept: str) -> str:
    """Booleans that are false where a mask hides a key; the empty string where each query has a key to look at.

    Where a query has none, its shares are NaN, and all of them are put to 0. Elsewhere those of hidden keys are 0.
    """
    if attends(target.model.graph, _mask(target), causal=target.attrs["causal"]):
        return ""
    if _has_boolean_mask(target):
        return kept
    dtype = target.type(3).dtype
    shown = target.make("Not", target.make("Less", target.input(3), target.number(lowest(dtype), dtype)))
    return target.make("And", shown, kept) if kept else shown
