"""Elements at the edge of their type: the least integer, the sign of a zero, slopes below zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper, parser

import eqsat
from eqsat.errors import ImportModelError
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms.graph import OPAQUE

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
    made = next(iter(eqsat.optimize(source, measure=False).run(**feeds).values()))
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
        "a = Mul(x, zero) \n y = Div(one, a)",
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
        ("a = Mul(x, zero) \n y = Exp(a)", 0),
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


@pytest.mark.parametrize("device", ["onnxruntime-cpu", "nvidia-h200"])
def test_a_dim_that_the_weights_fix_is_no_fault_of_a_rule(device: str) -> None:
    """The channels are n by the input and one by the weights: what holds of one size alone is left as it is."""
    source = model(
        """g (float[n, 2, 2] x, bool[1, 1, 2, 2] c) => (float[a, b, d, e] y)
            <float[1] s = {-0.4}, float[1] b = {-0.7}, float[1] m = {-0.75}, float[1] v = {1.25}> {
                w = Where(c, x, x) \n y = BatchNormalization(w, s, b, m, v) }"""
    )
    result = eqsat.optimize(source, measure=False, device=device)
    assert "BatchNormalization" in [n.op_type for n in result.to_onnx().graph.node]
    assert not result.report.warnings
    feeds = {"x": np.float32([[[1, 2], [3, 4]]]), "c": np.zeros((1, 1, 2, 2), bool)}
    made = ModelProto.FromString(result.to_onnx().SerializeToString())
    assert np.allclose(run(made, **feeds), run(source, **feeds), atol=1e-6)


@pytest.mark.parametrize("factor", [1e-21, 1e-30, 1e30])
def test_factors_that_leave_float32_together_stay_apart(factor: float) -> None:
    """1e-42 is a number of few bits, 1e-60 none at all, and 1e60 an infinity."""
    source = model(
        f"""g (float[8] x) => (float[8] y) <float[1] c = {{{factor}}}, float[1] d = {{{factor}}}> {{
            a = Mul(x, c) \n y = Mul(a, d) }}"""
    )
    result = eqsat.optimize(source, measure=False)
    assert len(result.to_onnx().graph.node) == 2
    assert not result.report.warnings
    assert same(source, x=np.float32([1, 2, 1e21, 1e30, 1e-30, -3, 0, 7]))


def test_many_factors_that_leave_float32_leave_the_original_with_the_reason() -> None:
    """Weights of more than 4 096 elements are folded once something is chosen."""
    source = model("g (float[4, 80] x) => (float[4, 80] y) { a = Mul(x, c) \n y = MatMul(a, w) }")
    rng = np.random.default_rng(0)
    weights = {"c": np.full(80, 1e20, np.float32), "w": rng.uniform(1e20, 2e20, (80, 80)).astype(np.float32)}
    source.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    result = eqsat.optimize(source, measure=False)
    assert [n.op_type for n in result.to_onnx().graph.node] == ["Mul", "MatMul"]
    (warning,) = result.report.warnings
    assert "left out" in warning


def test_a_quotient_of_numbers_next_to_zero_stays_one() -> None:
    """The reciprocal of a number below the normal ones is infinite, the quotient of two is not."""

    def products(application: Any) -> float:
        return 1e-4 if application.op == "div" else 1e-6

    x = np.float32([1e-45, -1e-45, 1e-40, 2, -3e38])
    for text in (
        "g (float[5] x) => (float[5] y) { y = Div(x, x) }",
        "g (float[5] x) => (float[5] y) { t = Abs(x) \n y = Div(x, t) }",
        "g (float[5] x) => (float[5] y) <float[5] c = {1e-40, -1e-40, 1e-39, 4.0, -8.0}> { y = Div(x, c) }",
    ):
        source = model(text)
        for finite_math in (None, False):
            result = eqsat.optimize(source, measure=False, cost=products, finite_math=finite_math)
            (made,) = result.run(x=x).values()
            assert np.isfinite(run(source, x=x)).all()
            assert np.allclose(made, run(source, x=x), rtol=1e-6)
    eighth = model("g (float[5] x) => (float[5] y) <float c = {8.0}> { y = Div(x, c) }")
    assert [n.op_type for n in eqsat.optimize(eighth, measure=False, cost=products).to_onnx().graph.node] == ["Mul"]


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceProd", "ReduceL2", "ReduceMean"])
def test_a_scalar_that_is_reduced_over_an_axis_stays_what_onnx_runtime_makes_of_it(op: str, keepdims: int) -> None:
    """ONNX has no axis 2 of a scalar; older opsets run it all the same."""
    source = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 10]> g (float x, float[2] z) => (float[2] y)
        {{ r = {op}<axes = [2], keepdims = {keepdims}>(x) \n y = Mul(z, r) }}"""
    )
    assert same(source, x=np.array(-3, np.float32), z=np.float32([1, 2]))


def test_what_onnx_does_not_define_stays_as_it_is_where_onnx_runtime_runs_it() -> None:
    """A gain of no dims, the extreme element of no elements where there is no result, a slope larger than its input."""
    nodes = """r = GroupNormalization<num_groups = 2>(x, c, d) \n i = ArgMin<axis = 0>(e) \n p = PRelu(s, d)
        n = Neg(r) \n y = Neg(n)"""
    source = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]> g (float[2, 4, 3] x, float[0, 0] e, float s)
        => (float[2, 4, 3] y, int64[1, 0] i, float[4] p)
        <float c = {{1.5}}, float[4] d = {{1, 2, 3, 4}}> {{ {nodes} }}"""
    )
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 4, 3)
    result = eqsat.optimize(source, measure=False)
    assert [n.op for n in result.graph.nodes].count("opaque") == 3
    made = result.run(x=x, e=np.zeros((0, 0), np.float32), s=np.array(-2, np.float32))
    np.testing.assert_array_equal(made["p"], [-2, -4, -6, -8])
    assert made["i"].shape == (1, 0)
    np.testing.assert_array_equal(
        made["y"], run(source, x=x, e=np.zeros((0, 0), np.float32), s=np.array(-2, np.float32))
    )


@pytest.mark.parametrize("op", ["ReduceLogSum", "ReduceLogSumExp", "ReduceMean"])
def test_what_is_rounded_to_integers_is_left_to_onnx_runtime(op: str) -> None:
    source = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 11]> g (int32[2] z) => (int32[1] y, int32[2] v)
        <int32[2] c = {{7, 100}}> {{ y = {op}(c) \n v = Neg(z) }}"""
    )
    result = eqsat.optimize(source, measure=False)
    assert [n.op for n in result.graph.nodes if n.op != "neg"] == ["opaque"]
    z = np.int32([1, 2])
    np.testing.assert_array_equal(result.run(z=z)["y"], run(source, z=z))


def test_an_axis_that_an_empty_tensor_lacks_is_left_to_onnx_runtime() -> None:
    """It looks at no axis where there is nothing, so the model runs at times."""
    source = model(
        "g (float[4] x, int64[1] times) => (float[n] y, float[4] z) {"
        " t = Tile(x, times) \n y = Softmax<axis = 1>(t) \n a = Neg(x) \n z = Neg(a) }"
    )
    source.opset_import[0].version, source.ir_version = 7, 4
    assert [n.attrs["reason"] for n in load(source).nodes if n.op == OPAQUE] == [
        "'times' is computed at run time",
        "axis 1 of a tensor of rank 1, which ONNX Runtime lets pass where tensors are empty",
    ]
    assert same(source, x=np.ones(4, np.float32), times=np.int64([0]))
    del source.graph.node[0], source.graph.input[1]
    source.graph.node[0].input[0] = "x"
    with pytest.raises(ImportModelError, match="axis 1 of a tensor of rank 1"):
        load(source)


@pytest.mark.parametrize("squares", [[2**31 - 1, 2], [LEAST, 0], [46341, 3]])
def test_sums_of_squares_that_leave_their_type_are_left_to_onnx_runtime(squares: list[int]) -> None:
    """It adds them up in float64 and cuts off, where NumPy wraps around."""
    source = model(
        f"g (float[n] x) => (int32[1] s, float[n] y) <int32[2] c = {{{squares[0]}, {squares[1]}}}> {{"
        " s = ReduceSumSquare(c) \n a = Neg(x) \n y = Neg(a) }"
    )
    x = np.ones(2, np.float32)
    assert eqsat.optimize(source, measure=False).run(x=x)["s"].tolist() == run(source, x=x).tolist()


@pytest.mark.parametrize("opset", [18, 21])
def test_doubles_are_normalised_by_groups_in_doubles(opset: int) -> None:
    """From opset 21 on the means of GroupNormalization are float32 unless it says otherwise."""
    channels = 2 if opset == 18 else 4
    source = model(
        f"g (double[n, 4, 3] x) => (double[n, 4, 3] y) <double[{channels}] s = {{{'0.3, ' * (channels - 1)}2.1}}>"
        " { y = GroupNormalization<num_groups = 2" + (", stash_type = 11" if opset == 21 else "") + ">(x, s, s) }"
    )
    source.opset_import[0].version = opset
    x = np.random.default_rng(0).standard_normal((2, 4, 3))
    for written in (None, 21):
        made = run(eqsat.optimize(source, measure=False).to_onnx(opset=written), x=x)
        np.testing.assert_allclose(made, run(source, x=x), rtol=1e-13)
    if opset == 21:
        del source.graph.node[0].attribute[1]
        assert [n.op for n in load(source).nodes] == [OPAQUE] and same(source, x=x)


def test_the_sixth_of_a_hard_swish_of_doubles_is_that_of_its_definition() -> None:
    source = model(
        "g (double[2] x) => (double[2] y, double[2] z) <double[2] c = {-0.7, 1.3}>"
        " { y = HardSwish(c) \n z = HardSwish(x) }"
    )
    source.opset_import[0].version = 18  # ONNX Runtime has a kernel of doubles there
    x = np.float64([-1.1, 0.4])
    made = eqsat.optimize(source, measure=False).run(x=x)
    np.testing.assert_allclose(made["y"], run(source, x=x), rtol=1e-15)


def test_elements_of_a_sequence_that_fit_only_as_one_is_empty_are_left_to_onnx_runtime() -> None:
    source = model(
        "g (float[1, 2] x) => (float[n, a, b] y) <int64[1] one = {1}> {"
        " e = Slice(x, one, one, one) \n q = SequenceConstruct(e, x) \n"
        " y = ConcatFromSequence<axis = 0, new_axis = 1>(q) }"
    )
    x = np.ones((1, 2), np.float32)
    assert "ONNX Runtime lets pass" in str(load(source).nodes[-1].attrs["reason"])
    assert eqsat.optimize(source, measure=False).run(x=x)["y"].shape == run(source, x=x).shape


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ("p = MatMul(x, w) \n y = Div(p, c)", "256, 9"),
        ("d = Div(x, c) \n y = MatMul(d, v)", "256, 1"),
        ("p = ConvTranspose(z, k) \n y = Div(p, c)", "1, 3, 263"),
    ],
)
def test_a_divisor_that_may_be_0_stays_where_it_divides(nodes: str, shape: str) -> None:
    """Infinities of both signs are NaN when they are added up, and the sum divided by 0 is one infinity."""
    source = model(
        f"""g (float[256, 2] x, float[1, 2, 256] z, float c) => (float[{shape}] y) <
            float[2, 9] w = {{1, 2, 3, 4, 5, 6, 7, 8, 9, -9, 8, 7, -6, 5, 4, -3, 2, 1}}, float[2, 1] v = {{3, -5}},
            float[2, 3, 8] k = {{{", ".join(str((-1) ** i * i) for i in range(48))}}}> {{ {nodes} }}"""
    )
    rng = np.random.default_rng(0)
    x, z = (rng.standard_normal(shape).astype(np.float32) for shape in ((256, 2), (1, 2, 256)))
    feeds = {"x": x, "z": z, "c": np.array(0, np.float32)}
    made = eqsat.optimize(source, measure=False).to_onnx()
    np.testing.assert_allclose(run(made, **feeds), run(source, **feeds), rtol=1e-6)
