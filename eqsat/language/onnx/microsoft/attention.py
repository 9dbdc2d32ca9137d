"""Import of attention and of rotary embeddings, those of ONNX Runtime and those of ONNX.

Queries, keys and values are brought to batch, heads, length, width, and the result back.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.language.onnx.microsoft import grouped
from eqsat.language.onnx.microsoft.quantised import restored
from eqsat.language.onnx.read.importing import Call, Importer, Unreadable, Unsupported, integer
from eqsat.language.terms import Dim, DType, Sym, exact_quotient
from eqsat.language.terms.matrices import lowest


def _refuse(call: Call, wanted: Mapping[str, object]) -> None:
    """Refuse attributes that have another value than the one that is handled."""
    for name, plain in wanted.items():
        if call.attrs.get(name, plain) != plain:
            raise Unsupported(f"{name} = {call.attrs[name]}")


def _refuse_inputs(call: Call, reasons: Mapping[int, str]) -> None:
    for index, reason in reasons.items():
        if call.has(index):
            raise Unsupported(reason)


def _width(total: Dim, heads: int) -> Dim:
    size = exact_quotient(total, heads)
    if size is None:
        raise Unsupported(f"{total} columns in {heads} heads")
    return size


def _apart(call: Call, value: str, heads: int) -> str:
    """Batch, length, heads · width with the heads as an axis of their own, before the length."""
    batch, length, columns = _dims(call, value)
    split = call.make("reshape", value, shape=(batch, length, heads, _width(columns, heads)))
    return call.make("transpose", split, perm=(0, 2, 1, 3))


def _dims(call: Call, value: str) -> tuple[Dim, ...]:
    shape = call.type_of(value).shape
    if shape is None:
        raise Unsupported(f"the rank of {value!r} is unknown")
    return shape


def _together(call: Call, value: str) -> None:
    """Emit the value with the heads that `_apart` took apart side by side again."""
    batch, heads, length, width = _dims(call, value)
    turned = call.make("transpose", value, perm=(0, 2, 1, 3))
    call.emit("reshape", turned, shape=(batch, length, heads * width))


def _part(call: Call, value: str, axis: int, start: Dim, end: Dim, step: int = 1) -> str:
    return call.make("slice", value, starts=(start,), ends=(end,), axes=(axis,), steps=(step,))


def _longer(call: Call, value: str, past: str | None, output: int) -> str:
    """Keys or values after those of a cache; handed out where an output asks for them."""
    name = call.node.output[output] if call.uses(output) else ""
    if past is None:
        if name:
            call.emit("identity", value, outputs=[name])
        return value
    if not name:
        return call.make("concat", past, value, axis=2)
    call.emit("concat", past, value, axis=2, outputs=[name])
    return name


def _kept(call: Call, mask: int, keys: Dim, batch: Dim) -> str:
    """Where keys may be looked at: of a mask by key, by query and key, or of the number of keys of each sequence."""
    shape, dtype = call.shape(mask), call.type(mask).dtype
    zero = call.number(0, dtype)
    if len(shape) == 1 and shape == (batch,):
        lengths = call.make("reshape", call.value(mask), shape=(batch, 1, 1, 1))
        return call.make("less", call.make("iota", size=keys, dtype=dtype.value), lengths)
    if len(shape) == 2 and shape[1] == keys:
        return call.make("reshape", call.make("less", zero, call.value(mask)), shape=(shape[0], 1, 1, keys))
    if len(shape) == 3 and shape[2] == keys:
        return call.make("reshape", call.make("less", zero, call.value(mask)), shape=(shape[0], 1, shape[1], keys))
    raise Unsupported(f"a mask of shape [{', '.join(map(str, shape))}] for {keys} keys")


def _mask(call: Call, mask: int, bias: int, q: str, k: str) -> str | None:
    """The addend of the scores: the filter value where a mask is 0, and a bias.

    With a bias or an extreme filter value, keys later than their query are in it too, as the least float, as which
    ONNX Runtime has them: not minus infinity, by which a query from which all else is hidden would still tell them.
    """
    total, dtype, keys = call.optional(bias), call.type_of(q).dtype, _dims(call, k)[2]
    added: str | None = None
    if call.has(mask):
        low = call.number(_filter_value(call), dtype)
        visible = _kept(call, mask, keys, _dims(call, q)[0])
        added = call.make("where", visible, call.number(0.0, dtype), low)
    if call.attrs.get("unidirectional", 0) and not _may_be_causal(call, mask, bias, dtype):
        places = [call.make("iota", size=n, dtype="int64") for n in (_dims(call, q)[2], keys)]
        rows = call.make("reshape", places[0], shape=(_dims(call, q)[2], 1))
        seen = call.make("less_equal", places[1], rows)
        added = call.make("where", seen, added or call.number(0.0, dtype), call.number(lowest(dtype), dtype))
    return added if total is None else total if added is None else call.make("add", total, added)


def _filter_value(call: Call) -> float:
    return float(call.attrs.get("mask_filter_value", -10000.0))


def _may_be_causal(call: Call, mask: int, bias: int, dtype: DType) -> bool:
    """True where the numbers added to scores leave each query a key that is far above the least float."""
    return not call.has(bias) and (not call.has(mask) or _filter_value(call) > 0.5 * lowest(dtype))


def _causal(call: Call, q: str, k: str, past: int, mask: int, bias: int) -> bool:
    """True if keys later than their query are left out by the operator; the operands at `mask` and `bias` are added."""
    if not call.attrs.get("unidirectional", 0):
        return False
    if call.has(past) or _dims(call, q)[2] != _dims(call, k)[2]:
        raise Unsupported("unidirectional attention to a cache")
    return _may_be_causal(call, mask, bias, call.type_of(q).dtype)


def _scale(call: Call) -> float | None:
    """The factor of the scores; None where it is 1 / √width."""
    scale = call.attrs.get("scale", 0.0)
    return float(scale) if scale else None


def _multi_head_attention(call: Call) -> None:
    _refuse_inputs(call, {8: "a cache that is filled up to a length known at run time", 9: "a cache that beams share"})
    if call.uses(3):
        raise Unsupported("the scores as a result")
    if (call.has(6), call.has(7)) != (call.uses(1), call.uses(2)) and (call.has(6) or call.has(7)):
        # ONNX Runtime 1.31 then computes something else than with the keys and values of the cache before its own.
        raise Unsupported("a cache that is not handed on")
    if not call.has(1) or not call.has(2):
        raise Unsupported("queries, keys and values packed into one tensor")
    heads = int(call.attrs["num_heads"])
    query, key = call.shape(0), call.shape(1)
    operands = [call.value(i) for i in range(3)]
    if call.has(3):
        operands = _with_bias(call, operands)
    q, k, v = (o if len(_dims(call, o)) == 4 else _apart(call, o, heads) for o in operands)
    if len(query) != 3 or any(len(_dims(call, x)) != 4 for x in (q, k, v)):
        raise Unsupported(f"queries of rank {len(query)} and keys of rank {len(key)}")
    k = _longer(call, k, call.optional(6), 1)
    v = _longer(call, v, call.optional(7), 2)
    causal = _causal(call, q, k, 6, 4, 5)
    mask = _mask(call, 4, 5, q, k)
    _together(call, call.make("attention", q, k, v, mask, scale=_scale(call), causal=causal, hidden="nan"))


def _with_bias(call: Call, operands: list[str]) -> list[str]:
    """Queries, keys and values with their parts of one bias added."""
    if any(len(_dims(call, o)) != 3 for o in operands):
        raise Unsupported("a bias of keys that are apart by head")
    widths = [_dims(call, o)[2] for o in operands]
    added, start = [], widths[0] * 0
    for operand, width in zip(operands, widths, strict=True):
        part = _part(call, call.value(3), 0, start, start + width)
        added.append(call.make("add", operand, part))
        start = start + width
    return added


def _self_attention(call: Call) -> None:
    """Attention whose queries, keys and values are one product of the operand."""
    _refuse(call, {"do_rotary": 0, "past_present_share_buffer": 0})
    _refuse_inputs(call, {6: "a cache that is filled up to a length known at run time"})
    if call.has(4) and not call.uses(1):
        raise Unsupported("a cache that is not handed on")
    heads, total = int(call.attrs["num_heads"]), call.shape(1)[1]
    sizes = call.attrs.get("qkv_hidden_sizes")
    widths: list[Dim] = list(sizes) if sizes else [_width(total, 3)] * 3
    projected = call.make("matmul", call.value(0), call.value(1))
    if call.has(2):
        projected = call.make("add", projected, call.value(2))
    q, k, v = _heads_of(call, projected, widths, heads)
    if call.has(4):
        k, v = (call.make("concat", past, x, axis=2) for past, x in zip(_pasts(call), (k, v), strict=True))
    if call.uses(1):
        batch, _, length, width = _dims(call, k)
        ways = [call.make("reshape", x, shape=(1, batch, heads, length, width)) for x in (k, v)]
        call.emit("concat", *ways, axis=0, outputs=[call.node.output[1]])
    causal = _causal(call, q, k, 4, 3, 5)
    mask = _mask(call, 3, 5, q, k)
    _together(call, call.make("attention", q, k, v, mask, scale=_scale(call), causal=causal, hidden="nan"))


def _heads_of(call: Call, projected: str, widths: list[Dim], heads: int) -> list[str]:
    """Queries, keys and values side by side as heads apart."""
    parts, start = [], widths[0] * 0
    for width in widths:
        parts.append(_apart(call, _part(call, projected, 2, start, start + width), heads))
        start = start + width
    return parts


def _quantised_attention(call: Call) -> None:
    """Attention whose queries, keys and values are one product of quantised numbers, with a bias of floats."""
    _refuse(call, {"do_rotary": 0, "past_present_share_buffer": 0})
    _refuse_inputs(call, {8: "a cache beside quantised numbers"})
    if call.uses(1):
        raise Unsupported("keys and values as results")
    heads, total = int(call.attrs["num_heads"]), call.shape(1)[1]
    projected = call.make("matmul", restored(call, 0, 3, 6), restored(call, 1, 4, 7, 1))
    projected = call.make("add", projected, call.value(2))
    q, k, v = _heads_of(call, projected, [_width(total, 3)] * 3, heads)
    # It has no operand of scores to add: one after the last is none.
    causal = _causal(call, q, k, 8, 5, call.arity)
    mask = _mask(call, 5, call.arity, q, k)
    _together(call, call.make("attention", q, k, v, mask, scale=_scale(call), causal=causal, hidden="nan"))


def _pasts(call: Call) -> list[str]:
    """The keys and the values of a cache that holds both."""
    shape = call.shape(4)
    return [call.make("reshape", _part(call, call.value(4), 0, i, i + 1), shape=shape[1:]) for i in range(2)]


def _check_mask(call: Call) -> None:
    """Unreadable where a mask may lack elements for some keys: ONNX hides those, its definition does not."""
    if not call.has(3):
        return
    given = call.shape(1)[-2] + (call.shape(4)[2] if call.has(4) else 0)
    told = call.shape(3)[-1:]
    if told != (given,) and any(isinstance(d, int) for d in (given, *told)):
        raise Unreadable(f"a mask that may not be one for all of {given} keys")


def _onnx_attention(call: Call) -> None:
    """ONNX's Attention, on heads apart or together, with a cache that grows."""
    _check_mask(call)
    _refuse(call, {"softcap": 0.0, "left_window_size": -1, "right_window_size": -1})
    _refuse_inputs(call, {6: "keys that count up to a length known at run time"})
    if call.uses(3):
        raise Unsupported("the scores as a result")
    names = ("q_num_heads", "kv_num_heads", "kv_num_heads")
    operands = [
        call.value(i) if len(call.shape(i)) == 4 else _apart(call, call.value(i), int(call.attrs[name]))
        for i, name in enumerate(names)
    ]
    q, k, v = operands
    causal = bool(call.attrs.get("is_causal", 0))
    if causal and call.has(4):
        raise Unsupported("causal attention to a cache")
    k, v = (_longer(call, x, call.optional(i + 4), i + 1) for i, x in enumerate((k, v)))
    mask, scale = call.optional(3), call.attrs.get("scale")
    if len(call.shape(0)) == 4:
        return call.emit("attention", q, k, v, mask, scale=scale, causal=causal)
    return _together(call, call.make("attention", q, k, v, mask, scale=scale, causal=causal))


def _rotated(call: Call, x: str, cos: str, sin: str, width: int, interleaved: bool) -> str:
    """The first `width` columns turned in pairs by angles; the rest as it is."""
    *lead, columns = _dims(call, x)
    axis, half = len(lead), width // 2
    if interleaved:
        pair = [_part(call, x, axis, i, width, 2) for i in range(2)]
    else:
        pair = [_part(call, x, axis, 0, half), _part(call, x, axis, half, width)]
    one, two = pair
    turned = [
        call.make("sub", call.make("mul", cos, one), call.make("mul", sin, two)),
        call.make("add", call.make("mul", sin, one), call.make("mul", cos, two)),
    ]
    if interleaved:
        columns_apart = [call.make("reshape", t, shape=(*lead, half, 1)) for t in turned]
        both = call.make("concat", *columns_apart, axis=axis + 1)
        whole = call.make("reshape", both, shape=(*lead, width))
    else:
        whole = call.make("concat", *turned, axis=axis)
    if columns == width:
        return whole
    return call.make("concat", whole, _part(call, x, axis, width, columns), axis=axis)


def _rotary(call: Call, cos: str, sin: str) -> None:
    """Emit the operand turned by cosines and sines of batch, length, half of the width."""
    shape, heads = call.shape(0), int(call.attrs.get("num_heads", 0))
    batch, length = shape[0], shape[1] if len(shape) == 3 else shape[2]
    half = integer(_dims(call, cos)[2])
    width = int(call.attrs.get("rotary_embedding_dim", 0)) or 2 * half
    if width != 2 * half:
        raise Unsupported(f"{half} angles for {width} columns")
    interleaved = bool(call.attrs.get("interleaved", 0))
    if len(shape) == 4:
        apart = [call.make("reshape", c, shape=(_dims(call, c)[0], 1, length, half)) for c in (cos, sin)]
        return call.emit("identity", _rotated(call, call.value(0), apart[0], apart[1], width, interleaved))
    if not heads:
        count = exact_quotient(shape[2], width)
        heads = 0 if count is None or isinstance(count, Sym) else count
    if not heads:
        raise Unsupported("heads that nothing counts")
    x = call.make("reshape", call.value(0), shape=(batch, length, heads, _width(shape[2], heads)))
    apart = [call.make("reshape", c, shape=(_dims(call, c)[0], length, 1, half)) for c in (cos, sin)]
    return call.emit("reshape", _rotated(call, x, apart[0], apart[1], width, interleaved), shape=shape)


def _rotary_by_position(call: Call) -> None:
    """ONNX Runtime's RotaryEmbedding, whose positions are one for each token, or that of the first alone."""
    _refuse(call, {"is_packed_batching": 0, "scale": 1.0})
    shape, places = call.shape(0), call.shape(1)
    length = shape[1] if len(shape) == 3 else shape[2]
    half = call.shape(2)[1]
    if len(places) == 2:
        return _rotary(call, *(call.make("gather", call.value(i), call.value(1), axis=0) for i in (2, 3)))
    (start,) = call.integers(1)
    rows = [_part(call, call.value(i), 0, start, start + length) for i in (2, 3)]
    return _rotary(call, *(call.make("reshape", r, shape=(1, length, half)) for r in rows))


def _onnx_rotary(call: Call) -> None:
    """ONNX's RotaryEmbedding: angles for each token, or for each position that there is."""
    if call.has(3):
        return _rotary(call, *(call.make("gather", call.value(i), call.value(3), axis=0) for i in (1, 2)))
    return _rotary(call, call.value(1), call.value(2))


def _decoding(call: Call) -> None:
    raise Unsupported("one token at a time over a cache that is written in place")


#: Attentions of ONNX's own domain.
OF_ONNX: Mapping[str, Importer] = {"Attention": _onnx_attention, "RotaryEmbedding": _onnx_rotary}

#: Attentions of ONNX Runtime.
IMPORTS: Mapping[str, Importer] = {
    "Attention": _self_attention,
    "DecoderMaskedMultiHeadAttention": _decoding,
    "DecoderMaskedSelfAttention": _decoding,
    "GroupQueryAttention": grouped.read,
    "MultiHeadAttention": _multi_head_attention,
    "QAttention": _quantised_attention,
    "RotaryEmbedding": _rotary_by_position,
}
