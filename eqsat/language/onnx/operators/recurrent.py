"""Recurrent layers, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat.language.onnx.files.schemas import schemas
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.onnx.write.exporting import Exporter, ExportTarget
from eqsat.language.ops import OPS
from eqsat.language.ops.operands.recurrent import ACTIVATIONS

_NAMES = {name.lower(): name for name in ACTIVATIONS}
#: ONNX's defaults of an activation's alpha and beta.
_DEFAULTS = {"LeakyRelu": (0.01, 0.0), "HardSigmoid": (0.2, 0.5), "Elu": (1.0, 0.0)}


def _stated_activations(call: Call) -> dict[str, Any]:
    """The activations with an alpha and a beta each; nothing where the node leaves them to their defaults."""
    given = call.attrs.get("activations")
    if not given:
        return {}
    names = [_NAMES.get(n.lower()) for n in given]
    if None in names:
        raise Unsupported("activations " + ", ".join(given))
    taken = {k: iter(call.attrs.get(f"activation_{k}", ())) for k in ("alpha", "beta")}
    alphas: list[float] = []
    betas: list[float] = []
    for name in filter(None, names):
        for kind, needed, numbers in zip(("alpha", "beta"), ACTIVATIONS[name], (alphas, betas), strict=True):
            value = next(taken[kind], None) if needed else 0.0
            if value is None:
                if name not in _DEFAULTS:
                    raise Unsupported(f"{name} without its {kind}")
                value = _DEFAULTS[name][kind == "beta"]
            numbers.append(float(value))
    return {"activations": tuple(names), "alphas": tuple(alphas), "betas": tuple(betas)}


def _read(call: Call) -> None:
    """A recurrent layer; each result after the first is the last of one of its states."""
    schema = schemas(call.node.op_type)[-1]
    operands, results = len(schema.inputs), len(schema.outputs)
    attrs = _stated_activations(call)
    for name, default in OPS[call.op].attrs.items():
        if isinstance(default, bool):
            attrs[name] = bool(call.attrs.get(name, default))
    if "clip" in call.attrs:
        attrs["clip"] = call.attrs["clip"]
    hidden, size = call.attrs.get("hidden_size"), call.shape(2)[-1]
    if hidden is not None and isinstance(size, int) and hidden != size:
        raise Unsupported(f"hidden_size {hidden} beside a recurrence weight of {size}")
    outputs = [*call.node.output, *[""] * results][:results]
    direction = call.attrs.get("direction", "forward").lower()
    layout = call.attrs.get("layout", 0)
    given = (call.optional(i) for i in range(operands))
    call.emit(call.op, *given, outputs=outputs, direction=direction, layout=layout, **attrs)


IMPORTS: Mapping[str, Importer] = {"GRU": _read, "LSTM": _read, "RNN": _read}


def _write(target: ExportTarget) -> None:
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


EXPORTS: Mapping[str, Exporter] = dict.fromkeys(("GRU", "LSTM", "RNN"), _write)
