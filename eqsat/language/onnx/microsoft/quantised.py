"""Import of ONNX Runtime's operators on quantised numbers: each as the float operator between its quantisations.

Its kernels round once, where ours do; a result that lies halfway between two numbers may be either of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat.language.declaration import normal_axis
from eqsat.language.onnx.operators.import_nn import pooling
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.terms import DType

_BYTES = (DType.UINT8, DType.INT8)


def restored(call: Call, index: int, scale: int, zero: int, axis: int | None = None) -> str:
    """An operand as floats, by a scale and zero point of the whole tensor, or of the indices of an axis."""
    if call.type(index).dtype not in _BYTES:
        raise Unsupported(f"numbers of {call.type(index).dtype.value}")
    for parameter in (scale, zero):
        given = call.shape(parameter) if call.has(parameter) else ()
        if given not in ((), (1,)) and (axis is None or len(given) != 1):
            raise Unsupported(f"{call.value(parameter)!r} is no scale of a whole tensor")
    along = 0 if axis is None or call.shape(scale) in ((), (1,)) else normal_axis(axis, len(call.shape(index)))
    operands = call.value(index), call.value(scale), call.optional(zero)
    return call.make("dequantize_linear", *operands, axis=along, block=0)


def _rounded(call: Call, value: str, scale: int, zero: int, dtype: DType) -> None:
    """Emit a value quantised by a scale of the whole tensor, to the type of its zero point."""
    if call.shape(scale) not in ((), (1,)):
        raise Unsupported(f"{call.value(scale)!r} is no scale of a whole tensor")
    to = call.type(zero).dtype if call.has(zero) else dtype
    operands = value, call.value(scale), call.optional(zero)
    call.emit("quantize_linear", *operands, to=to.value, axis=0, block=0)


def _binary(op: str) -> Importer:
    def translate(call: Call) -> None:
        made = call.make(op, restored(call, 0, 1, 2), restored(call, 3, 4, 5))
        _rounded(call, made, 6, 7, call.type(0).dtype)

    return translate


def _unary(op: str, **defaults: float) -> Importer:
    def translate(call: Call) -> None:
        attrs: dict[str, Any] = {name: float(call.attrs.get(name, default)) for name, default in defaults.items()}
        _rounded(call, call.make(op, restored(call, 0, 1, 2), **attrs), 3, 4, call.type(0).dtype)

    return translate


def _channels_first(call: Call) -> None:
    if call.attrs.get("channels_last", 0):
        raise Unsupported("channels as the last axis")


def _global_average(call: Call) -> None:
    _channels_first(call)
    _unary("global_avg_pool")(call)


def _average(call: Call) -> None:
    _channels_first(call)
    made = call.make("avg_pool", restored(call, 0, 1, 2), **pooling(call, "avg_pool"))
    _rounded(call, made, 3, 4, call.type(0).dtype)


def _softmax(call: Call) -> None:
    rank = len(call.shape(0))
    axis = normal_axis(call.attrs.get("axis", -1), rank)
    if int(call.attrs["opset"]) < 13 and axis != rank - 1:
        raise Unsupported("a softmax over several axes together")
    _rounded(call, call.make("softmax", restored(call, 0, 1, 2), axis=axis), 3, 4, call.type(0).dtype)


def _where(call: Call) -> None:
    made = call.make("where", call.value(0), restored(call, 1, 2, 3), restored(call, 4, 5, 6))
    _rounded(call, made, 7, 8, call.type(1).dtype)


def _concat(call: Call) -> None:
    parts = [restored(call, i, i + 1, i + 2) for i in range(2, call.arity, 3)]
    axis = normal_axis(call.attrs["axis"], len(call.shape(2)))
    _rounded(call, call.make("concat", *parts, axis=axis), 0, 1, call.type(2).dtype)


def _gemm(call: Call) -> None:
    """A gemm whose bias is in units of its sums."""
    alpha, turned = float(call.attrs.get("alpha", 1.0)), bool(call.attrs.get("transB", 0))
    a, b = restored(call, 0, 1, 2), restored(call, 3, 4, 5, 0 if turned else 1)
    operands = [a, b]
    if call.has(6):
        unit = call.make("mul", call.value(1), call.value(4))
        if alpha != 1.0:
            unit = call.make("mul", unit, call.number(alpha, call.type(1).dtype))
        single = call.type_of(unit).shape in ((), (1,))
        along = 0 if single else len(call.shape(6)) - 1
        operands.append(call.make("dequantize_linear", call.value(6), unit, axis=along, block=0))
    attrs: dict[str, Any] = {"alpha": alpha, "beta": 1.0, "trans_b": turned}
    attrs["trans_a"] = bool(call.attrs.get("transA", 0))
    if call.has(7):
        return _rounded(call, call.make("gemm", *operands, **attrs), 7, 8, call.type(0).dtype)
    return call.emit("gemm", *operands, **attrs)


def _scaled(call: Call, sums: str, unit: str, bias: int) -> None:
    """Emit sums in their unit, with a bias of floats."""
    floats = call.make("cast", sums, to="float32")
    if not call.has(bias):
        return call.emit("mul", floats, unit)
    return call.emit("add", call.make("mul", floats, unit), call.value(bias))


def _check_columns(call: Call, *indices: int) -> None:
    for index in indices:
        if call.has(index) and len(call.shape(index)) > 1:
            raise Unsupported(f"{call.value(index)!r} has more than one axis")


def _dynamic_product(call: Call) -> None:
    """A product whose left operand is quantised by its least and largest element when it runs."""
    _check_columns(call, 2, 3)
    numbers, scale, zero = call.make_several("dynamic_quantize_linear", 3, call.value(0))
    sums = call.make("matmul_integer", numbers, call.value(1), zero, call.optional(3))
    _scaled(call, sums, call.make("mul", scale, call.value(2)), 4)


def _product_to_floats(call: Call) -> None:
    _check_columns(call, 2, 3, 4, 5)
    if call.shape(2) not in ((), (1,)):
        raise Unsupported("a scale for each row")
    if call.type(2).dtype is not DType.FLOAT32:
        raise Unsupported(f"a product of {call.type(2).dtype.value}")
    sums = call.make("matmul_integer", call.value(0), call.value(1), call.optional(4), call.optional(5))
    _scaled(call, sums, call.make("mul", call.value(2), call.value(3)), 6)


#: ONNX Runtime's operator -> the function that translates a node of it.
IMPORTS: Mapping[str, Importer] = {
    "DynamicQuantizeMatMul": _dynamic_product,
    "MatMulIntegerToFloat": _product_to_floats,
    "QGemm": _gemm,
    "QLinearAdd": _binary("add"),
    "QLinearAveragePool": _average,
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _global_average,
    "QLinearLeakyRelu": _unary("leaky_relu", alpha=0.01),
    "QLinearMul": _binary("mul"),
    "QLinearSigmoid": _unary("sigmoid"),
    "QLinearSoftmax": _softmax,
    "QLinearWhere": _where,
}
