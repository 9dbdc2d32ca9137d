"""Quantised operators are read, run and written as ONNX Runtime has them, to the last integer."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import eqsat
from eqsat.errors import ShapeError
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_bytes
from eqsat.language.ops import OPS
from eqsat.language.terms.types import TensorType
from tests.support.one_operator import agree, fits, is_lowered, model, opaque, session_run

RNG = np.random.default_rng(0)
BYTES = ("int8", "uint8")


def weights(shape: tuple[int, ...], left: str, right: str = "int8") -> Any:
    """Random weights, of 7 bits behind uint8 operands.

    On processors with AVX2 and no VNNI, ONNX Runtime adds pairs of products of uint8 and int8 in 16 bits and cuts off
    what these do not hold.
    """
    limits = np.iinfo(right)
    bounds = (-64, 64) if (left, right) == ("uint8", "int8") else (limits.min, limits.max)
    return RNG.integers(*bounds, shape).astype(right)


WIDE = (*BYTES, "int16", "uint16")
PACKED = ("int4", "uint4")


def number(dtype: str, value: int) -> Any:
    return np.asarray(value).astype(getattr(ml_dtypes, dtype, dtype))


def edges(scale: float) -> Any:
    """Halves, which are rounded to the even integer, numbers past every range, and both infinities."""
    halves = np.arange(-9.5, 10.5, 0.5)
    far = np.array([-1e9, -40000.0, -130.0, 127.5, 254.5, 255.5, 300.0, 70000.0, 1e9, np.inf, -np.inf])
    return (np.concatenate([halves, far]) * scale).astype(np.float32)


@pytest.mark.parametrize("zero", [None, 0, 3])
@pytest.mark.parametrize("dtype", [*WIDE, *PACKED])
def test_quantising_rounds_halves_to_even_and_saturates(dtype: str, zero: int | None) -> None:
    x, inputs = edges(0.25), ["x", "s"]
    constants = {"s": np.float32(0.25)}
    attrs = {}
    if zero is None:
        attrs["output_dtype"] = getattr(TensorProto, dtype.upper())
    else:
        constants["z"], inputs = number(dtype, zero), ["x", "s", "z"]
    graph = is_lowered_packed(helper.make_node("QuantizeLinear", inputs, ["y"], **attrs), {"x": x}, constants)
    assert graph.nodes[0].op == "quantize_linear"


def is_lowered_packed(node: Any, feeds: dict[str, Any], constants: dict[str, Any]) -> Any:
    """As is_lowered; four-bit integers are compared after a cast, since Python receives them in no type of NumPy's."""
    widen = helper.make_node("DequantizeLinear", ["y", "one"], ["wide"])
    made = model([node, widen], feeds, {**constants, "one": np.float32(1)}, outputs=["wide"])
    return is_lowered(made, feeds)


def test_what_is_no_number_becomes_the_least_integer() -> None:
    x = np.float32([np.nan, 1.0, np.nan])
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    is_lowered(model(node, {"x": x}, {"s": np.float32(0.5), "z": np.uint8(7)}), {"x": x})


@pytest.mark.parametrize("opset", [13, 19, 21, 23])
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scales_along_an_axis(dtype: str, axis: int, opset: int) -> None:
    x = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    count = x.shape[axis]
    scale = RNG.uniform(0.01, 0.1, count).astype(np.float32)
    zero = RNG.integers(-5 if dtype == "int8" else 0, 5, count).astype(dtype)
    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=axis)
    dequantize = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis)
    proto = model([quantize, dequantize], {"x": x}, {"s": scale, "z": zero}, opset=opset, outputs=["q", "y"])
    graph = is_lowered(proto, {"x": x}, rtol=1e-7)
    assert [n.op for n in graph.nodes] == ["quantize_linear", "dequantize_linear"]


@pytest.mark.parametrize("dtype", [*WIDE, *PACKED])
@pytest.mark.parametrize("axis", [0, 1])
def test_scales_of_blocks(dtype: str, axis: int) -> None:
    x = RNG.standard_normal((6, 8)).astype(np.float32)
    shape = (3, 8) if axis == 0 else (6, 4)
    scale = RNG.uniform(0.05, 0.2, shape).astype(np.float32)
    zero = number(dtype, 1) * np.ones(shape, number(dtype, 1).dtype)
    attrs = {"axis": axis, "block_size": 2}
    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attrs)
    dequantize = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **attrs)
    is_lowered(model([quantize, dequantize], {"x": x}, {"s": scale, "z": zero}), {"x": x}, rtol=1e-7)


def test_halves_are_quantised_in_single_precision() -> None:
    x = RNG.standard_normal((50,)).astype(np.float16)
    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])
    dequantize = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])
    constants = {"s": np.float16(0.013), "z": np.uint8(9)}
    is_lowered(model([quantize, dequantize], {"x": x}, constants, outputs=["q", "y"]), {"x": x})


@pytest.mark.parametrize("x", [RNG.standard_normal((4, 7)), RNG.uniform(2, 3, (9,)), np.zeros((3,)), -np.ones((2, 2))])
def test_dynamic_quantisation_finds_its_own_scale(x: Any) -> None:
    x = x.astype(np.float32)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    is_lowered(model(node, {"x": x}), {"x": x})
    graph = load(model(helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "", "z"]), {"x": x}, outputs=["z"]))
    agree(session_run(to_bytes(graph), {"x": x})[0], session_run(model(node, {"x": x}), {"x": x})[2])


@pytest.mark.parametrize("left", BYTES)
@pytest.mark.parametrize("right", BYTES)
@pytest.mark.parametrize("zeros", ["none", "number", "columns"])
def test_products_of_integers_are_exact(left: str, right: str, zeros: str) -> None:
    a = RNG.integers(np.iinfo(left).min, np.iinfo(left).max, (2, 3, 16)).astype(left)
    b = weights((16, 5), left, right)
    constants, inputs = {"b": b}, ["a", "b"]
    if zeros != "none":
        constants["az"] = np.asarray(7, left)
        constants["bz"] = np.asarray(3, right) if zeros == "number" else RNG.integers(0, 9, 5).astype(right)
        inputs += ["az", "bz"]
    graph = is_lowered(model(helper.make_node("MatMulInteger", inputs, ["y"]), {"a": a}, constants), {"a": a})
    assert [n.op for n in graph.nodes] == ["matmul_integer"]


@pytest.mark.parametrize("attrs", [{}, {"pads": [1, 0, 1, 2]}, {"strides": [2, 1], "dilations": [1, 2]}, {"group": 2}])
@pytest.mark.parametrize("zeros", [False, True])
def test_convolutions_of_integers_are_exact(attrs: dict[str, Any], zeros: bool) -> None:
    x = RNG.integers(0, 255, (2, 4, 6, 7)).astype(np.uint8)
    w = RNG.integers(0, 255, (6, 4 // attrs.get("group", 1), 3, 2)).astype(np.uint8)
    constants = {"w": w} | ({"xz": np.uint8(11), "wz": np.uint8(5)} if zeros else {})
    node = helper.make_node("ConvInteger", ["x", *constants], ["y"], **attrs)
    if zeros:
        node.input[:] = ["x", "w", "xz", "wz"]
    is_lowered(model(node, {"x": x}, constants), {"x": x})


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("channels", [False, True])
def test_a_quantised_convolution_rounds_once(dtype: str, bias: bool, channels: bool) -> None:
    limits = np.iinfo(dtype)
    x = RNG.integers(limits.min, limits.max, (1, 3, 8, 8)).astype(dtype)
    w = weights((4, 3, 3, 3), dtype)
    w_scale = RNG.uniform(0.01, 0.02, 4).astype(np.float32) if channels else np.float32(0.015)
    w_zero = np.zeros(4, np.int8) if channels else np.int8(0)
    constants = {
        "xs": np.float32(0.03),
        "xz": np.asarray(4, dtype),
        "w": w,
        "ws": w_scale,
        "wz": w_zero,
        "ys": np.float32(0.11),
        "yz": np.asarray(9, dtype),
    }
    constants |= {"b": RNG.integers(-3000, 3000, 4).astype(np.int32)} if bias else {}
    node = helper.make_node("QLinearConv", ["x", *constants], ["y"], pads=[1, 1, 1, 1])
    graph = is_lowered(model(node, {"x": x}, constants), {"x": x})
    assert [n.op for n in graph.nodes] == ["qlinear_conv"]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("opset", [13, 21])
def test_a_quantised_product_rounds_once(dtype: str, columns: bool, opset: int) -> None:
    a = RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, (2, 5, 8)).astype(dtype)
    b = weights((8, 6), dtype)
    constants = {
        "as": np.float32(0.02),
        "az": np.asarray(5, dtype),
        "b": b,
        "bs": RNG.uniform(0.01, 0.02, 6).astype(np.float32) if columns else np.float32(0.02),
        "bz": np.zeros(6, np.int8) if columns else np.int8(0),
        "ys": np.float32(0.09),
        "yz": np.asarray(3, dtype),
    }
    node = helper.make_node("QLinearMatMul", ["a", *constants], ["y"])
    is_lowered(model(node, {"a": a}, constants, opset=opset), {"a": a})


@pytest.mark.parametrize("to", ["FLOAT8E4M3FN", "FLOAT8E5M2"])
def test_narrow_floats_stay_opaque_with_a_reason_and_a_type(to: str) -> None:
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    quantize = helper.make_node("QuantizeLinear", ["x", "s"], ["q"], output_dtype=getattr(TensorProto, to))
    dequantize = helper.make_node("DequantizeLinear", ["q", "s"], ["y"])
    proto = model([quantize, dequantize], {"x": x}, {"s": np.float32(0.5)})
    graph = load(proto)
    assert opaque(graph) == [
        f"quantisation to {to.lower()}, whose rounding is that of a float of its own",
        f"dequantisation of {to.lower()}, whose rounding is that of a float of its own",
    ]
    assert graph.type("q") == TensorType.of(to.lower(), (3, 4))
    fits(graph, "y", session_run(proto, {"x": x})[0])


def test_weights_stay_quantised() -> None:
    """Folding a dequantised weight would make it four times as large and hide it from ONNX Runtime's kernels."""
    w = RNG.integers(-100, 100, (8, 8)).astype(np.int8)
    x = RNG.standard_normal((2, 8)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["float_w"]),
        helper.make_node("MatMul", ["x", "float_w"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
    ]
    proto = model(nodes, {"x": x}, {"w": w, "s": np.float32(0.1)}, outputs=["y"])
    graph = is_lowered(proto, {"x": x}, rtol=1e-5, atol=1e-5)
    assert "dequantize_linear" in [n.op for n in graph.nodes]
    result = eqsat.optimize(proto, measure=False, time_limit=5)
    assert result.report.failure == ""
    kinds = [str(i.data_type) for i in result.to_onnx().graph.initializer]
    assert str(TensorProto.INT8) in kinds


def test_a_named_dim_runs_through_quantisation() -> None:
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["y"]),
    ]
    w = RNG.integers(-9, 9, (4, 2)).astype(np.int8)
    proto = model(nodes, {"x": x}, {"w": w}, shapes={"x": ("n", 4)})
    graph = is_lowered(proto, {"x": x})
    assert graph.type("y") == TensorType.of("int32", ("n", 2))


def test_zero_points_of_several_axes_stay_opaque_with_a_reason() -> None:
    a, b = bytes_of(2, 3, 4), bytes_of(2, 4, 5)
    constants = {"az": np.uint8(1), "bz": np.zeros((2, 1, 5), np.uint8)}
    proto = model(helper.make_node("MatMulInteger", ["a", "b", "az", "bz"], ["y"]), {"a": a, "b": b}, constants)
    assert opaque(load(proto)) == ["'bz' has more than one axis"]
    fits(load(proto), "y", session_run(proto, {"a": a, "b": b})[0])


def bytes_of(*shape: int) -> Any:
    return RNG.integers(0, 255, shape).astype(np.uint8)


@pytest.mark.parametrize(
    "op, shapes, wrong",
    [
        ("matmul_integer", [(2, 3), (3, 4), (3,)], "scale, zero point or bias uint8[3]"),
        ("matmul_integer", [(2, 3), (3, 4), (), (3,)], "scale, zero point or bias uint8[3]"),
        ("conv_integer", [(1, 2, 5, 5), (4, 2, 3, 3), (2,)], "scale, zero point or bias uint8[2]"),
        ("conv_integer", [(1, 2, 5, 5), (4, 2, 3, 3), (), (3,)], "scale, zero point or bias uint8[3]"),
    ],
)
def test_zero_points_that_fit_nothing_are_refused(op: str, shapes: list[tuple[int, ...]], wrong: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(wrong)):
        OPS[op].result_types([TensorType.of("uint8", s) for s in shapes], OPS[op].complete({}))
