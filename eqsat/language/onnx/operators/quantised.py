"""Quantisation, and quantised products and convolutions, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat.language.declaration import normal_axis
from eqsat.language.onnx.files.tensors import dtype_of, number_of
from eqsat.language.onnx.operators.export_nn import write_conv
from eqsat.language.onnx.operators.import_nn import geometry
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.onnx.write.exporting import Exporter, ExportTarget
from eqsat.language.terms import DType

#: Element types that are quantised from and dequantised to.
_FLOATS = (DType.FLOAT32, DType.FLOAT16, DType.FLOAT64, DType.BFLOAT16)


def _integers(dtype: DType, what: str) -> DType:
    if not dtype.is_integer:
        raise Unsupported(f"{what} {dtype.value}, whose rounding is that of a float of its own")
    return dtype


def _stated_place(call: Call) -> dict[str, Any]:
    """Axis and block size, as far as the shape of the scale gives them a meaning."""
    scale, block = call.shape(1), int(call.attrs.get("block_size", 0))
    if scale in ((), (1,)):
        if block:
            raise Unsupported("blocks of a scale with one element")
        return {"axis": 0, "block": 0}
    rank = len(call.shape(0))
    if len(scale) > 1 and not block:
        raise Unsupported("a scale of several axes without blocks")
    return {"axis": normal_axis(call.attrs.get("axis", 1), rank), "block": block}


def _read_quantize(call: Call) -> None:
    x, scale = call.type(0).dtype, call.type(1).dtype
    if x not in _FLOATS or x is not scale:
        raise Unsupported(f"quantisation of {x.value} by a scale of {scale.value}")
    stated = dtype_of(call.attrs.get("output_dtype", 0))
    to = call.type(2).dtype if call.has(2) else stated or DType.UINT8
    precision = dtype_of(call.attrs.get("precision", 0))
    if precision not in (None, x) and not (precision is DType.FLOAT32 and x is DType.FLOAT16):
        raise Unsupported("quantisation in another precision than that of its scale")
    _integers(to, "quantisation to")
    call.emit(call.op, call.value(0), call.value(1), call.optional(2), to=to.value, **_stated_place(call))


def _read_dequantize(call: Call) -> None:
    _integers(call.type(0).dtype, "dequantisation of")
    scale = call.type(1).dtype
    stated = dtype_of(call.attrs.get("output_dtype", 0))
    if scale not in _FLOATS or stated not in (None, scale):
        raise Unsupported(f"dequantisation by a scale of {scale.value} to another element type")
    call.emit(call.op, call.value(0), call.value(1), call.optional(2), **_stated_place(call))


def _dynamic(call: Call) -> None:
    outputs = [o if call.uses(i) else call.unused(i) for i, o in enumerate([*call.node.output, "", ""][:3])]
    call.emit(call.op, call.value(0), outputs=outputs)


def _geometry(call: Call, filters: int) -> dict[str, Any]:
    """The attributes of a convolution whose filters are the operand at an index, channels before the plane."""
    if call.attrs.get("channels_last", 0):
        raise Unsupported("channels as the last axis")
    return geometry(call, filters)


def _conv_integer(call: Call) -> None:
    call.emit(call.op, *(call.optional(i) for i in range(4)), **_geometry(call, 1))


def _matmul_integer(call: Call) -> None:
    _check_axes(call, 2, 3)
    call.emit(call.op, *(call.optional(i) for i in range(4)))


def _qlinear_conv(call: Call) -> None:
    for i in (0, 3, 7):
        _integers(call.type(i).dtype, "convolution of")
    call.emit(call.op, *(call.optional(i) for i in range(9)), **_geometry(call, 3))


def _qlinear_matmul(call: Call) -> None:
    for i in (0, 3, 7):
        _integers(call.type(i).dtype, "product of")
    _check_axes(call, 1, 2, 4, 5)
    call.emit(call.op, *(call.value(i) for i in range(8)))


def _check_axes(call: Call, *indices: int) -> None:
    """Refuse scales and zero points of whole stacks of matrices, whose axes runtimes read in different ways."""
    for index in indices:
        if call.has(index) and len(call.shape(index)) > 1:
            raise Unsupported(f"{call.value(index)!r} has more than one axis")


IMPORTS: Mapping[str, Importer] = {
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _read_dequantize,
    "DynamicQuantizeLinear": _dynamic,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _read_quantize,
}


#: Opsets that know an axis, blocks, and results of another type than uint8 that no zero point states.
_AXIS, _BLOCKS = 13, 21


def _place(target: ExportTarget) -> dict[str, Any]:
    attrs, values = target.attrs, {}
    if target.type(1).shape not in ((), (1,)):
        target.needs(_AXIS, "an axis")
        if attrs["axis"] != 1:
            values["axis"] = attrs["axis"]
    if attrs["block"]:
        target.needs(_BLOCKS, "blocks")
        values |= {"axis": attrs["axis"], "block_size": attrs["block"]}
    return values


def _write_quantize(target: ExportTarget) -> None:
    values, to = _place(target), DType.of(target.attrs["to"])
    operands = target.inputs[:3]
    if len(operands) < 3 and to is not DType.UINT8:
        if target.opset >= _BLOCKS:
            values["output_dtype"] = number_of(to)
        else:
            operands = [*operands, target.number(0, to)]
    target.emit("QuantizeLinear", *operands, **values)


def _write_dequantize(target: ExportTarget) -> None:
    target.emit("DequantizeLinear", *target.inputs, **_place(target))


def _write_qlinear_conv(target: ExportTarget) -> None:
    write_conv(target, 3)


EXPORTS: Mapping[str, Exporter] = {
    "ConvInteger": write_conv,
    "DequantizeLinear": _write_dequantize,
    "QLinearConv": _write_qlinear_conv,
    "QuantizeLinear": _write_quantize,
}
