"""How ONNX operators become ours: one table, most entries a line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.language.onnx.files.tensors import dtype_of
from eqsat.language.onnx.microsoft import importers as microsoft
from eqsat.language.onnx.microsoft.reasons import REASONS
from eqsat.language.onnx.ml import importers as ml
from eqsat.language.onnx.ml.types import REASONS as ML_REASONS
from eqsat.language.onnx.operators import (
    import_movement,
    import_nn,
    import_recurrent,
    import_sequences,
    import_vision,
)
from eqsat.language.onnx.operators.reasons import KEPT, PREVIEWS
from eqsat.language.onnx.quantised import importers as quantised
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.terms.types import DType


def same(op: str, **attrs: tuple[str, Any]) -> Importer:
    """An operator with the same operands; `attrs` maps our attributes to ONNX's names and defaults."""

    def translate(call: Call) -> None:
        values = {ours: type(default)(call.attrs.get(theirs, default)) for ours, (theirs, default) in attrs.items()}
        call.emit(op, *(call.optional(i) for i in range(call.arity)), **values)

    return translate


def chain(op: str) -> Importer:
    """An operator of any number of operands as a chain of binary ones."""

    def translate(call: Call) -> None:
        if call.arity == 1:
            return call.emit("identity", call.value(0))
        total = call.value(0)
        for i in range(1, call.arity - 1):
            total = call.make(op, total, call.value(i))
        return call.emit(op, total, call.value(call.arity - 1))

    return translate


def _mean(call: Call) -> None:
    total = call.value(0)
    for i in range(1, call.arity):
        total = call.make("add", total, call.value(i))
    call.emit("div", total, call.number(call.arity, call.type(0).dtype))


def _clip(call: Call) -> None:
    if call.opset >= 11:
        return call.emit("clip", call.value(0), call.optional(1), call.optional(2))
    dtype = call.type(0).dtype
    bounds = [call.number(call.attrs[k], dtype) if k in call.attrs else None for k in ("min", "max")]
    return call.emit("clip", call.value(0), *bounds)


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


def _selu(call: Call) -> None:
    alpha = call.attrs.get("alpha", 1.67326319217681884765625)
    call.emit("selu", call.value(0), alpha=alpha, gamma=call.attrs.get("gamma", 1.05070102214813232421875))


def _gelu(call: Call) -> None:
    call.emit("gelu", call.value(0), approximate=call.attrs.get("approximate", "none"))


def _einsum(call: Call) -> None:
    equation = call.attrs.get("equation", "").replace(" ", "")
    call.emit("einsum", *(call.value(i) for i in range(call.arity)), equation=equation)


def _bit_shift(call: Call) -> None:
    call.emit("bit_shift", call.value(0), call.value(1), direction=call.attrs.get("direction", "LEFT"))


def _isinf(call: Call) -> None:
    negative, positive = (bool(call.attrs.get(f"detect_{k}", 1)) for k in ("negative", "positive"))
    call.emit("isinf", call.value(0), detect_negative=negative, detect_positive=positive)


def reduction(op: str, axes_are_inputs_since: int) -> Importer:
    """A reduction, whose axes are an attribute in older opsets and an operand in newer ones."""

    def translate(call: Call) -> None:
        rank = len(call.shape(0))
        if op == "reduce_mean" and not call.type(0).dtype.is_float:
            raise Unsupported("how a mean of integers is rounded, and where it overflows, is ONNX Runtime's own")
        if op in ("reduce_log_sum", "reduce_log_sum_exp") and not call.type(0).dtype.is_float:
            raise Unsupported("how a logarithm of integers is rounded, and where it overflows, is ONNX Runtime's own")
        axes: tuple[int, ...] | None = call.attrs.get("axes")
        if call.opset >= axes_are_inputs_since:
            axes = call.integers(1) if call.has(1) else None
        if not axes and call.attrs.get("noop_with_empty_axes", 0) and call.opset >= axes_are_inputs_since:
            return _reduce_nothing(call, op)
        if axes and not rank:
            raise Unsupported("ONNX Runtime takes a scalar, which has no axis")
        normal = tuple(sorted({a + rank if a < 0 else a for a in axes})) if axes else tuple(range(rank))
        return call.emit(op, call.value(0), axes=normal, keepdims=_keeps_dims(call))

    return translate


def _hard_swish(call: Call) -> None:
    if call.type(0).dtype is not DType.FLOAT64:
        return call.emit("hard_swish", call.value(0))
    # ONNX defines it by a HardSigmoid, whose attribute holds a sixth in 32 bits.
    gate = call.make("hard_sigmoid", call.value(0), alpha=float(np.float32(1 / 6)), beta=0.5)
    return call.emit("mul", call.value(0), gate)


def _prelu(call: Call) -> None:
    slope, shape = call.shape(1), call.shape(0)
    if len(slope) > len(shape) or any(s not in (1, d) for s, d in zip(slope[::-1], shape[::-1], strict=False)):
        raise Unsupported("ONNX Runtime spreads the input where the slope is larger, and ONNX does not")
    call.emit("prelu", call.value(0), call.value(1))


def _keeps_dims(call: Call) -> bool:
    """Whether reduced axes stay as ones: 1 says so, and no other number does, in ONNX Runtime and in onnx."""
    return int(call.attrs.get("keepdims", 1)) == 1


def _reduce_nothing(call: Call, op: str) -> None:
    """With no axes each element is reduced alone."""
    if op in ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"):
        call.emit("identity", call.value(0))
    else:
        call.emit(op, call.value(0), axes=(), keepdims=True)


def _arg(op: str) -> Importer:
    def translate(call: Call) -> None:
        if not call.shape(0):
            raise Unsupported("ONNX Runtime takes a scalar, which has no axis")
        if call.shape(0)[call.axis(0)] == 0:
            raise Unsupported("there is no extreme element where an axis has none")
        last = bool(call.attrs.get("select_last_index", 0))
        keep = _keeps_dims(call)
        call.emit(op, call.value(0), axis=call.axis(0), keepdims=keep, select_last=last)

    return translate


def _cumsum(call: Call) -> None:
    (axis,) = call.integers(1)
    exclusive, reverse = (bool(call.attrs.get(k, 0)) for k in ("exclusive", "reverse"))
    rank = len(call.shape(0))
    call.emit("cumsum", call.value(0), axis=axis + rank if axis < 0 else axis, exclusive=exclusive, reverse=reverse)


def _topk(call: Call) -> None:
    k = call.integers(1)[0] if call.opset >= 10 else call.attrs["k"]
    call.emit(
        "topk",
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
    call.emit(
        "gemm",
        call.value(0),
        call.value(1),
        call.optional(2),
        alpha=call.attrs.get("alpha", 1.0),
        beta=call.attrs.get("beta", 1.0),
        trans_a=bool(call.attrs.get("transA", 0)),
        trans_b=bool(call.attrs.get("transB", 0)),
    )


#: Operators of one operand without attributes: ONNX's name -> ours.
UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp",
    "Floor": "floor", "GlobalAveragePool": "global_avg_pool", "GlobalMaxPool": "global_max_pool",
    "Identity": "identity", "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg",
    "Not": "not_", "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign",
    "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan",
    "Tanh": "tanh", "Size": "size",
}  # fmt: skip

#: Operators without attributes of two operands or three.
BINARY = {
    "Add": "add", "And": "and_", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or", "BitwiseXor": "bitwise_xor",
    "Div": "div", "Equal": "equal", "Greater": "greater", "GreaterOrEqual": "greater_equal", "Less": "less",
    "LessOrEqual": "less_equal", "MatMul": "matmul", "Mul": "mul", "Or": "or_", "Pow": "pow",
    "Sub": "sub", "Where": "where", "Xor": "xor",
}  # fmt: skip

#: Reductions, and the opset from which on their axes are an operand.
REDUCTIONS = {
    "ReduceL1": ("reduce_l1", 18), "ReduceL2": ("reduce_l2", 18), "ReduceLogSum": ("reduce_log_sum", 18),
    "ReduceLogSumExp": ("reduce_log_sum_exp", 18), "ReduceMax": ("reduce_max", 18), "ReduceMean": ("reduce_mean", 18),
    "ReduceMin": ("reduce_min", 18), "ReduceProd": ("reduce_prod", 18), "ReduceSum": ("reduce_sum", 13),
    "ReduceSumSquare": ("reduce_sum_square", 18),
}  # fmt: skip

#: ONNX operator -> the function that translates a node of it.
IMPORTS: Mapping[str, Importer] = MappingProxyType(
    {name: same(op) for name, op in (UNARY | BINARY).items()}
    | {name: reduction(op, since) for name, (op, since) in REDUCTIONS.items()}
    | {
        "ArgMax": _arg("argmax"),
        "ArgMin": _arg("argmin"),
        "BitShift": _bit_shift,
        "Cast": _cast,
        "CastLike": _cast_like,
        "Celu": same("celu", alpha=("alpha", 1.0)),
        "Clip": _clip,
        "CumSum": _cumsum,
        "Dropout": _dropout,
        "Einsum": _einsum,
        "Elu": same("elu", alpha=("alpha", 1.0)),
        "Gelu": _gelu,
        "Gemm": _gemm,
        "HardSigmoid": same("hard_sigmoid", alpha=("alpha", float(np.float32(0.2))), beta=("beta", 0.5)),
        "HardSwish": _hard_swish,
        "IsInf": _isinf,
        "LeakyRelu": same("leaky_relu", alpha=("alpha", float(np.float32(0.01)))),
        "Max": chain("maximum"),
        "Mean": _mean,
        "Min": chain("minimum"),
        "PRelu": _prelu,
        "Mod": same("mod", fmod=("fmod", False)),
        "Selu": _selu,
        "Shrink": same("shrink", bias=("bias", 0.0), lambd=("lambd", 0.5)),
        "Sum": chain("add"),
        "Swish": same("silu", alpha=("alpha", 1.0)),
        "ThresholdedRelu": same("thresholded_relu", alpha=("alpha", 1.0)),
        "TopK": _topk,
    }
    | dict(import_movement.IMPORTS)
    | dict(import_nn.IMPORTS)
    | dict(quantised.IMPORTS)
    | dict(import_recurrent.IMPORTS)
    | dict(import_sequences.IMPORTS)
    | dict(import_vision.IMPORTS)
)

#: Operators of ONNX's own domain that are read as several of ours, or that ONNX Runtime has before ONNX has them:
#: they are written as what they were.
FUSED = frozenset(microsoft.OWN) | {"GlobalLpPool", "LayerNormalization", "TensorScatter"}

#: Operators on values that are no tensors.
BEYOND_TENSORS = frozenset(import_sequences.IMPORTS)

#: The domains whose operators are known, and how their operators are translated.
DOMAINS: Mapping[str, Mapping[str, Importer]] = MappingProxyType(
    {
        "": MappingProxyType({**IMPORTS, **microsoft.OWN}),
        "ai.onnx.ml": ml.IMPORTS,
        "com.microsoft": MappingProxyType(
            {name: IMPORTS[name] for name in microsoft.SAME_AS_ONNX} | dict(microsoft.IMPORTS)
        ),
    }
)


def importers_of(domain: str) -> Mapping[str, Importer]:
    """How the operators of a domain are translated, by their names there."""
    return DOMAINS.get("" if domain == "ai.onnx" else domain, {})


def reason_for(domain: str, op_type: str) -> str:
    """Why an operator that has no entry in the tables stays opaque."""
    if domain in PREVIEWS:
        return PREVIEWS[domain]
    if domain not in ("ai.onnx", *DOMAINS):
        return f"unknown domain {domain!r}"
    unknown = "no counterpart among the operators"
    if domain in ("", "ai.onnx"):
        return KEPT.get(op_type) or REASONS.get(("", op_type), unknown)
    return {**REASONS, **ML_REASONS}.get((domain, op_type), unknown)
