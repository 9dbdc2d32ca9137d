"""Elements at the edge of their type: the least integer, the sign of a zero, slopes below zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, parser

import eqsat

LEAST = -(2**31)


def model(text: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def run(source: ModelProto, **feeds: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(source.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


def same(source: ModelProto, **feeds: Any) -> bool:
    """Whether the result of optimising makes the very bytes that the model makes."""
    (made,) = eqsat.optimize(source, measure=False).run(**feeds).values()
    return bool(made.tobytes() == run(source, **feeds).tobytes())


def test_relu_stays_where_abs_keeps_the_least_integer() -> None:
    source = model("g (int32[2] x) => (int32[2] y) { t = Abs(x) \n y = Relu(t) }")
    assert run(source, x=np.int32([LEAST, -5])).tolist() == [0, 5]
    assert same(source, x=np.int32([LEAST, -5]))


def test_bounds_of_large_integers_are_compared_as_integers() -> None:
    """2**53 and 2**53 + 1 are one number in float64."""
    source = model(
        """g (int64[3] x) => (int64[3] y) <int64 a = {0}, int64 b = {9007199254740992},
            int64 c = {9007199254740993}, int64 d = {9007199254740995}> { t = Clip(x, a, b) \n y = Clip(t, c, d) }"""
    )
    x = np.array([0, 2**53, 2**53 + 4])
    assert run(source, x=x).tolist() == [2**53 + 1] * 3
    assert same(source, x=x)


@pytest.mark.parametrize("alpha", [-1.0, -0.25, 0.5, 2.0])
def test_celu_of_any_slope_folds_as_it_runs(alpha: float) -> None:
    source = model(
        f"""g (float[5] x) => (float[5] y) <float[5] k = {{-3.0, -0.5, 0.0, 0.5, 100.0}}> {{
            c = Celu<alpha = {alpha}>(k) \n y = Add(x, c) }}"""
    )
    x = np.zeros(5, np.float32)
    (made,) = eqsat.optimize(source, measure=False).run(x=x).values()
    assert np.allclose(made, run(source, x=x), rtol=1e-6)


@pytest.mark.parametrize(
    "nodes",
    [
        "a = Add(x, zero) \n y = Reciprocal(a)",
        "a = Sub(x, minus) \n y = Div(one, a)",
        "a = Sub(zero, x) \n y = Div(one, a)",
        "a = Add(x, zero) \n b = Relu(a) \n c = Sqrt(b) \n d = Mul(c, two) \n y = Reciprocal(d)",
        "a = Add(zero, x) \n y = Pow(a, minusone)",
    ],
)
def test_the_sign_of_a_zero_stays_where_the_model_divides_by_it(nodes: str) -> None:
    source = model(
        f"""g (float[2] x) => (float[2] y) <float[1] zero = {{0}}, float[1] minus = {{-0.0}}, float[1] one = {{1}},
            float[1] two = {{2}}, float[1] minusone = {{-1}}> {{ {nodes} }}"""
    )
    assert same(source, x=np.float32([-0.0, 0.0]))


@pytest.mark.parametrize(
    ("nodes", "least"),
    [
        ("a = Add(x, zero) \n y = Exp(a)", 1),
        ("a = Add(x, minus) \n y = Reciprocal(a)", 1),
        ("a = Sub(x, zero) \n y = Reciprocal(a)", 1),
        ("a = Add(x, zero) \n b = Exp(a) \n y = Reciprocal(b)", 2),
        ("a = Add(x, zero) \n b = Mul(a, a) \n y = Reciprocal(b)", 2),
        ("a = Add(x, zero) \n b = Add(a, one) \n y = Reciprocal(b)", 2),
    ],
)
def test_zeros_go_where_no_sign_of_a_zero_can_be_told(nodes: str, least: int) -> None:
    source = model(
        f"""g (float[2] x) => (float[2] y) <float[1] zero = {{0}}, float[1] minus = {{-0.0}}, float[1] one = {{1}}> {{
            {nodes} }}"""
    )
    result = eqsat.optimize(source, measure=False)
    assert len(result.to_onnx().graph.node) == least
    assert same(source, x=np.float32([-0.0, 2.0]))


def test_with_finite_math_no_zero_is_divided_by() -> None:
    source = model("g (float[2] x) => (float[2] y) <float[1] zero = {0}> { a = Add(x, zero) \n y = Reciprocal(a) }")
    assert len(eqsat.optimize(source, measure=False, finite_math=True).to_onnx().graph.node) == 1
