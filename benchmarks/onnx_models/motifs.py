"""Chains that rules rewrite, as people's exporters write them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.onnx_models.elementwise import Step, by_number, with_itself
from benchmarks.onnx_models.growing import Growing, RefusedError, Value
from benchmarks.onnx_models.layers import conv, matmul, reduce, weight
from benchmarks.onnx_models.movement import concat, split


def _transposed_twice(g: Growing) -> None:
    x = g.pick("fi", least=2)
    perm = [int(p) for p in g.rng.permutation(x.rank)]
    (y,) = g.add("Transpose", [x], perm=perm)
    if g.flip(0.5) and y.kind == "f":
        (y,) = g.add(g.among(["Relu", "Neg", "Exp"]), [y])
    back = [int(p) for p in (np.argsort(perm) if g.flip(0.7) else g.rng.permutation(x.rank))]
    g.add("Transpose", [y], perm=back)


def _side_by_side(g: Growing) -> None:
    """Products of one value with several weights, which may become one."""
    x = g.pick("f", least=2)
    if x.free(-1):
        raise RefusedError("a product over a free dim with a constant")
    sizes = [g.integer(1, 4)] * 2 if g.flip() else [g.integer(1, 4), g.integer(1, 4)]
    parts = [g.add("MatMul", [x, weight(g, x, x.shape[-1], n)])[0] for n in sizes]
    if g.flip(0.4):
        parts = [g.add("Add", [p, weight(g, x, p.shape[-1])])[0] for p in parts]
    if sizes[0] == sizes[1] and g.flip():
        g.add(g.among(["Add", "Mul", "Sub"]), parts)
    else:
        g.add("Concat", parts, axis=x.rank - 1)


def _convolutions_side_by_side(g: Growing) -> None:
    x = g.pick("f", 4)
    if x.free(1) or x.dtype == np.float16:
        raise RefusedError("no kernel")
    kernel = [g.among([1, 3]), 1]
    parts = [g.add("Conv", [x, weight(g, x, 2, x.shape[1], *kernel)])[0] for _ in range(2)]
    if g.flip():
        g.add("Add", parts)
    else:
        g.add("Concat", parts, axis=1)


def _affine(g: Growing) -> None:
    """Sums and products with constants around a product with a weight."""
    x = g.pick("f", least=1)
    if x.free(-1):
        raise RefusedError("a product over a free dim with a constant")
    (x,) = g.add(g.among(["Add", "Sub", "Mul"]), [x, weight(g, x, x.shape[-1])])
    size = g.integer(1, 5)
    (y,) = g.add("MatMul", [x, weight(g, x, x.shape[-1], size)])
    (y,) = g.add(g.among(["Add", "Mul", "Div"]), [y, weight(g, x, size)])
    if g.flip():
        g.add("MatMul", [y, weight(g, x, size, g.integer(1, 4))])


def _normalised(g: Growing) -> None:
    """(x - mean) / sqrt(variance + epsilon), by hand."""
    x = g.pick("f", least=1)
    mean = reduce(g, "ReduceMean", x)
    (centred,) = g.add("Sub", [x, mean])
    (squares,) = (
        g.add("Mul", [centred, centred]) if g.flip() else g.add("Pow", [centred, g.constant(np.array(2, x.dtype))])
    )
    variance = reduce(g, "ReduceMean", squares)
    (shifted,) = g.add("Add", [variance, g.constant(np.array(1e-3, x.dtype))])
    (deviation,) = g.add("Sqrt", [shifted])
    g.add("Div", [centred, deviation])


def _softmax_by_hand(g: Growing) -> None:
    x = g.pick("f", least=1)
    if g.flip(0.6):
        (x,) = g.add("Sub", [x, _along(g, "ReduceMax", x)])
    (powers,) = g.add("Exp", [x])
    g.add("Div", [powers, _along(g, "ReduceSum", powers)])


def _along(g: Growing, op_type: str, x: Value) -> Value:
    if g.opset < (13 if op_type == "ReduceSum" else 18):
        return g.add(op_type, [x], axes=[x.rank - 1], keepdims=1)[0]
    return g.add(op_type, [x, g.integers([-1])], keepdims=1)[0]


def _distributed(g: Growing) -> None:
    """a·c + b·c, or the other way round."""
    x = g.pick("f")
    y, z = g.like(x), g.like(x)
    op_type, outer = g.among([("Mul", "Add"), ("Mul", "Sub"), ("Add", "Mul"), ("Max", "Add"), ("Div", "Add")])
    (a,) = g.add(op_type, [x, z])
    (b,) = g.add(op_type, [y, z])
    g.add(outer, [a, b])


def _cut_and_joined(g: Growing) -> None:
    parts = split(g)
    if g.flip() and parts[0].kind == "f":
        parts = [g.add("Relu", [p])[0] for p in parts]
    g.add("Concat", parts, axis=g.integer(0, parts[0].rank - 1))


def _sliced_concat(g: Growing) -> None:
    concat(g)
    x = g.values[-1]
    axis = g.integer(0, x.rank - 1)
    end = g.integer(0, x.shape[axis])
    if g.opset < 10:
        g.add("Slice", [x], starts=[0], ends=[end], axes=[axis])
    else:
        g.add("Slice", [x, g.integers([g.integer(0, end)]), g.integers([end]), g.integers([axis])])


def _heads(g: Growing) -> None:
    """The shuffle around attention: reshape, transpose, product, transpose, reshape."""
    x = g.pick("f", 3)
    if x.free(2) or x.shape[2] % 2 or x.free(1):
        raise RefusedError("no heads")
    _, length, size = x.shape
    (a,) = g.add("Reshape", [x, g.integers([0, length, 2, size // 2])])
    (q,) = g.add("Transpose", [a], perm=[0, 2, 1, 3])
    (k,) = g.add("Transpose", [a], perm=[0, 2, 3, 1])
    (scores,) = g.add("MatMul", [q, k])
    (scores,) = g.add("Div" if g.flip() else "Mul", [scores, g.constant(np.array(2.0, x.dtype))])
    (shares,) = g.add("Softmax", [scores], axis=3)
    (mixed,) = g.add("MatMul", [shares, q])
    (mixed,) = g.add("Transpose", [mixed], perm=[0, 2, 1, 3])
    g.add("Reshape", [mixed, g.integers([0, length, size])])


def _reduced_shuffle(g: Growing) -> None:
    x = g.pick("f", least=2)
    if g.flip():
        (x,) = g.add("Transpose", [x], perm=[int(p) for p in g.rng.permutation(x.rank)])
    else:
        (x,) = g.add("Mul", [x, g.like(x)])
    y = reduce(g, x=x)
    if g.flip():
        g.add(g.among(["Mul", "Add"]), [y, g.constant(g.numbers.array(y.dtype, ()))])


def _numbers_twice(g: Growing) -> None:
    by_number(g)
    for _ in range(g.integer(1, 3)):
        x = g.values[-1]
        if x.kind != "f":
            return
        g.add(g.among(["Add", "Mul", "Sub", "Div"]), [x, g.constant(g.numbers.array(x.dtype, g.smaller(x)))])


def _divided_by_itself(g: Growing) -> None:
    with_itself(g)
    x = g.values[-1]
    if x.kind == "f":
        g.add(g.among(["Mul", "Add", "Div"]), [x, g.like(x)])


def _product_and_activation(g: Growing) -> None:
    matmul(g)
    x = g.values[-1]
    if x.kind == "f":
        g.add(g.among(["Relu", "Sigmoid", "Tanh", "Identity"]), [x])


def _convolution_and_sum(g: Growing) -> None:
    y = conv(g)
    g.add(g.among(["Add", "Mul"]), [y, g.constant(g.numbers.array(y.dtype, (y.shape[1],) + (1,) * (y.rank - 2)))])


STEPS: Mapping[Step, float] = {
    _transposed_twice: 3,
    _side_by_side: 2.5,
    _convolutions_side_by_side: 1,
    _affine: 3,
    _normalised: 1,
    _softmax_by_hand: 1,
    _distributed: 3,
    _cut_and_joined: 2,
    _sliced_concat: 2,
    _heads: 1,
    _reduced_shuffle: 3,
    _numbers_twice: 3,
    _divided_by_itself: 1,
    _product_and_activation: 2,
    _convolution_and_sum: 1.5,
}
