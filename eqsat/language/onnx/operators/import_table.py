"""The translation of ONNX operators to ours: one table, most entries a line."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from eqsat.language.comprehension.calls import DOMAIN as COMPREHENSIONS
from eqsat.language.onnx.files.schemas import axes_are_inputs_since, is_derived, is_reduction
from eqsat.language.onnx.files.tensors import dtype_of
from eqsat.language.onnx.microsoft import importers as microsoft
from eqsat.language.onnx.ml import importers as ml
from eqsat.language.onnx.operators import (
    import_comprehensions,
    import_movement,
    import_nn,
    import_sequences,
    quantised,
    recurrent,
    vision,
)
from eqsat.language.onnx.operators.derived import GEMM, derived_importer, import_as, import_chain
from eqsat.language.onnx.operators.reasons import PREVIEWS, REASONS
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.ops import OPS
from eqsat.language.terms import DType


def _mean(call: Call) -> None:
    total = call.value(0)
    for i in range(1, call.arity):
        total = call.make("add", total, call.value(i))
    call.emit("div", total, call.number(call.arity, call.type(0).dtype))


def _clip(call: Call) -> None:
    if call.opset >= 11:
        return call.emit(call.op, call.value(0), call.optional(1), call.optional(2))
    dtype = call.type(0).dtype
    bounds = [call.number(call.attrs[k], dtype) if k in call.attrs else None for k in ("min", "max")]
    return call.emit(call.op, call.value(0), *bounds)


def _of_its_own(dtype: DType) -> str:
    """Why casts from and to an element type are left to the runtime; empty for plain numbers."""
    if dtype is DType.STRING:
        return "casts texts, which runtimes write each their own way"
    if dtype.value.startswith(("float8", "float4")):
        return "casts floats of a byte or less, in whose rounding and greatest number no operator here computes"
    return "casts numbers of less than a byte, packed in pairs" if "int4" in dtype.value else ""


def _cast(call: Call) -> None:
    to = dtype_of(call.attrs.get("to", 0))
    if to is None:
        raise Unsupported(f"cast to element type {call.attrs.get('to')}")
    _cast_to(call, to)


def _cast_like(call: Call) -> None:
    _cast_to(call, call.type(1).dtype)


def _cast_to(call: Call, to: DType) -> None:
    own = _of_its_own(to) or _of_its_own(call.type(0).dtype)
    if own:
        raise Unsupported(own)
    call.emit("cast", call.value(0), to=to.value)


def _dropout(call: Call) -> None:
    if call.opset >= 12 and call.has(2) and call.scalar(2):
        raise Unsupported("dropout in training mode is random")
    if call.uses(1):
        if call.opset < 12 and call.reads(1):
            raise Unsupported("before opset 12 ONNX does not say what the mask of Dropout holds")
        call.emit("fill", shape=call.shape(0), value=True, dtype="bool", outputs=[call.node.output[1]])
    call.emit("identity", call.value(0))


def _einsum(call: Call) -> None:
    equation = call.attrs.get("equation", "").replace(" ", "")
    call.emit(call.op, *(call.value(i) for i in range(call.arity)), equation=equation)


def _reduction(call: Call) -> None:
    """A reduction, whose axes are an attribute in older opsets and an operand in newer ones."""
    onnx, rank = call.node.op_type, len(call.shape(0))
    if onnx in _ROUNDED and not call.type(0).dtype.is_float:
        raise Unsupported(f"how {_ROUNDED[onnx]} of integers is rounded, and where it overflows, is ONNX Runtime's own")
    axes: tuple[int, ...] | None = call.attrs.get("axes")
    if call.opset >= axes_are_inputs_since(onnx):
        axes = call.integers(1) if call.has(1) else None
    if not axes and call.attrs.get("noop_with_empty_axes", 0) and call.opset >= axes_are_inputs_since(onnx):
        return _reduce_nothing(call)
    if axes and not rank:
        raise Unsupported("ONNX Runtime takes a scalar, which has no axis")
    normal = tuple(sorted({a + rank if a < 0 else a for a in axes})) if axes else tuple(range(rank))
    return call.emit(call.op, call.value(0), axes=normal, keepdims=_keeps_dims(call))


#: Reductions whose results are no integers, and the names of the results.
_ROUNDED = {"ReduceMean": "a mean", "ReduceLogSum": "a logarithm", "ReduceLogSumExp": "a logarithm"}


def _hard_swish(call: Call) -> None:
    if call.type(0).dtype is not DType.FLOAT64:
        return call.emit(call.op, call.value(0))
    # ONNX defines it by a HardSigmoid, whose attribute holds a sixth in 32 bits.
    gate = call.make("hard_sigmoid", call.value(0), alpha=float(np.float32(1 / 6)), beta=0.5)
    return call.emit("mul", call.value(0), gate)


def _prelu(call: Call) -> None:
    slope, shape = call.shape(1), call.shape(0)
    if len(slope) > len(shape) or any(s not in (1, d) for s, d in zip(slope[::-1], shape[::-1], strict=False)):
        raise Unsupported("ONNX Runtime spreads the input where the slope is larger, and ONNX does not")
    call.emit(call.op, call.value(0), call.value(1))


def _keeps_dims(call: Call) -> bool:
    """True if reduced axes stay as ones: 1 says so, and no other number does, in ONNX Runtime and in onnx."""
    return int(call.attrs.get("keepdims", 1)) == 1


def _reduce_nothing(call: Call) -> None:
    """With no axes each element is reduced alone."""
    if call.node.op_type in _KEEPS_ONE:
        call.emit("identity", call.value(0))
    else:
        call.emit(call.op, call.value(0), axes=(), keepdims=True)


#: Reductions that leave a single element as it is.
_KEEPS_ONE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


def _arg(call: Call) -> None:
    if not call.shape(0):
        raise Unsupported("ONNX Runtime takes a scalar, which has no axis")
    if call.shape(0)[call.axis(0)] == 0:
        raise Unsupported("there is no extreme element where an axis has none")
    last = bool(call.attrs.get("select_last_index", 0))
    keep = _keeps_dims(call)
    call.emit(call.op, call.value(0), axis=call.axis(0), keepdims=keep, select_last=last)


def _cumsum(call: Call) -> None:
    (axis,) = call.integers(1)
    exclusive, reverse = (bool(call.attrs.get(k, 0)) for k in ("exclusive", "reverse"))
    rank = len(call.shape(0))
    call.emit(call.op, call.value(0), axis=axis + rank if axis < 0 else axis, exclusive=exclusive, reverse=reverse)


def _topk(call: Call) -> None:
    k = call.integers(1)[0] if call.opset >= 10 else call.attrs["k"]
    call.emit(
        call.op,
        call.value(0),
        outputs=list(call.node.output),
        k=k,
        axis=call.axis(-1),
        largest=bool(call.attrs.get("largest", 1)),
        sorted=bool(call.attrs.get("sorted", 1)),
    )


def _gemm(call: Call) -> None:
    if not call.type(0).dtype.is_float:
        raise Unsupported("ONNX Runtime's Gemm of integers goes through floats, which the products of integers do not")
    import_as(**GEMM)(call)


#: ONNX operator -> the function that translates a node of it, where that does not follow from a declaration.
WRITTEN: Mapping[str, Importer] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "CumSum": _cumsum,
    "Dropout": _dropout,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "HardSwish": _hard_swish,
    "Mean": _mean,
    "PRelu": _prelu,
    "Sum": import_chain("add"),
    "TopK": _topk,
    **import_movement.IMPORTS,
    **import_nn.IMPORTS,
    **quantised.IMPORTS,
    **recurrent.IMPORTS,
    **import_sequences.IMPORTS,
    **vision.IMPORTS,
}


@lru_cache(maxsize=4)
def _table(domain: str, declared: tuple[str, ...]) -> Mapping[str, Importer]:
    """The functions that translate the operators of a domain, anew whenever others of ours are declared."""
    if domain == "ai.onnx.ml":
        return ml.IMPORTS
    if domain == COMPREHENSIONS:
        return import_comprehensions.IMPORTS
    rows: dict[str, Importer] = {}
    for one in (OPS[name] for name in declared):
        if one.onnx is None or one.onnx in rows:
            continue
        if is_reduction(one) and one.is_shipped:
            rows[one.onnx] = _reduction
        elif is_derived(one):
            rows[one.onnx] = derived_importer(one)
    table = {**rows, **WRITTEN, **microsoft.OWN}
    if domain == "com.microsoft":
        return {**{name: table[name] for name in microsoft.SAME_AS_ONNX}, **microsoft.IMPORTS}
    return table


#: Operators of ONNX's own domain that are read as several of ours, or that ONNX Runtime has before ONNX has them:
#: they are written as what they were.
FUSED = frozenset(microsoft.OWN) | {"GlobalLpPool", "LayerNormalization", "TensorScatter"}

#: Operators on values that are no tensors.
BEYOND_TENSORS = frozenset(import_sequences.IMPORTS)

#: The domains whose operators are known.
DOMAINS = ("", "ai.onnx.ml", "com.microsoft", COMPREHENSIONS)


def importers_of(domain: str) -> Mapping[str, Importer]:
    """The functions that translate the operators of a domain, by the operators' names there."""
    domain = "" if domain == "ai.onnx" else domain
    return _table(domain, tuple(OPS)) if domain in DOMAINS else {}


def reason_for(domain: str, op_type: str) -> str:
    """Why an operator that has no entry in the tables stays opaque."""
    if domain in PREVIEWS:
        return PREVIEWS[domain]
    if domain not in ("ai.onnx", *DOMAINS):
        return f"unknown domain {domain!r}"
    return REASONS.get(("" if domain == "ai.onnx" else domain, op_type), "no counterpart among the operators")
