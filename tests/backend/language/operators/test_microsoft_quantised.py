"""ONNX Runtime's operators on quantised numbers are read as what they mean, and written as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import eqsat
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_bytes, to_model
from eqsat.language.ops import OPS
from eqsat.runtime.backend import select
from tests.support.one_operator import model, opaque, session_run

RNG = np.random.default_rng(4)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def numbers(*shape: int, dtype: str = "uint8") -> Any:
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape).astype(dtype)


def small(*shape: int) -> Any:
    """Weights of 7 bits, whose products no processor cuts off."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


S, Z, T, V = np.float32(0.05), np.uint8(120), np.float32(0.02), np.uint8(100)
NONE = np.int8(0)
X, Y = numbers(2, 3, 4), numbers(3, 4)
IMAGE = numbers(1, 4, 6, 8)
COLUMNS = RNG.uniform(0.01, 0.02, 6).astype(np.float32)
SUMS = RNG.integers(-900, 900, 6).astype(np.int32)
#: Operator, attributes, operands ("" for one left out), and the operator in the middle of what it is read as.
CASES: list[tuple[str, dict[str, Any], list[Any], str]] = [
    ("QLinearAdd", {}, [X, S, Z, Y, T, V, np.float32(0.06), Z], "add"),
    ("QLinearAdd", {}, [numbers(5, dtype="int8"), S, np.int8(3), small(5), T, NONE, S, NONE], "add"),
    ("QLinearMul", {}, [Y, S, Z, X, T, V, S, Z], "mul"),
    ("QLinearLeakyRelu", {"alpha": 0.1}, [X, S, Z, S, V], "leaky_relu"),
    ("QLinearSigmoid", {}, [X, S, Z, np.float32(1 / 256), np.uint8(0)], "sigmoid"),
    ("QLinearSoftmax", {"axis": -1, "opset": 13}, [X, S, Z, np.float32(1 / 256), np.uint8(0)], "softmax"),
    ("QLinearConcat", {"axis": 1}, [S, Z, X, S, Z, X[:, :2], T, V], "concat"),
    ("QLinearGlobalAveragePool", {}, [IMAGE, S, Z, T, V], "global_avg_pool"),
    ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, [IMAGE, S, Z, T, V], "avg_pool"),
    ("QLinearWhere", {}, [Y > 99, X, S, Z, Y, T, V, S, Z], "where"),
    ("QGemm", {"transB": 1}, [Y, S, Z, small(6, 4), T, NONE, SUMS, np.float32(0.4), Z], "gemm"),
    ("QGemm", {"alpha": 0.5}, [Y, S, Z, small(4, 6), COLUMNS, np.zeros(6, np.int8), SUMS, np.float32(0.4), Z], "gemm"),
    ("QGemm", {}, [Y, S, Z, small(4, 6), T, NONE], "gemm"),
    ("MatMulIntegerToFloat", {}, [X, small(4, 6), S, COLUMNS, Z, np.zeros(6, np.int8), floats(6)], "matmul_integer"),
    ("DynamicQuantizeMatMul", {}, [floats(2, 3, 4), small(4, 6), COLUMNS, "", floats(6)], "matmul_integer"),
    ("QAttention", {"num_heads": 2}, [numbers(2, 3, 8), small(8, 24), floats(24), T, T, "", V, NONE], "attention"),
    (
        "QAttention",
        {"num_heads": 2, "unidirectional": 1},
        [numbers(2, 3, 8), small(8, 24), floats(24), T, T, np.int32([[1, 1, 0], [1, 1, 1]]), V, NONE],
        "attention",
    ),
]


def written(op_type: str, attrs: dict[str, Any], operands: list[Any]) -> tuple[Any, dict[str, Any]]:
    names = ["" if isinstance(o, str) else f"x{i}" for i, o in enumerate(operands)]
    arrays = {n: np.asarray(o) for n, o in zip(names, operands, strict=True) if n}
    first = next(n for n, a in arrays.items() if a.ndim)
    feeds = {first: arrays.pop(first)}
    return model(helper.make_node(op_type, names, ["y"], domain="com.microsoft", **attrs), feeds, arrays), feeds


@pytest.mark.parametrize("op_type, attrs, operands, core", CASES)
def test_each_is_read_as_what_it_means(op_type: str, attrs: dict[str, Any], operands: list[Any], core: str) -> None:
    proto, feeds = written(op_type, attrs, operands)
    graph = load(proto)
    assert not opaque(graph)
    assert core in {n.op for n in graph.nodes}
    (expected,) = session_run(proto, feeds)
    y = select("numpy").compile(graph).run(feeds)["y"]
    assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
    if y.dtype.kind == "f":
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    else:  # what lies between two numbers may be either
        assert np.abs(y.astype(int) - expected.astype(int)).max() <= 1
    assert [n.op_type for n in load_back(graph)] == [op_type]
    np.testing.assert_array_equal(session_run(to_bytes(graph), feeds)[0], expected)


def load_back(graph: Any) -> Any:
    return to_model(graph).graph.node


@pytest.mark.parametrize(
    "op_type, attrs, operands, reason",
    [
        ("QLinearGlobalAveragePool", {"channels_last": 1}, [IMAGE, S, Z, T, V], "channels as the last axis"),
        ("QLinearAdd", {}, [X, S, Z, Y, np.float32([0.1, 0.2]), Z, S, Z], "'x4' is no scale of a whole tensor"),
        ("QLinearSoftmax", {"axis": 1, "opset": 11}, [X, S, Z, T, V], "a softmax over several axes together"),
        ("MatMulIntegerToFloat", {}, [Y, small(4, 6), np.float32([1, 2, 3]), S], "a scale for each row"),
    ],
)
def test_others_stay_as_they_are_with_a_reason(
    op_type: str, attrs: dict[str, Any], operands: list[Any], reason: str
) -> None:
    assert opaque(load(written(op_type, attrs, operands)[0])) == [reason]


def test_a_product_that_is_no_longer_what_it_was_is_written_in_operators_of_onnx() -> None:
    """What reads it twice is one product."""
    proto, feeds = written("QLinearAdd", {}, [X, S, Z, Y, T, V, np.float32(0.06), Z])
    again = helper.make_node("QLinearAdd", proto.graph.node[0].input, ["z"], domain="com.microsoft")
    proto.graph.node.append(again)
    proto.graph.output.append(helper.make_empty_tensor_value_info("z"))
    result = eqsat.optimize(proto, measure=False)
    assert sum(n.op == "add" for n in result.graph.nodes) == 1
    assert all(n.op in OPS for n in result.graph.nodes)
    expected = session_run(proto, feeds)
    for name, value in zip(("y", "z"), expected, strict=True):
        assert np.abs(result.run(**feeds)[name].astype(int) - value.astype(int)).max() <= 1
