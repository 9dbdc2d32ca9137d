"""Import of recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.ops.recurrent import ACTIVATIONS

_NAMES = {name.lower(): name for name in ACTIVATIONS}
#: What ONNX gives the parameters of an activation for which the node has none.
_DEFAULTS = {"LeakyRelu": (0.01, 0.0), "HardSigmoid": (0.2, 0.5), "Elu": (1.0, 0.0)}


def _activations(call: Call) -> dict[str, Any]:
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
        for kind, needed, found in zip(("alpha", "beta"), ACTIVATIONS[name], (alphas, betas), strict=True):
            value = next(taken[kind], None) if needed else 0.0
            if value is None:
                if name not in _DEFAULTS:
                    raise Unsupported(f"{name} without its {kind}")
                value = _DEFAULTS[name][kind == "beta"]
            found.append(float(value))
    return {"activations": tuple(names), "alphas": tuple(alphas), "betas": tuple(betas)}


def _layer(op: str, operands: int, states: int, **flags: str) -> Importer:
    def translate(call: Call) -> None:
        attrs = _activations(call)
        for ours, theirs in flags.items():
            attrs[ours] = bool(call.attrs.get(theirs, 0))
        if "clip" in call.attrs:
            attrs["clip"] = call.attrs["clip"]
        hidden, size = call.attrs.get("hidden_size"), call.shape(2)[-1]
        if hidden is not None and isinstance(size, int) and hidden != size:
            raise Unsupported(f"hidden_size {hidden} beside a recurrence weight of {size}")
        made = [*call.node.output, *[""] * (1 + states)][: 1 + states]
        direction = call.attrs.get("direction", "forward").lower()
        layout = call.attrs.get("layout", 0)
        given = (call.optional(i) for i in range(operands))
        call.emit(op, *given, outputs=made, direction=direction, layout=layout, **attrs)

    return translate


IMPORTS: Mapping[str, Importer] = MappingProxyType(
    {
        "GRU": _layer("gru", 6, 1, linear_before_reset="linear_before_reset"),
        "LSTM": _layer("lstm", 8, 2, input_forget="input_forget"),
        "RNN": _layer("rnn", 6, 1),
    }
)
