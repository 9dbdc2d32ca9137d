"""The two forms that operators on integers are written in: what runs, where, and what the files hold."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import eqsat
from eqsat import cli
from eqsat.errors import BackendError, UsageError
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.operators_on_integers import with_operators_on_integers
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms import DType, Scale
from eqsat.quantisation.scales import weights
from eqsat.runtime.backend import execute, select
from eqsat.runtime.openvino.session import OpenVinoProgram, compiled
from tests.support.profiles import profiled

SHAPE = (1, 32, 24, 24)


class Quantiser:
    """Builds a network whose products read and make numbers of 8 bits, as quantisers write it."""

    def __init__(self, by_channel: bool) -> None:
        self.by_channel, self.rng = by_channel, np.random.default_rng(0)
        self.g = Builder("network")
        self.bytes_of_floats = 0

    def number(self, scale: Scale) -> tuple[Any, Any]:
        """The step and the zero point of a scale."""
        alone = scale.axis is None
        steps, zeros = np.float32(scale.steps), np.array(scale.zeros, scale.dtype.numpy)
        return tuple(self.g.constant(a[0] if alone else a) for a in (steps, zeros))

    def rounded(self, y: Any, scale: Scale) -> Any:
        """A value quantised and restored."""
        integers = self.g.apply("quantize_linear", y, *self.number(scale), to=scale.dtype.value)
        return self.g.apply("dequantize_linear", integers, *self.number(scale))

    def product(
        self, op: str, y: Any, step: float, shape: tuple[int, ...], axis: int, bias: int = 0, **attrs: Any
    ) -> Any:
        """A product of a value, whose step is given, with weights, and a bias of some elements or none."""
        terms = int(np.prod(shape)) // shape[axis]
        floats = (self.rng.standard_normal(shape) / np.sqrt(terms / 2)).astype(np.float32)
        scale = weights(floats, axis if self.by_channel else None)
        w = self.g.apply("dequantize_linear", self.g.constant(scale.quantised(floats)), *self.number(scale), axis=axis)
        self.bytes_of_floats += floats.nbytes + 4 * bias
        if not bias:
            return self.g.apply(op, y, w, **attrs)
        unit = np.float32(step) * np.float32(scale.steps)
        sums = np.rint(self.rng.standard_normal(bias) / 10 / unit).astype(np.int32)
        unit = self.g.constant(unit if self.by_channel else unit[0])
        return self.g.apply(op, y, w, self.g.apply("dequantize_linear", self.g.constant(sums), unit, axis=0), **attrs)


STEP = 6 / 255
POSITIVE = Scale(DType.UINT8, (STEP,), least=0, most=255)
SIGNED = Scale(DType.UINT8, (STEP,), (128,), least=0, most=255)


def network(by_channel: bool = True) -> tuple[eqsat.Graph, int]:
    """Convolutions with a residual, one of them depthwise, a gemm, and two products, the last with a result of floats.

    With the bytes that its weights would take in float32.
    """
    q = Quantiser(by_channel)
    pads = {"pads": (1, 1, 1, 1)}

    def held(y: Any) -> Any:
        return q.rounded(eqsat.relu(y), POSITIVE)

    y = held(q.product("conv", q.rounded(q.g.input("x", SHAPE), SIGNED), STEP, (64, 32, 3, 3), 0, 64, **pads))
    z = held(q.product("conv", y, STEP, (64, 1, 3, 3), 0, 64, group=64, **pads))
    y = held(q.rounded(q.product("conv", z, STEP, (64, 64, 1, 1), 0, 64), SIGNED) + y)
    y = q.rounded(q.g.apply("reshape", y, shape=(64, 576)), POSITIVE)
    y = held(q.product("gemm", y, STEP, (256, 576), 0, 256, trans_b=True))
    y = held(q.product("matmul", y, STEP, (256, 256), 1))
    q.g.output("y", q.product("matmul", y, STEP, (256, 128), 1))
    return q.g.build(), q.bytes_of_floats


def feeds() -> dict[str, Any]:
    return {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}


@pytest.fixture(scope="module")
def result() -> Any:
    return eqsat.optimize(network()[0], measure=False, strict=True)


@pytest.fixture(scope="module")
def on_openvino() -> Any:
    options = {"device": "openvino-cpu", "quantised": "operators", "measure": False, "strict": True}
    return eqsat.optimize(network(by_channel=False)[0], **options)


def onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any], folder: Path) -> tuple[Any, Counter[str]]:
    """The output, and the operators that ran, from the profile."""
    onnx.save(model, folder / "profiled.onnx")
    (y,), ran = profiled(folder / "profiled.onnx", feeds)
    return y, ran


def openvino(model: onnx.ModelProto, graph: eqsat.Graph, feeds: dict[str, Any]) -> tuple[Any, Counter[tuple[str, str]]]:
    """The output, and the kernels that ran with the element type at the end of their kind, from the profile."""
    program = OpenVinoProgram(graph, compiled(model, threads=1, profiled=True))
    y = program.run(feeds)["y"]
    return y, Counter((name, kind.rpartition("_")[2]) for name, kind, _ in program.profile())


def test_operators_on_integers_compute_what_the_float_ones_between_quantisations_do(result: Any, tmp_path: Path):
    model = result.to_onnx(quantised="operators")
    onnx.checker.check_model(model, full_check=True)
    kinds = Counter(n.op_type for n in model.graph.node)
    assert (kinds["QLinearConv"], kinds["QLinearMatMul"], kinds["MatMulInteger"]) == (3, 1, 2)
    assert kinds["Conv"] == kinds["Gemm"] == kinds["MatMul"] == 0
    expected, before = onnxruntime(result.to_onnx(), feeds(), tmp_path)
    y, ran = onnxruntime(model, feeds(), tmp_path)
    # The last product is no more quantised: what it reads differs by a step of that at most.
    assert np.linalg.norm(y - expected) <= 1e-3 * np.linalg.norm(expected)
    assert before["QLinearConv"] == ran["QLinearConv"] == 3
    assert ran["QLinearMatMul"] + ran["MatMulInteger"] + ran["MatMulIntegerToFloat"] == 3
    assert ran["Conv"] == ran["Gemm"] == ran["MatMul"] == 0


@pytest.mark.parametrize("by_channel", [False, True])
def test_each_product_is_within_a_step_of_its_scale(by_channel: bool):
    graph = network(by_channel)[0]
    makers = graph.producers
    products = [n for n in graph.nodes if n.op == "quantize_linear" and makers.get(n.inputs[0] or "")]
    every = replace(graph, outputs={n.outputs[0]: n.outputs[0] for n in products})
    written = with_operators_on_integers(every)
    assert {n.op for n in written.nodes} >= {"qlinear_conv", "qlinear_matmul", "matmul_integer"}
    expected = execute(every, feeds(), "numpy")
    for name, y in execute(written, feeds(), "numpy").items():
        assert np.abs(y.astype(int) - expected[name].astype(int)).max() <= 1, name


def test_a_file_is_written_in_the_form_asked_for(result: Any, tmp_path: Path):
    result.save(tmp_path / "operators.onnx", quantised="operators")
    result.save(tmp_path / "qdq.onnx")
    kinds = [{n.op_type for n in onnx.load(tmp_path / f"{name}.onnx").graph.node} for name in ("operators", "qdq")]
    assert "QLinearConv" in kinds[0] - kinds[1]
    with pytest.raises(UsageError, match=re.escape("quantised = 'operator'\n  expected 'qdq' or 'operators'")):
        result.save(tmp_path / "none.onnx", quantised="operator")
    assert not (tmp_path / "none.onnx").exists()
    with pytest.raises(UsageError, match="quantised = 'qlinear'"):
        eqsat.optimize(result.graph, quantised="qlinear")


def test_the_command_line_writes_the_form_asked_for(result: Any, tmp_path: Path):
    result.save(tmp_path / "in.onnx")
    arguments = [tmp_path / "in.onnx", "-o", tmp_path / "out.onnx", "--quantised", "operators", "--no-measure"]
    done = CliRunner().invoke(cli.commands, ["optimize", *map(str, arguments)])
    assert done.exit_code == 0, done.output
    assert Counter(n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node)["QLinearConv"] == 3


@pytest.mark.parametrize("form", ["qdq", "operators"])
def test_weights_on_integers_take_a_quarter_of_their_bytes(result: Any, form: str):
    tensors = [onnx.numpy_helper.to_array(t) for t in result.to_onnx(quantised=form).graph.initializer]
    assert sum(t.nbytes for t in tensors) <= 0.27 * network()[1]


def test_openvino_runs_operators_with_one_scale_for_all_weights_on_integers(on_openvino: Any, tmp_path: Path):
    model = on_openvino.to_onnx()
    onnx.checker.check_model(model, full_check=True)
    kinds = Counter(n.op_type for n in model.graph.node)
    assert (kinds["QLinearConv"], kinds["QLinearMatMul"], kinds["MatMulInteger"]) == (3, 1, 0)
    y, ran = openvino(model, on_openvino.graph, feeds())
    assert ran["Convolution", "I8"] + ran["GroupConvolution", "I8"] == 3
    assert of_products(ran) == {"I8": 3}
    # The same file runs on ONNX Runtime.
    expected, there = onnxruntime(model, feeds(), tmp_path)
    assert (there["QLinearConv"], there["Conv"]) == (3, 0)
    between, _ = openvino(on_openvino.to_onnx(quantised="qdq"), on_openvino.graph, feeds())
    for other in (expected, between):
        assert np.linalg.norm(y - other) <= 0.05 * np.linalg.norm(other)


def test_openvino_runs_float_operators_between_quantisations_on_integers(result: Any):
    y, ran = openvino(result.to_onnx(), result.graph, feeds())
    assert ran["Convolution", "I8"] + ran["GroupConvolution", "I8"] == 3
    assert of_products(ran) == {"I8": 3}
    expected = result.run(**feeds())["y"]
    assert np.linalg.norm(y - expected) <= 0.05 * np.linalg.norm(expected)


def test_openvino_is_given_no_convolution_whose_scales_it_would_misread(result: Any):
    graph = with_operators_on_integers(result.graph)
    with pytest.raises(BackendError, match="OpenVINO reads the scales of QLinearConv along another axis"):
        select("openvino").compile(graph)


def test_openvino_computes_products_of_integers_into_sums_in_float32():
    """The reason for which they are not written for it."""
    g = Builder("integers")
    w = g.constant(np.random.default_rng(0).integers(-9, 9, (64, 32)).astype(np.int8))
    g.output("y", g.apply("matmul_integer", g.input("x", (16, 64), "uint8"), w))
    graph = g.build()
    x = np.random.default_rng(0).integers(0, 255, (16, 64)).astype(np.uint8)
    y, ran = openvino(to_model(graph), graph, {"x": x})
    assert of_products(ran) == {"f32": 1}
    assert np.array_equal(y, execute(graph, {"x": x}, "numpy")["y"])


def of_products(ran: Counter[tuple[str, str]]) -> Counter[str]:
    """The element types that products of matrices ran in."""
    kinds: Counter[str] = Counter()
    for (name, kind), count in ran.items():
        kinds[kind] += count if name.startswith(("FullyConnected", "MatMul")) else 0
    return +kinds


@pytest.mark.parametrize("zero, expected", [(0, ["qlinear_matmul"]), (128, ["matmul_integer", "relu"])])
def test_bounds_that_quantisation_holds_by_itself_are_left_out(zero: int, expected: list[str]):
    g = Builder("bounded")
    w = g.constant(np.random.default_rng(0).integers(-64, 64, (8, 6)).astype(np.int8))
    step = g.constant(np.float32(0.01))
    product = g.apply("dequantize_linear", g.input("x", (4, 8), "uint8"), step) @ g.apply("dequantize_linear", w, step)
    g.output("y", g.apply("quantize_linear", eqsat.relu(product), step, g.constant(np.uint8(zero)), to="uint8"))
    graph = g.build()
    written = with_operators_on_integers(graph)
    assert [n.op for n in written.nodes if n.op in ("qlinear_matmul", "matmul_integer", "relu")] == expected
    x = {"x": np.random.default_rng(1).integers(0, 255, (4, 8)).astype(np.uint8)}
    y, reference = (execute(one, x, "numpy")["y"].astype(int) for one in (written, graph))
    assert np.abs(y - reference).max() <= 1


def test_a_value_that_is_read_as_it_is_and_quantised_stays_one_product_of_floats():
    g = Builder("shared")
    w = g.constant(np.random.default_rng(0).integers(-64, 64, (4, 8, 1, 1)).astype(np.int8))
    step = g.constant(np.float32(0.01))
    x = g.apply("dequantize_linear", g.input("x", (1, 8, 6, 6), "uint8"), step)
    y = g.apply("conv", x, g.apply("dequantize_linear", w, step))
    g.output("y", g.apply("quantize_linear", y, step, to="uint8"))
    g.output("z", y)
    graph = g.build()
    assert with_operators_on_integers(graph) is graph
