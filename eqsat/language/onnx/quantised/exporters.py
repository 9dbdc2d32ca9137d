"""Export of quantisation and of quantised products and convolutions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from eqsat.language.onnx.files.tensors import number_of
from eqsat.language.onnx.operators.export_nn import write_conv
from eqsat.language.onnx.write.exporting import Exporter, ExportTarget
from eqsat.language.terms import DType

#: Opsets that know an axis, blocks, and results of another type than uint8 that no zero point states.
_AXIS, _BLOCKS = 13, 21


def _placed(target: ExportTarget) -> dict[str, Any]:
    attrs, values = target.attrs, {}
    if target.type(1).shape not in ((), (1,)) and attrs["axis"] != 1:
        values["axis"] = attrs["axis"]
    if attrs["block"]:
        target.needs(_BLOCKS, "blocks")
        values |= {"axis": attrs["axis"], "block_size": attrs["block"]}
    if values:
        target.needs(_AXIS, "an axis")
    return values


def _quantize(target: ExportTarget) -> None:
    values, to = _placed(target), DType.of(target.attrs["to"])
    operands = target.inputs[:3]
    if len(operands) < 3 and to is not DType.UINT8:
        if target.opset >= _BLOCKS:
            values["output_dtype"] = number_of(to)
        else:
            operands = [*operands, target.number(0, to)]
    target.emit("QuantizeLinear", *operands, **values)


def _dequantize(target: ExportTarget) -> None:
    target.emit("DequantizeLinear", *target.inputs, **_placed(target))


def _qlinear_conv(target: ExportTarget) -> None:
    write_conv(target, 3)


EXPORTS: Mapping[str, Exporter] = MappingProxyType(
    {
        "ConvInteger": write_conv,
        "DequantizeLinear": _dequantize,
        "QLinearConv": _qlinear_conv,
        "QuantizeLinear": _quantize,
    }
)
