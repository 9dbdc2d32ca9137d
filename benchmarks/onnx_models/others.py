"""The rest: recurrent, quantised and resizing operators, sequences, strings, and any operator by its schema alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from onnx import TensorProto, defs, helper

from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import Growing, RefusedError, Value
from benchmarks.onnx_models.layers import weight

_KINDS = {"float": "f", "double": "f", "float16": "f", "bool": "b", "string": "O"}
#: Operators whose results are drawn at random, or that end the process on what is drawn blindly: steps draw them.
LEFT_OUT = frozenset(
    """
    Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike ImageDecoder Constant If Loop
    Scan SequenceMap Div Mod Optional OptionalGetElement OptionalHasElement TfIdfVectorizer MaxUnpool MaxRoiPool
    DeformConv TensorScatter Col2Im
    """.split()  # noqa: SIM905 - a page of quotation marks says less
)


def _recurrent(g: Growing) -> None:
    op_type, gates = g.among([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    x = g.pick("f", 3)
    if x.dtype != np.float32:
        raise RefusedError("no kernel")
    hidden, directions = g.integer(1, 3), g.among([1, 1, 2])
    w = weight(g, x, directions, gates * hidden, x.shape[2])
    r = weight(g, x, directions, gates * hidden, hidden)
    b = weight(g, x, directions, 2 * gates * hidden) if g.flip() else None
    direction = "bidirectional" if directions == 2 else g.among([None, "forward", "reverse"])
    outputs = 3 if op_type == "LSTM" else 2
    extra = {"linear_before_reset": g.among([None, 1])} if op_type == "GRU" else {}
    if op_type == "LSTM" and not x.free(1) and g.flip(0.3):
        states = [weight(g, x, directions, x.shape[1], hidden) for _ in range(2)]
        g.add(op_type, [x, w, r, b, None, *states], outputs, hidden_size=hidden, direction=direction)
        return
    g.add(op_type, [x, w, r, b], outputs, hidden_size=hidden, direction=direction, **extra)


def _resized(g: Growing) -> None:
    x = g.pick("f", 4)
    if x.dtype != np.float32:
        raise RefusedError("no kernel")
    scales = g.constant(np.array([1, 1, g.among([1, 2, 0.5]), g.among([2, 3, 1])], np.float32), plain=True)
    mode = g.among(["nearest", "linear"])
    if g.opset < 9:
        g.add("Upsample", [x], scales=[1.0, 1.0, 2.0, 2.0], mode=mode)
    elif g.opset < 10:
        g.add("Upsample", [x, scales], mode=mode)
    elif g.opset < 11:
        g.add("Resize", [x, scales], mode=mode)
    else:
        ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
        extra = {"nearest_mode": g.among([None, "floor", "round_prefer_ceil"])} if mode == "nearest" else {}
        roi = g.constant(np.zeros(0, np.float32), plain=True) if g.opset < 13 else None
        g.add("Resize", [x, roi, scales], mode=mode, coordinate_transformation_mode=g.among(ways), **extra)


def _quantised(g: Growing) -> None:
    if g.opset < 11:
        raise RefusedError("opset")
    x = g.pick("f")
    if x.dtype != np.float32:
        raise RefusedError("no kernel")
    if g.flip(0.3):
        q, scale, zero = g.add("DynamicQuantizeLinear", [x], 3)
        if g.flip() and q.rank == 2 and not q.free(1):
            w = g.constant(g.rng.integers(0, 9, (q.shape[1], 3)).astype(np.uint8))
            g.add("MatMulInteger", [q, w, zero])
            return
        g.add("DequantizeLinear", [q, scale, zero])
        return
    kind = g.among([np.uint8, np.int8])
    scale = g.constant(np.array(g.among([0.1, 0.5, 1.0]), np.float32))
    zero = g.constant(np.array(g.among([0, 3]), kind))
    (q,) = g.add("QuantizeLinear", [x, scale, zero])
    if g.flip(0.7):
        g.add("DequantizeLinear", [q, scale, zero])


def _sequence(g: Growing) -> None:
    """Sequences that begin and end within a few nodes, since tensors alone go on."""
    if g.opset < 11:
        raise RefusedError("opset")
    x = g.pick("f", least=1)
    other = next((v for v in reversed(g.values) if v.dtype == x.dtype and v.dims == x.dims and v is not x), x)
    held, made = g.fresh("q"), g.fresh()
    at = g.integers([0])
    place = g.constant(np.array(g.among([0, -1]), np.int64))
    match g.integer(0, 3):
        case 0:
            nodes = [
                helper.make_node("SequenceConstruct", [x.name, other.name], [held]),
                helper.make_node("SequenceAt", [held, place.name], [made]),
            ]
            g.fragment(nodes, [x, other, place], [made])
        case 1:
            nodes = [
                helper.make_node("SequenceConstruct", [x.name, other.name], [held]),
                helper.make_node("ConcatFromSequence", [held], [made], axis=0, new_axis=g.among([0, 1])),
            ]
            g.fragment(nodes, [x, other], [made])
        case 2:
            nodes = [
                helper.make_node("SplitToSequence", [x.name], [held], axis=0),
                helper.make_node("SequenceLength", [held], [made]),
            ]
            g.fragment(nodes, [x], [made])
        case _:
            grown = g.fresh("q")
            nodes = [helper.make_node("SequenceEmpty", [], [held]),
                     helper.make_node("SequenceInsert", [held, x.name], [grown]),
                     helper.make_node("SequenceAt", [grown, at.name], [made])]  # fmt: skip
            g.fragment(nodes, [x, at], [made])


def _strings(g: Growing) -> None:
    x = g.pick("O", 1)
    if g.flip(0.3) or g.opset < 20:
        g.add(g.among(["Identity", "Shape", "Size"]), [x])
    elif g.flip():
        g.add("StringConcat", [x, g.constant(np.array("!", object))])
    else:
        g.add("RegexFullMatch", [x], pattern="[a-z]*")


def _selected(g: Growing) -> None:
    """Results whose size depends on values."""
    match g.integer(0, 3):
        case 0 if g.opset >= 9:
            g.add("NonZero", [g.pick("fib", least=1)])
        case 1 if g.opset >= 9:
            x = g.pick("f", least=1)
            keep = g.constant(g.rng.random(2) < 0.6)
            g.add("Compress", [x, keep], axis=g.among([None, 0]))
        case 2 if g.opset >= 11:
            g.add("Unique", [g.pick("f")], outputs=g.among([1, 4]), sorted=g.among([None, 1]))
        case _ if g.opset >= 9:
            at = g.pick("i", chained=0.3)
            depth = g.constant(np.array(4, at.dtype))
            values = g.constant(np.array([0, 1], np.float32) if g.flip() else np.array([-1, 2], np.float32))
            g.add("OneHot", [at, depth, values], axis=g.among([None, -1, 0]))
        case _:
            raise RefusedError("opset")


def _fused(g: Growing) -> None:
    """ONNX Runtime's own operators."""
    x = g.pick("f", least=1)
    if x.dtype != np.float32 or x.free(-1):
        raise RefusedError("no kernel")
    size, ours = x.shape[-1], {"domain": "com.microsoft"}
    match g.integer(0, 7):
        case 0:
            g.add("Gelu", [x], **ours)
        case 1:
            g.add("FastGelu", [x, *([weight(g, x, size)] if g.flip() else [])], **ours)
        case 2:
            g.add("BiasGelu", [x, weight(g, x, size)], **ours)
        case 3:
            g.add("QuickGelu", [x], alpha=g.among([None, 1.0]), **ours)
        case 4:
            flags = {"alpha": g.among([None, 0.5]), "transB": g.among([None, 1])}
            shape = (3, size) if flags["transB"] else (size, 3)
            g.add("FusedMatMul", [x, weight(g, x, *shape)], **flags, **ours)
        case 5:
            g.add("SkipLayerNormalization", [x, x, weight(g, x, size), weight(g, x, size)], epsilon=1e-5, **ours)
        case 6:
            filters = [weight(g, x, 2, size), weight(g, x, 2)]
            g.add("FusedGemm", [x, *filters], transB=1, activation="Relu", **ours)
        case _:
            g.add("SimplifiedLayerNormalization", [x, weight(g, x, size)], axis=-1, epsilon=1e-5)


def _attention(g: Growing) -> None:
    if not g.has("Attention"):
        raise RefusedError("opset")
    q = g.input(np.float32, [g.among([1, 2, "n"]), 2, 3, 4])
    k = g.constant(g.numbers.array(np.float32, (1 if q.free(0) else q.shape[0], 2, 5, 4)))
    g.add("Attention", [q, k, k], is_causal=g.among([None, 1]), scale=g.among([None, 0.5]))


@cache
def _schemas(opset: int) -> tuple[Any, ...]:
    """Every operator of an opset that may be drawn blindly, and those of classical machine learning."""
    found = {(s.domain, s.name) for s in defs.get_all_schemas_with_history() if s.domain in ("", "ai.onnx.ml")}
    known = [(d, n) for d, n in sorted(found) if n not in LEFT_OUT]
    schemas = [
        defs.get_schema(n, opset if d == "" else 1, d) for d, n in known if defs.has(n, opset if d == "" else 1, d)
    ]
    return tuple(s for s in schemas if not s.deprecated)


def by_schema(g: Growing) -> None:
    """Any operator: as many operands as it takes, of types that it takes, and some of its attributes."""
    schema = g.among(_schemas(g.opset))
    allowed = {t.type_param_str: list(t.allowed_type_strs) for t in schema.type_constraints}
    bound: dict[str, Any] = {}
    operands: list[Value | None] = []
    for i in range(g.integer(schema.min_input, min(schema.max_input, schema.min_input + 2))):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if formal.option == defs.OpSchema.FormalParameterOption.Optional and g.flip(0.4):
            operands.append(None)
            continue
        operands.append(_operand(g, formal.type_str, allowed.get(formal.type_str, [formal.type_str]), bound))
    attrs = {name: _attribute(g, a) for name, a in schema.attributes.items() if a.required or g.flip(0.25)}
    outputs = g.integer(max(schema.min_output, 1), min(schema.max_output, max(schema.min_output, 1) + 1))
    g.add(schema.name, operands, outputs, domain=schema.domain, **attrs)


def _operand(g: Growing, variable: str, types: Sequence[str], bound: dict[str, Any]) -> Value:
    tensors = [t[len("tensor(") : -1] for t in types if t.startswith("tensor(")]
    usual = [t for t in tensors if t in _KINDS or t.strip("u").startswith("int")]
    usual = [t for t in usual if t not in ("int4", "uint4", "int2", "uint2")]
    if not usual:
        raise RefusedError("no type that is drawn")
    if variable in bound:
        same = [v for v in g.values if v.dtype == bound[variable].dtype]
        return g.among(same) if g.flip(0.3) else g.like(bound[variable])
    wanted = "float" if "float" in usual and g.flip(0.7) else g.among(usual)
    dtype = np.dtype(
        np.object_ if wanted == "string" else {"float": "float32", "double": "float64"}.get(wanted, wanted)
    )
    fitting = [v for v in g.values if v.dtype == dtype]
    if fitting and g.flip(0.7):
        found: Value = fitting[-1]
    else:
        shape = g.dims(g.among([0, 1, 2, 3, 4]))
        static = [3 if isinstance(d, str) else d for d in shape]
        found = g.input(dtype, shape) if g.flip() else g.constant(g.numbers.array(dtype, static))
    bound[variable] = found
    return found


def _attribute(g: Growing, attribute: Any) -> Any:
    match attribute.type.name:
        case "INT" if attribute.name == "saturate":
            return g.among([0, 1])
        case "INT":
            return TensorProto.FLOAT if attribute.name in ("to", "dtype", "output_dtype") else g.among([0, 1, 2, -1])
        case "FLOAT":
            return g.among([0.5, 1.0, 0.0, -1.5])
        case "INTS":
            return [g.among([1, 1, 2]) for _ in range(g.integer(1, 4))]
        case "FLOATS":
            return [g.among([0.5, 1.0, -1.0]) for _ in range(g.integer(1, 4))]
        case "STRING":
            return g.among(["linear", "nearest", "constant", "SUM", "a"])
    raise RefusedError(f"attribute of type {attribute.type.name}")


STEPS: Mapping[Step, float] = {
    _recurrent: 0.8,
    _resized: 0.6,
    _quantised: 0.8,
    _sequence: 0.6,
    _strings: 0.3,
    _selected: 1,
    _fused: 0.8,
    _attention: 0.2,
    by_schema: 6,
}
