"""Import of ONNX Runtime's operators: one table, most entries of a few lines.

Source: ContribOperators.md of ONNX Runtime 1.22, and results of 1.31.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eqsat.language.onnx.microsoft import attention
from eqsat.language.onnx.microsoft import quantised as own_quantised
from eqsat.language.onnx.operators import quantised
from eqsat.language.onnx.operators.derived import GEMM, stated
from eqsat.language.onnx.operators.import_nn import emit_normalised, geometry
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.ops.quantised.packed import BITS
from eqsat.language.terms import DType, TensorType

#: Operators that ONNX has by the same name and with the same meaning.
SAME_AS_ONNX = ("GatherND", "Range", "Trilu")


def _plus(call: Call, value: str, index: int) -> str:
    """The value with an operand added, where that is given."""
    addend = call.optional(index)
    return value if addend is None else call.make("add", value, addend)


def _gelu(call: Call) -> None:
    call.emit("gelu", call.value(0))


def _bias_gelu(call: Call) -> None:
    call.emit("gelu", _plus(call, call.value(0), 1))


def _fast_gelu(call: Call) -> None:
    call.emit("gelu", _plus(call, call.value(0), 1), approximate="tanh")


def _quick_gelu(call: Call) -> None:
    call.emit("silu", call.value(0), alpha=call.attrs.get("alpha", 1.702))


def _no_statistics(call: Call, *indices: int) -> None:
    if any(call.uses(i) for i in indices):
        raise Unsupported("the mean and deviation of a normalisation")


def _single(call: Call) -> None:
    """Refuse halves, which ONNX Runtime normalises in float32 and the operators here do not."""
    if call.type(0).dtype not in (DType.FLOAT32, DType.FLOAT64):
        raise Unsupported(f"normalisation of {call.type(0).dtype.value}, summed in float32")


def _skipped(call: Call, bias: int, *, name: str = "") -> str:
    """The sum of the operand, its skip connection and a bias; handed out where an output of its own asks for it."""
    if call.uses(3):
        name = call.node.output[3]
    total, addend = call.value(0), call.optional(bias)
    if addend is None:
        return _named(call, name, "add", total, call.value(1))
    return _named(call, name, "add", call.make("add", total, call.value(1)), addend)


def _named(call: Call, name: str, op: str, *operands: str) -> str:
    if not name:
        return call.make(op, *operands)
    call.emit(op, *operands, outputs=[name])
    return name


def _skip_layer_norm(call: Call) -> None:
    _no_statistics(call, 1, 2)
    _single(call)
    total = _skipped(call, 4)
    attrs = {"axis": _last(call), "epsilon": _epsilon(call, 1e-12)}
    emit_normalised(call, "layer_norm", total, call.value(2), call.optional(3), **attrs)


def _skip_rms_norm(call: Call) -> None:
    _no_statistics(call, 1, 2)
    _single(call)
    total = _skipped(call, 3)
    emit_normalised(call, "rms_norm", total, call.value(2), axis=_last(call), epsilon=_epsilon(call, 1e-12))


def _last(call: Call) -> int:
    return len(call.shape(0)) - 1


def _epsilon(call: Call, default: float) -> float:
    return float(call.attrs.get("epsilon", default))


def _rms_norm(call: Call) -> None:
    _no_statistics(call, 1, 2)
    _single(call)
    x, scale = call.value(0), call.value(1)
    emit_normalised(call, "rms_norm", x, scale, axis=call.axis(-1), epsilon=_epsilon(call, 1e-5))


def _embed_layer_norm(call: Call) -> None:
    """Word, position and segment embeddings, summed and normalised."""
    batch, length = call.shape(0)
    words = call.make("gather", call.value(2), call.value(0), axis=0)
    if call.has(8):
        places = call.make("gather", call.value(3), call.value(8), axis=0)
    else:
        places = call.make("slice", call.value(3), starts=(0,), ends=(length,), axes=(0,), steps=(1,))
    total = call.make("add", words, places)
    if call.has(1):
        if not call.has(4):
            raise Unsupported("segments without an embedding")
        total = call.make("add", total, call.make("gather", call.value(4), call.value(1), axis=0))
    if call.uses(2):
        call.emit("identity", total, outputs=[call.node.output[2]])
    call.emit("layer_norm", total, call.value(5), call.value(6), axis=2, epsilon=_epsilon(call, 1e-12))
    if not call.uses(1):
        return
    if call.has(7):
        counted = call.make("cast", call.value(7), to="int32")
        call.emit("reduce_sum", counted, axes=(1,), keepdims=False, outputs=[call.node.output[1]])
    else:
        call.emit("fill", shape=(batch,), value=0, dtype="int32", outputs=[call.node.output[1]])


def _turned(call: Call, index: int, turn: bool) -> str:
    """An operand, its last two axes exchanged where asked for."""
    if not turn:
        return call.value(index)
    rank = len(call.shape(index))
    if rank < 2:
        raise Unsupported("a vector to transpose")
    return call.make("transpose", call.value(index), perm=(*range(rank - 2), rank - 1, rank - 2))


def _fused_matmul(call: Call) -> None:
    if any(call.attrs.get(f"transBatch{side}", 0) for side in "AB"):
        raise Unsupported("a product that transposes batches")
    operands = [_turned(call, i, bool(call.attrs.get(f"trans{side}", 0))) for i, side in enumerate("AB")]
    alpha = call.attrs.get("alpha", 1.0)
    if alpha == 1.0:
        return call.emit("matmul", *operands)
    return call.emit("mul", call.make("matmul", *operands), call.number(alpha, call.type(0).dtype))


#: Activations by ONNX Runtime's names: our operator, its attributes, and their values where none is given.
_ACTIVATIONS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "Relu": ("relu", {}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Tanh": ("tanh", {}),
    "Sigmoid": ("sigmoid", {}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
}


def _activated(call: Call, made: Callable[..., str], values: Mapping[str, Any]) -> None:
    """Emit an activation, named by the node, of the result of `made`; with none, `made` makes the output itself."""
    kind = call.attrs.get("activation", "")
    if kind == "Clip" and len(values) == 2:
        dtype = call.type(0).dtype
        return call.emit("clip", made(), *(call.number(v, dtype) for v in values.values()))
    if kind not in _ACTIVATIONS:
        raise Unsupported(f"activation {kind!r}")
    op, defaults = _ACTIVATIONS[kind]
    full: dict[str, Any] = {name: float(values.get(name, default)) for name, default in defaults.items()}
    return call.emit(op, made(), **full)


def _fused_gemm(call: Call) -> None:
    attrs = call.attrs

    def made() -> str:
        return call.make("gemm", call.value(0), call.value(1), call.optional(2), **stated(call, "gemm", **GEMM))

    given = {n: attrs[f"activation_{n}"] for n in ("alpha", "beta") if f"activation_{n}" in attrs}
    _activated(call, made, given)


def _fused_conv(call: Call) -> None:
    def made() -> str:
        value = call.make("conv", call.value(0), call.value(1), call.optional(2), **geometry(call))
        return _plus(call, value, 3)

    if "activation" not in call.attrs:
        raise Unsupported("no activation")
    given = dict(zip(("alpha", "beta"), call.attrs.get("activation_params", ()), strict=False))
    _activated(call, made, given)


def _onnx_quantise(name: str, index: int) -> Importer:
    """As ONNX has it; before opset 21 that knows fewer element types, and the result could not be written."""

    def translate(call: Call) -> None:
        type = call.type(index) if call.has(index) else TensorType(DType.UINT8, ())
        if type.dtype not in (DType.INT8, DType.UINT8, DType.INT32) and call.opset < 21:
            raise Unsupported(f"{type.dtype.value} before opset 21")
        quantised.IMPORTS[name](call)

    return translate


def _matmul_packed(call: Call) -> None:
    attrs = call.attrs
    if call.has(4):
        raise Unsupported("columns in an order of their own (g_idx)")
    if attrs.get("weight_prepacked", 0):
        raise Unsupported("weights packed for one kind of processor")
    bits, block = int(attrs.get("bits", 4)), int(attrs["block_size"])
    if bits not in BITS:
        raise Unsupported(f"numbers of {bits} bits, which straddle bytes")
    if call.type(1).dtype is not DType.UINT8:
        raise Unsupported(f"weights of {call.type(1).dtype.value}")
    for index in (2, 5):
        if call.has(index) and call.type(index).dtype is not call.type(0).dtype:
            raise Unsupported(f"operands of {call.type(0).dtype.value} and {call.type(index).dtype.value}")
    call.emit(
        "matmul_packed",
        *(call.optional(i) for i in (0, 1, 2, 3, 5)),
        k=int(attrs["K"]),
        n=int(attrs["N"]),
        bits=bits,
        block=block,
        level=int(attrs.get("accuracy_level", 0)),
    )


#: Operators of ONNX's own domain that are read as several of ours, those that ONNX Runtime adds among them.
OWN: Mapping[str, Importer] = {"SimplifiedLayerNormalization": _rms_norm, **attention.OF_ONNX}

#: ONNX Runtime's operator -> the function that translates a node of it.
IMPORTS: Mapping[str, Importer] = {
    **attention.IMPORTS,
    **own_quantised.IMPORTS,
    "BiasGelu": _bias_gelu,
    "DequantizeLinear": _onnx_quantise("DequantizeLinear", 0),
    "EmbedLayerNormalization": _embed_layer_norm,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_matmul,
    "Gelu": _gelu,
    "MatMulNBits": _matmul_packed,
    "QLinearConv": quantised.IMPORTS["QLinearConv"],
    "QuantizeLinear": _onnx_quantise("QuantizeLinear", 2),
    "QuickGelu": _quick_gelu,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_rms_norm,
    "TransposeMatMul": _fused_matmul,
}
