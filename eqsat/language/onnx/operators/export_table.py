"""The translation of our operators to ONNX's, at any opset: one table, most entries a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.language.onnx.files.schemas import axes_are_inputs_since, is_derived, is_reduction
from eqsat.language.onnx.files.tensors import number_of
from eqsat.language.onnx.microsoft import exporters as microsoft
from eqsat.language.onnx.operators import export_movement, export_nn, quantised, recurrent, vision
from eqsat.language.onnx.operators.derived import export_same
from eqsat.language.onnx.operators.export_reshape import make_reshape
from eqsat.language.onnx.write.exporting import Exporter, ExportTarget
from eqsat.language.ops import OPS
from eqsat.language.terms import DType


def _ordered(target: ExportTarget) -> None:
    """>= and <=, which opsets before 12 lack; a NaN makes both parts false."""
    if target.knows(target.onnx):
        return target.emit(target.onnx, *target.inputs)
    strict = target.make(target.onnx.removesuffix("OrEqual"), *target.inputs)
    return target.emit("Or", strict, target.make("Equal", *target.inputs))


def _greatest(target: ExportTarget) -> None:
    """Max and Min, whose operands have one shape before opset 8: there they are repeated first."""
    wanted = target.result().shape
    operands = list(target.inputs)
    if target.opset < 8 and wanted is not None:
        for i, operand in enumerate(operands):
            shape = target.type(i).shape
            if shape is None or shape == wanted:
                continue
            whole = (1,) * (len(wanted) - len(shape)) + shape
            if any(a not in (1, b) for a, b in zip(whole, wanted, strict=True)):
                target.needs(8, "dims that may be 1")
            repeats = [1 if a == b else b for a, b in zip(whole, wanted, strict=True)]
            ranked = operand if whole == shape else make_reshape(target, operand, shape, whole)
            operands[i] = target.make("Tile", ranked, target.shape(repeats))
    target.emit(target.onnx, *operands)


def _each_alone(target: ExportTarget, op_type: str) -> None:
    """A reduction of each element alone, which older opsets say only of scalars, where it is one of all elements."""
    x = target.input(0)
    if target.type(0).shape == ():
        return target.emit(op_type, x, keepdims=1)
    match op_type:
        case "ReduceL1" | "ReduceL2":
            return target.emit("Abs", x)
        case "ReduceLogSum":
            return target.emit("Log", x)
        case "ReduceSumSquare":
            return target.emit("Mul", x, x)
        case _:
            return target.emit("Identity", x)


def _reduction(target: ExportTarget) -> None:
    """A reduction, whose axes are an attribute in older opsets and an operand in newer ones."""
    onnx, axes = target.onnx, target.attrs["axes"]
    operands = target.inputs
    attrs: dict[str, Any] = {"keepdims": int(target.attrs["keepdims"])}
    if not axes and target.opset < axes_are_inputs_since(onnx):
        return _each_alone(target, onnx)
    if not axes:
        attrs["noop_with_empty_axes"] = 1
    elif target.opset >= axes_are_inputs_since(onnx):
        operands = [*operands, target.ints(axes)]
    else:
        attrs["axes"] = axes
    return target.emit(onnx, *operands, **attrs)


def _clip(target: ExportTarget) -> None:
    if target.opset >= 11:
        return target.emit("Clip", *target.inputs)
    bounds = [target.constant(i) for i in (1, 2)]
    if all(b is not None or not target.input(i) for i, b in enumerate(bounds, start=1)):
        limits = {k: float(b.array.reshape(()).item()) for k, b in zip(("min", "max"), bounds, strict=True) if b}
        # ONNX Runtime refuses attributes of which the lower is the greater.
        if limits.get("min", -np.inf) <= limits.get("max", np.inf) and all(map(target.keeps, limits.values())):
            return target.emit("Clip", target.input(0), **limits)
    target.needs(8, "bounds that no attributes keep")
    low = target.make("Max", target.input(0), target.input(1)) if target.input(1) else target.input(0)
    return target.emit("Min", low, target.input(2)) if target.input(2) else target.emit("Identity", low)


def _cast(target: ExportTarget) -> None:
    target.emit("Cast", target.input(0), to=number_of(DType.of(target.attrs["to"])))


def _pow(target: ExportTarget) -> None:
    exponent = target.input(1)
    if target.opset < 12 and target.type(0).dtype is not target.type(1).dtype:
        exponent = target.make("Cast", exponent, to=number_of(target.type(0).dtype))
    target.emit("Pow", target.input(0), exponent)


def _mod(target: ExportTarget) -> None:
    # Before opset 28 ONNX allows floats only with fmod=1: the floored form is written by parts, for finite divisors.
    if target.attrs["fmod"] or not target.type(0).dtype.is_float or target.opset >= 28:
        return target.emit("Mod", *target.inputs, **({"fmod": 1} if target.attrs["fmod"] else {}))
    quotient = target.make("Floor", target.make("Div", *target.inputs))
    return target.emit("Sub", target.input(0), target.make("Mul", quotient, target.input(1)))


def _gelu(target: ExportTarget) -> None:
    approximate = target.attrs["approximate"]
    if target.knows("Gelu"):
        return target.emit("Gelu", target.input(0), **({"approximate": approximate} if approximate != "none" else {}))
    x, dtype = target.input(0), target.type(0).dtype
    half, one = target.number(0.5, dtype), target.number(1.0, dtype)
    if approximate == "tanh":
        cube = target.make("Mul", target.make("Mul", x, x), x)
        inner = target.make("Add", x, target.make("Mul", cube, target.number(0.044715, dtype)))
        bell = target.make("Tanh", target.make("Mul", inner, target.number(np.sqrt(2 / np.pi), dtype)))
    else:
        bell = target.make("Erf", target.make("Div", x, target.number(np.sqrt(2.0), dtype)))
    return target.emit("Mul", target.make("Mul", x, target.make("Add", bell, one)), half)


def _silu(target: ExportTarget) -> None:
    alpha = target.attrs["alpha"]
    if target.knows("Swish"):
        return target.emit("Swish", target.input(0), **({"alpha": alpha} if alpha != 1.0 else {}))
    x = target.input(0)
    scaled = x if alpha == 1.0 else target.make("Mul", x, target.number(alpha, target.type(0).dtype))
    return target.emit("Mul", x, target.make("Sigmoid", scaled))


def _mish(target: ExportTarget) -> None:
    if target.knows("Mish"):
        return target.emit("Mish", target.input(0))
    return target.emit("Mul", target.input(0), target.make("Tanh", target.make("Softplus", target.input(0))))


def _hard_swish(target: ExportTarget) -> None:
    if target.knows("HardSwish"):
        return target.emit("HardSwish", target.input(0))
    gate = target.make("HardSigmoid", target.input(0), alpha=1 / 6, beta=0.5)
    return target.emit("Mul", target.input(0), gate)


def _gemm(target: ExportTarget) -> None:
    attrs = target.attrs
    operands = list(target.inputs)
    if not target.type(0).dtype.is_float and attrs["alpha"] == attrs["beta"] == 1.0:
        # Gemm of integers goes through floats in ONNX Runtime.
        flags = [attrs["trans_a"], attrs["trans_b"]]
        a, b = (target.make("Transpose", v, perm=[1, 0]) if t else v for v, t in zip(operands, flags, strict=False))
        if not target.input(2):
            return target.emit("MatMul", a, b)
        return target.emit("Add", target.make("MatMul", a, b), target.input(2))
    if target.opset < 11 and not target.input(2):
        operands = [*operands[:2], target.number(0, target.type(0).dtype)]
    values: dict[str, Any] = {k: attrs[k] for k in ("alpha", "beta") if attrs[k] != 1.0}
    values |= {ours: 1 for ours, theirs in (("transA", "trans_a"), ("transB", "trans_b")) if attrs[theirs]}
    return target.emit("Gemm", *operands, **values)


def _arg(target: ExportTarget) -> None:
    attrs = {"axis": target.attrs["axis"], "keepdims": int(target.attrs["keepdims"])}
    if target.attrs["select_last"]:
        target.needs(12, "select_last")
        attrs["select_last_index"] = 1
    target.emit(target.onnx, target.input(0), **attrs)


def _cumsum(target: ExportTarget) -> None:
    flags = {k: 1 for k in ("exclusive", "reverse") if target.attrs[k]}
    target.emit("CumSum", target.input(0), target.number(target.attrs["axis"], DType.INT64), **flags)


def _smallest(target: ExportTarget) -> None:
    """The smallest elements where TopK knows the largest alone: those of the negative, which floats have exactly."""
    attrs = target.attrs
    if not target.type(0).dtype.is_float:
        target.needs(11, "largest=0 of integers")
    operands, extra = [target.make("Neg", target.input(0))], {"k": attrs["k"]}
    if target.opset >= 10:
        operands, extra = [*operands, target.ints([attrs["k"]])], {}
    values, indices = target.outputs[0], target.outputs[1] if len(target.outputs) > 1 else ""
    negative = target.model.fresh(f"{indices or values}/TopK")
    unread = indices or target.model.fresh(f"{values}/indices")
    target.model.add("TopK", operands, [negative, unread], target.node.name, axis=attrs["axis"], **extra)
    if values:
        target.model.add("Neg", [negative], [values])


def _topk(target: ExportTarget) -> None:
    attrs = target.attrs
    flags = {k: 0 for k in ("largest", "sorted") if not attrs[k]}
    if target.opset < 11 and not attrs["sorted"]:
        # Sorted elements are in one of the orders that are allowed then.
        del flags["sorted"]
    if flags and target.opset < 11:
        return _smallest(target)
    if target.opset < 10:
        return target.emit("TopK", target.input(0), k=attrs["k"], axis=attrs["axis"])
    return target.emit("TopK", target.input(0), target.ints([attrs["k"]]), axis=attrs["axis"], **flags)


def _one_hot(target: ExportTarget) -> None:
    depth = target.shape([target.attrs["depth"]])
    target.emit("OneHot", target.input(0), depth, target.input(1), axis=target.attrs["axis"])


#: ONNX operator, or the name of ours where ONNX has none or several for it -> the function that writes a node of it,
#: where that does not follow from a declaration.
WRITTEN: Mapping[str, Exporter] = {
    "ArgMax": _arg,
    "ArgMin": _arg,
    "Cast": _cast,
    "Clip": _clip,
    "CumSum": _cumsum,
    "Gelu": _gelu,
    "Gemm": _gemm,
    "GreaterOrEqual": _ordered,
    "HardSwish": _hard_swish,
    "LessOrEqual": _ordered,
    "Max": _greatest,
    "Min": _greatest,
    "Mish": _mish,
    "Mod": _mod,
    "OneHot": _one_hot,
    "Pow": _pow,
    "Swish": _silu,
    "TopK": _topk,
    **export_movement.EXPORTS,
    **export_nn.EXPORTS,
    **quantised.EXPORTS,
    **recurrent.EXPORTS,
    **vision.EXPORTS,
    **microsoft.EXPORTS,
}


def exporter_of(op: str) -> Exporter | None:
    """The function that writes an operator; None where ONNX has no counterpart.

    >>> exporter_of("eye") is None, exporter_of("relu") is None
    (True, False)
    """
    declared = OPS.get(op)
    if op in WRITTEN or declared is None or declared.onnx is None:
        return WRITTEN.get(op)
    if is_reduction(declared) and declared.is_shipped:
        return _reduction
    if declared.onnx in WRITTEN:
        return WRITTEN[declared.onnx]
    return export_same if is_derived(declared) else None
