"""Branches, loops, scans and local functions, whose bodies are models that grow as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import FunctionProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import Growing, RefusedError, Value, tensor_type

#: What a body does to a value, and to a weight of it: one operand, or two.
_SIMPLE = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Identity")
_PAIRED = ("Add", "Mul", "Sub", "Max", "Min")


def chain(g: Growing, value: str, other: str, result: str, length: int | None = None) -> list[NodeProto]:
    """Nodes from a value and another of its shape to a result of that shape."""
    nodes: list[NodeProto] = []
    count = length or g.integer(1, 4)
    for i in range(count):
        made = result if i + 1 == count else g.fresh("b")
        if g.flip(0.4):
            nodes.append(helper.make_node(g.among(_SIMPLE), [value], [made]))
        else:
            operands = [value, other if g.flip(0.8) else value]
            nodes.append(helper.make_node(g.among(_PAIRED), operands if g.flip() else operands[::-1], [made]))
        value = made
    return nodes


def _body(name: str, nodes: Sequence[NodeProto], inputs: Sequence[tuple[str, int, Sequence[int | str] | None]],
          outputs: Sequence[tuple[str, int]], tensors: Sequence[TensorProto] = ()) -> GraphProto:  # fmt: skip
    return helper.make_graph(
        list(nodes),
        name,
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs],
        list(tensors),
    )


def _branch(g: Growing) -> None:
    x = g.pick("f", least=0)
    other = g.like(x) if g.flip(0.5) else x
    if np.broadcast_shapes(other.shape, x.shape) != x.shape:
        other = x
    if g.flip(0.3):
        condition = g.constant(np.array(g.flip()), plain=g.flip())
    else:
        asked = g.pick("f", chained=0.2)
        (total,) = g.add("ReduceMax", [asked], keepdims=0)
        (condition,) = g.add("Greater", [total, g.constant(np.array(0.3, total.dtype))])
    made, bodies = g.fresh(), []
    for name in ("then_branch", "else_branch"):
        result, tensors = g.fresh("r"), []
        inner = other.name
        if g.flip(0.4):
            inner = g.fresh("w")
            tensors = [numpy_helper.from_array(g.numbers.array(x.dtype, ()), inner)]
        nodes = chain(g, x.name, inner, result)
        if g.flip(0.15) and x.rank:  # branches of other shapes
            cut = g.fresh("r")
            nodes.append(helper.make_node("Concat", [result, result], [cut], axis=0))
            result = cut
        bodies.append(_body(name, nodes, [], [(result, tensor_type(x.array))], tensors))
    node = helper.make_node("If", [condition.name], [made], then_branch=bodies[0], else_branch=bodies[1])
    g.fragment([node], [condition, x, other], [made])


def _loop(g: Growing) -> None:
    x = g.pick("f")
    outer = g.pick("f")
    if outer.dtype != x.dtype or not _fits(outer, x):
        outer = x
    step, going, state, result, again, scanned = (g.fresh("l") for _ in range(6))
    collected = g.flip(0.5)
    nodes = chain(g, state, outer.name, result)
    if g.flip(0.4):
        nodes.append(helper.make_node("Identity", [going], [again]))
    else:  # stops by itself
        limit = g.fresh("l")
        nodes.append(
            helper.make_node(
                "Constant", [], [limit], value=numpy_helper.from_array(np.array(g.integer(0, 2), np.int64))
            )
        )
        nodes.append(helper.make_node("Less", [step, limit], [again]))
    if collected:
        nodes.append(helper.make_node("Identity", [result], [scanned]))
    kind = tensor_type(x.array)
    inputs = [(step, TensorProto.INT64, []), (going, TensorProto.BOOL, []), (state, kind, None)]
    outputs = [(again, TensorProto.BOOL), (result, kind), *([(scanned, kind)] if collected else [])]
    body = _body("body", nodes, inputs, outputs)  # type: ignore[arg-type]
    count = g.constant(np.array(g.among([0, 1, 2, 3]), np.int64), plain=g.flip())
    start = g.constant(np.array(g.flip(0.85))) if g.flip(0.5) else None
    made = [g.fresh() for _ in range(2 if collected else 1)]
    names = [count.name, start.name if start else "", x.name]
    used = [v for v in (count, start, x, outer) if v is not None]
    g.fragment([helper.make_node("Loop", names, made, body=body)], used, made)


def _fits(one: Value, other: Value) -> bool:
    try:
        return np.broadcast_shapes(one.shape, other.shape) == other.shape
    except ValueError:
        return False


def _scan(g: Growing) -> None:
    if g.opset < 9:
        raise RefusedError("opset")
    x = g.pick("f", least=1)
    if 0 in x.shape:
        raise RefusedError("nothing to scan")
    start = g.constant(g.numbers.array(x.dtype, x.shape[1:])) if not any(map(x.free, range(1, x.rank))) else None
    if start is None:
        raise RefusedError("a state of a free dim")
    state, row, result, scanned = (g.fresh("s") for _ in range(4))
    nodes = [*chain(g, state, row, result), helper.make_node("Add", [result, row], [scanned])]
    kind = tensor_type(x.array)
    body = _body("body", nodes, [(state, kind, None), (row, kind, None)], [(result, kind), (scanned, kind)])
    made = [g.fresh() for _ in range(2)]
    extra = {"scan_input_directions": [1]} if g.flip(0.2) else {}
    g.fragment(
        [helper.make_node("Scan", [start.name, x.name], made, body=body, num_scan_inputs=1, **extra)], [start, x], made
    )


def _function(g: Growing) -> None:
    """A call of a function of the model, which may call another."""
    x = g.pick("f")
    other = g.like(x)
    if not _fits(other, x):
        other = x
    name = g.fresh("Function")
    nodes = chain(g, "p", "q", "r")
    imports = [helper.make_opsetid("", g.opset)]
    if g.functions and g.flip(0.4):
        called = g.among(g.functions)
        nodes = [helper.make_node(called.name, ["p", "q"], ["inner"], domain="local"), *chain(g, "inner", "q", "r")]
        imports.append(helper.make_opsetid("local", 1))
    function: FunctionProto = helper.make_function("local", name, ["p", "q"], ["r"], nodes, imports)
    g.functions.append(function)
    try:
        g.add(name, [x, other], domain="local")
    except RefusedError:
        g.functions.remove(function)
        raise


STEPS: Mapping[Step, float] = {_branch: 1.5, _loop: 1, _scan: 0.6, _function: 0.8}
