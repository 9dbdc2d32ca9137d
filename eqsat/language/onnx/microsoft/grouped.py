"""ONNX Runtime's GroupQueryAttention, read as one operator and written as it was.

Source: its schema and the results of the kernel for CPUs, both of ONNX Runtime 1.31.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from eqsat.language.onnx.read.importing import Call, Unsupported
from eqsat.language.onnx.write.exporting import ExportTarget
from eqsat.language.terms import Dim, DType

#: Operands that are not read, by place: why.
_REFUSED = {
    9: "positions that are given (position_ids), of which its kernel takes the first alone for a prompt",
    12: "a cache of quantised keys",
    13: "a cache of quantised values",
    14: "queries that are normalised within, which no kernel for CPUs does",
    15: "keys that are normalised within, which no kernel for CPUs does",
}
_TOTAL = 6
_FLOATS = (DType.FLOAT32, DType.FLOAT16)


def read(call: Call) -> None:
    """Add the operator for a node; Unsupported where its cache has a size, or a form, that is not known ahead."""
    attrs = call.attrs
    for place, reason in _REFUSED.items():
        if call.has(place):
            raise Unsupported(reason)
    if attrs.get("sliding_window_cache", 0):
        raise Unsupported("a cache that drops positions as it goes (sliding_window_cache)")
    if attrs.get("qk_output", 0) or call.uses(3):
        raise Unsupported("the scores as a result")
    if not (call.uses(1) and call.uses(2)):
        # ONNX Runtime 1.31 then looks at other keys.
        raise Unsupported("a cache that is not handed on")
    window = int(attrs.get("local_window_size", -1))
    if window == 0:
        raise Unsupported("a window of no positions")
    floats = [i for i in (0, 1, 2, 3, 4, 7, 8, 10, 11) if call.has(i)]
    if call.type(0).dtype not in _FLOATS or any(call.type(i).dtype is not call.type(0).dtype for i in floats):
        raise Unsupported("operands of " + " and ".join(sorted({call.type(i).dtype.value for i in floats})))
    rotary = attrs.get("do_rotary", 0) == 1
    if rotary and not call.has(7):
        raise Unsupported("positions without angles")
    scale = float(attrs.get("scale", 0.0))
    call.emit(
        "grouped_attention",
        call.value(0),
        _lengths(call),
        *(call.optional(i) for i in (1, 2, 3, 4)),
        *(call.optional(i) if rotary else None for i in (7, 8)),
        *(call.optional(i) for i in (10, 11)),
        outputs=call.node.output[:3],
        heads=int(attrs["num_heads"]),
        shared=int(attrs["kv_num_heads"]),
        total=_total(call),
        scale=scale or None,
        softcap=max(float(attrs.get("softcap", 0.0)), 0.0),
        window=max(window, 0),
        causal=bool(attrs.get("causal", 1)),
        smooth=attrs.get("smooth_softmax", 0) == 1,
        interleaved=attrs.get("rotary_interleaved", 0) == 1,
    )


def _lengths(call: Call) -> str:
    """The number of positions each sequence has, less one, as a vector."""
    if len(call.shape(5)) == 1:
        return call.value(5)
    return call.make("reshape", call.value(5), shape=(call.shape(0)[0],))


def _total(call: Call) -> Dim:
    """The most positions a sequence has; without a cache, the kernel takes none but the new ones."""
    if not call.has(3):
        return call.shape(0)[1]
    call.shape(3)
    try:
        (total,) = call.dims(_TOTAL)
    except Unsupported as fault:
        raise Unsupported(
            "how many positions there are (total_sequence_length), and so the size of its cache, is known at run time"
        ) from fault
    return total


def write(target: ExportTarget) -> None:
    """Write the operator as GroupQueryAttention, all results named: with fewer its kernel looks at other keys."""
    attrs = target.attrs
    values: dict[str, Any] = {"num_heads": attrs["heads"], "kv_num_heads": attrs["shared"]}
    if attrs["scale"] is not None:
        values["scale"] = attrs["scale"]
    if attrs["softcap"] > 0:
        values["softcap"] = attrs["softcap"]
    if attrs["window"] > 0 and attrs["causal"]:
        values["local_window_size"] = attrs["window"]
    if not attrs["causal"]:
        values["causal"] = 0
    if attrs["smooth"]:
        values["smooth_softmax"] = 1
    if target.input(6):
        values |= {"do_rotary": 1, "rotary_interleaved": int(attrs["interleaved"])}
    q, lens, k, v, past_k, past_v, cos, sin, bias, sink = (target.input(i) for i in range(10))
    operands = [q, k, v, past_k, past_v, lens, _written(target), cos, sin, "", bias, sink]
    target.outputs = [o or target.model.fresh(f"{target.outputs[0] or 'unused'}/cache") for o in target.outputs]
    target.emit_fused("com.microsoft", "GroupQueryAttention", *operands, **values)


def _written(target: ExportTarget) -> str:
    """The most positions as a vector of one int32."""
    total = target.attrs["total"]
    if isinstance(total, int):
        return target.model.parameter(np.array([total]), DType.INT32)
    return target.model.dims.narrow(total)
