"""Export of recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from eqsat.language.onnx.write.exporting import Exporter, ExportTarget
from eqsat.language.ops.operands.recurrent import ACTIVATIONS


def _layer(target: ExportTarget) -> None:
    attrs, values = target.attrs, dict[str, Any]()
    hidden = target.type(2).dims[2]
    if isinstance(hidden, int):
        values["hidden_size"] = hidden
    if attrs["direction"] != "forward":
        values["direction"] = attrs["direction"]
    if attrs["activations"]:
        values |= _activations(attrs)
    if attrs["clip"] is not None:
        values["clip"] = attrs["clip"]
    if attrs["layout"]:
        target.needs(14, "batches first")
        values["layout"] = 1
    values |= {flag: 1 for flag in ("linear_before_reset", "input_forget") if attrs.get(flag)}
    target.emit(target.onnx, *target.inputs, **values)


def _activations(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """The names, and the parameters of those that have some."""
    values: dict[str, Any] = {"activations": attrs["activations"]}
    for place, (kind, given) in enumerate((("alpha", attrs["alphas"]), ("beta", attrs["betas"]))):
        named = zip(attrs["activations"], given, strict=True) if given else ()
        numbers = [v for name, v in named if ACTIVATIONS[name][place]]
        if numbers:
            values[f"activation_{kind}"] = numbers
    return values


EXPORTS: Mapping[str, Exporter] = MappingProxyType(dict.fromkeys(("GRU", "LSTM", "RNN"), _layer))
