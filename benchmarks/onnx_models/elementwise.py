"""Operators that act element by element, their second operands, and arithmetic with constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from benchmarks.onnx_models.growing import Growing, RefusedError, Value, tensor_type

Step = Callable[[Growing], None]

_UNARY = [
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Cos",
    "Cosh",
    "Erf",
    "Exp",
    "Floor",
    "HardSwish",
    "Identity",
    "Log",
    "Mish",
    "Neg",
    "Reciprocal",
    "Relu",
    "Round",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Tan",
    "Tanh",
]
#: Those that rules know: drawn more often.
_FREQUENT = ("Relu", "Neg", "Sigmoid", "Tanh", "Exp", "Sqrt", "Reciprocal", "Abs", "Identity", "Log", "Erf")
_OF_INTEGERS = ("Abs", "Neg", "Sign", "Identity", "Relu")
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_COMPARED = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
_TYPES = (
    "FLOAT",
    "DOUBLE",
    "FLOAT16",
    "INT32",
    "INT64",
    "INT8",
    "UINT8",
    "INT16",
    "UINT16",
    "UINT32",
    "UINT64",
    "BOOL",
)


def _unary(g: Growing) -> None:
    if g.flip(0.12):
        g.add(g.among(_OF_INTEGERS), [g.pick("iu")])
        return
    op_type = g.among(_FREQUENT if g.flip(0.6) else _UNARY)
    if not g.has(op_type):
        raise RefusedError(op_type)
    g.add(op_type, [g.pick("f")])


def _scaled(g: Growing) -> None:
    """Activations with attributes."""
    drawn: Mapping[str, tuple[str, ...]] = {
        "Celu": ("alpha",),
        "Elu": ("alpha",),
        "HardSigmoid": ("alpha", "beta"),
        "LeakyRelu": ("alpha",),
        "Selu": ("alpha", "gamma"),
        "Shrink": ("lambd", "bias"),
        "Swish": ("alpha",),
        "ThresholdedRelu": ("alpha",),
        "Gelu": (),
    }
    op_type = g.among([name for name in drawn if g.has(name)])
    attrs: dict[str, Any] = {k: round(float(g.rng.normal()), 3) for k in drawn[op_type] if g.flip(0.6)}
    if op_type == "Celu" and attrs.get("alpha") == 0:
        del attrs["alpha"]
    if op_type == "Gelu" and g.flip():
        attrs = {"approximate": "tanh"}
    g.add(op_type, [g.pick("f")], **attrs)


def _binary(g: Growing) -> None:
    x = g.pick("f" if g.flip(0.8) else "iu")
    op_type = g.among(_ARITHMETIC)
    y = divisor(g, x) if op_type == "Div" and x.kind in "iu" else g.like(x)
    swapped = g.flip(0.3) and not (op_type == "Div" and x.kind in "iu")
    g.add(op_type, [y, x] if swapped else [x, y])


def divisor(g: Growing, x: Value) -> Value:
    """A constant to divide integers by: 0, and the least number by -1, end the process in ONNX Runtime."""
    found = g.numbers.array(x.dtype, g.smaller(x))
    bad = found == 0 if g.numbers.edges != "all" or x.kind == "u" else (found == 0) | (found == -1)
    return g.constant(np.where(bad, np.array(3, x.dtype), found))


def with_itself(g: Growing) -> None:
    """x/x, x-x, x*x and their like."""
    x = g.pick("f")
    op_type = g.among(["Div", "Sub", "Mul", "Add", "Max", "Min", "Equal", "Pow"])
    g.add(op_type, [x, x])


def by_number(g: Growing) -> None:
    """Arithmetic with the numbers that rules look for."""
    x = g.pick("f" if g.flip(0.85) else "iu")
    op_type = g.among(_ARITHMETIC)
    number = g.among([0, 1, 2, 3] if x.kind == "u" else [0, 1, -1, 2, 3] + [0.5, -0.0] * (x.kind == "f"))
    if op_type == "Div" and x.kind in "iu" and number == 0:
        number = 1
    rank = g.integer(0, x.rank) if g.flip(0.3) else 0
    y = g.constant(np.full((1,) * rank, number, x.dtype))
    swapped = g.flip(0.3) and not (op_type == "Div" and x.kind in "iu")
    g.add(op_type, [y, x] if swapped else [x, y])


def _pow(g: Growing) -> None:
    x = g.pick("f")
    exponent = g.among([2, 3, 0.5, 1, 0, -1, -2, -0.5])
    dtype = x.dtype if g.opset < 12 or g.flip(0.7) else np.dtype(np.float32)
    g.add("Pow", [x, g.constant(np.array(exponent, dtype))])


def _mod(g: Growing) -> None:
    if g.flip(0.3) and g.opset >= 10:
        x = g.pick("f")
        g.add("Mod", [x, g.like(x)], fmod=1)
        return
    x = g.pick("iu")
    g.add("Mod", [x, divisor(g, x)], fmod=g.among([None, 1]))


def _many(g: Growing) -> None:
    op_type = g.among(["Max", "Min", "Sum", "Mean"])
    x = g.pick("f" if op_type in ("Sum", "Mean") or g.flip(0.7) else "iu")
    g.add(op_type, [x, *(g.like(x) for _ in range(g.integer(0, 2)))])


def _compare(g: Growing) -> None:
    op_type = g.among([name for name in _COMPARED if g.has(name)])
    x = g.pick(g.among(["f", "f", "i", "iu"]))
    g.add(op_type, [x, g.like(x)])


def _logic(g: Growing) -> None:
    if g.flip(0.3):
        g.add("Not", [g.pick("b")])
        return
    x = g.pick("b")
    g.add(g.among(["And", "Or", "Xor"]), [x, g.like(x)])


def _bits(g: Growing) -> None:
    if g.opset < 18 or g.flip(0.3):
        x = g.pick("u")
        y = g.constant(g.rng.integers(0, 8, g.smaller(x)).astype(x.dtype))
        g.add("BitShift", [x, y], direction=g.among(["LEFT", "RIGHT"]))
        return
    op_type = g.among(["BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"])
    x = g.pick("iu")
    g.add(op_type, [x] if op_type == "BitwiseNot" else [x, g.like(x)])


def _where(g: Growing) -> None:
    x = g.pick("f" if g.flip(0.7) else "iub")
    condition = g.pick("b", chained=0.1) if g.flip(0.4) else g.constant(g.numbers.array(np.bool_, g.smaller(x)))
    branches = [x, g.like(x)]
    g.add("Where", [condition, *(branches if g.flip() else reversed(branches))])


def _clip(g: Growing) -> None:
    x = g.pick("f" if g.flip(0.8) or g.opset < 12 else "iu")
    low, high = (0, 4) if x.kind == "u" else g.among([(-1, 1), (0, 6), (0, 1), (-2, 0), (1, -1)])
    if g.opset < 11:
        attrs = {"min": float(low)} if g.flip(0.3) else {"min": float(low), "max": float(high)}
        g.add("Clip", [x], **attrs)
        return
    bounds = [g.constant(np.array(b, x.dtype)) if g.flip(0.8) else None for b in (low, high)]
    g.add("Clip", [x, *bounds])


def _cast(g: Growing) -> None:
    x = g.pick("fiub")
    to = g.among(_TYPES)
    if x.kind == "f" and g.numbers.edges == "all":
        to = g.among(["FLOAT", "DOUBLE", "FLOAT16", "BOOL"])  # what is no integer has no value there
    if g.opset >= 15 and g.flip(0.2):
        g.add(
            "CastLike", [x, g.constant(np.zeros((1,), helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(to))))]
        )
        return
    g.add("Cast", [x], to=TensorProto.DataType.Value(to))


def _back_and_forth(g: Growing) -> None:
    """A cast to another type and back, with bfloat16 too, which has no place outside."""
    x = g.pick("fi")
    through, middle, made = g.among(["BFLOAT16", *_TYPES]), g.fresh(), g.fresh()
    if x.kind == "f" and g.numbers.edges == "all":
        through = g.among(["BFLOAT16", "DOUBLE", "FLOAT16"])
    nodes = [
        helper.make_node("Cast", [x.name], [middle], to=TensorProto.DataType.Value(through)),
        helper.make_node("Cast", [middle], [made], to=tensor_type(x.array)),
    ]
    g.fragment(nodes, [x], [made])


def _asked(g: Growing) -> None:
    if g.flip() or g.opset < 10:
        g.add("IsNaN", [g.pick("f")])
    else:
        flags = {k: g.among([None, 0, 1]) for k in ("detect_negative", "detect_positive")}
        g.add("IsInf", [g.pick("f")], **flags)


def _prelu(g: Growing) -> None:
    x = g.pick("f")
    g.add("PRelu", [x, g.constant(g.numbers.array(x.dtype, g.smaller(x)))])


def _dropout(g: Growing) -> None:
    g.add("Dropout", [g.pick("f")], outputs=g.integer(1, 2))


STEPS: Mapping[Step, float] = {
    _unary: 8,
    _scaled: 2,
    _binary: 9,
    with_itself: 1.5,
    by_number: 4,
    _pow: 1.5,
    _mod: 1,
    _many: 2,
    _compare: 2,
    _logic: 1.5,
    _bits: 0.7,
    _where: 2,
    _clip: 1.5,
    _cast: 2,
    _back_and_forth: 0.8,
    _asked: 0.5,
    _prelu: 0.7,
    _dropout: 0.4,
}
