"""Quantised models as input: read as what they mean, priced as they run, and changed only into what is equal."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_dynamic, quantize_static

import eqsat
from eqsat.certify import assignments, certify
from eqsat.costs.kernels.fusion import FusedKey
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.model.model import CostModel
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import CertificateError, RuleError
from eqsat.language.graphs.builder import Builder
from eqsat.language.onnx.write.exporter import to_model
from eqsat.quantisation.sensitivity import output_error
from eqsat.runtime.backend import execute
from tests.support.profiles import profiled

RNG = np.random.default_rng(0)


def drawn(*shape: int, terms: int = 1) -> Any:
    return (RNG.standard_normal(shape) / np.sqrt(terms)).astype(np.float32)


def residual() -> eqsat.Graph:
    """Convolutions with a residual, a pool, a concatenation and a classifier."""
    g = eqsat.Graph("residual")

    def convolved(y: Any, channels: int, size: int = 3) -> Any:
        w = drawn(channels, y.shape[1], size, size, terms=y.shape[1] * size**2)
        return eqsat.conv(y, g.constant(w), g.constant(drawn(channels)), pads=(size // 2,) * 4)

    y = eqsat.relu(convolved(g.input("x", (1, 3, 12, 12)), 16))
    y = eqsat.relu(convolved(eqsat.relu(convolved(y, 16)), 16) + y)
    y = eqsat.max_pool(y, kernel=(2, 2), strides=(2, 2))
    y = eqsat.concat([y, eqsat.sigmoid(convolved(y, 16, 1))], axis=1)
    y = eqsat.global_avg_pool(y).reshape(1, 32)
    g.output("y", eqsat.softmax(eqsat.gemm(y, g.constant(drawn(32, 10)), g.constant(drawn(10))), axis=1))
    return g.build()


def perceptron() -> eqsat.Graph:
    g = eqsat.Graph("perceptron")
    y = g.input("x", (8, 32))
    for _ in range(2):
        y = eqsat.relu(eqsat.gemm(y, g.constant(drawn(32, 32, terms=16)), g.constant(drawn(32))))
    g.output("y", y)
    return g.build()


def transformer() -> eqsat.Graph:
    """One layer with two heads."""
    g, width = eqsat.Graph("transformer"), 16

    def projected(y: Any, columns: int) -> Any:
        w = drawn(y.shape[-1], columns, terms=y.shape[-1])
        return y @ g.constant(w) + g.constant(drawn(columns))

    def heads(y: Any) -> Any:
        return eqsat.transpose(y.reshape(1, 8, 2, width // 2), perm=(0, 2, 1, 3))

    def normalised(y: Any) -> Any:
        return eqsat.layer_norm(y, g.constant(drawn(width)), g.constant(drawn(width)), axis=2, epsilon=1e-5)

    x = g.input("x", (1, 8, width))
    q, k, v = (heads(projected(x, width)) for _ in range(3))
    scores = (q @ eqsat.transpose(k, perm=(0, 1, 3, 2))) * g.constant(np.float32(0.35))
    y = eqsat.transpose(eqsat.softmax(scores, axis=-1) @ v, perm=(0, 2, 1, 3)).reshape(1, 8, width)
    y = normalised(x + projected(y, width))
    g.output("y", normalised(y + projected(eqsat.gelu(projected(y, 4 * width)), width)))
    return g.build()


NETWORKS = {"residual": residual, "perceptron": perceptron, "transformer": transformer}


class Batches(CalibrationDataReader):  # type: ignore[misc]
    """A few batches for ONNX Runtime's quantisers."""

    def __init__(self, graph: eqsat.Graph) -> None:
        rng = np.random.default_rng(1)
        shape = graph.type("x").static
        self._left: Iterator[Any] = iter([{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(2)])

    def get_next(self) -> Any:
        return next(self._left, None)


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """What ONNX Runtime's quantisers make of each network."""
    folder = tmp_path_factory.mktemp("quantised")
    logging.disable(logging.WARNING)
    made: dict[tuple[str, str], Path] = {}
    for name, network in NETWORKS.items():
        graph = network()
        onnx.save(to_model(graph, 17), folder / f"{name}.onnx")
        for kind in ("qdq", "operators", "dynamic"):
            made[name, kind] = folder / f"{name}_{kind}.onnx"
        for kind, form in (("qdq", QuantFormat.QDQ), ("operators", QuantFormat.QOperator)):
            quantize_static(
                folder / f"{name}.onnx", made[name, kind], Batches(graph), quant_format=form, per_channel=True
            )
        quantize_dynamic(folder / f"{name}.onnx", made[name, "dynamic"])
    logging.disable(logging.NOTSET)
    return made


@pytest.mark.parametrize("kind", ["qdq", "operators", "dynamic"])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_quantisers_write_is_optimised_to_the_same_outputs(
    quantised: dict[tuple[str, str], Path], name: str, kind: str
) -> None:
    path = quantised[name, kind]
    graph = eqsat.load(path)
    assert not [n for n in graph.nodes if n.op == "opaque"]
    result = eqsat.optimize(path, measure=False, strict=True)
    assert not [n for n in result.graph.nodes if n.op == "opaque"]
    assert result.report.cost_after <= result.report.cost_before
    x = {"x": np.random.default_rng(2).standard_normal(graph.type("x").static).astype(np.float32)}
    (expected,) = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, x)
    assert output_error(result.run(**x), {"y": expected}) <= 1e-3
    assert result.report.certificate.error <= 1e-6


def convolution(form: str, clamped: bool = False) -> eqsat.Graph:
    """A convolution of integers in one form."""
    g = Builder("convolution")
    x, w = g.input("x", (1, 32, 16, 16), "uint8"), g.constant(np.ones((64, 32, 3, 3), np.int8))
    b = g.constant(np.ones(64, np.int32))
    step, zero, channels = (g.constant(a) for a in (np.float32(0.1), np.uint8(0), np.full(64, 0.01, np.float32)))
    unit, none = g.constant(np.full(64, 0.001, np.float32)), g.constant(np.zeros(64, np.int8))
    if form == "operators":
        g.output("y", g.apply("qlinear_conv", x, step, zero, w, channels, none, step, zero, b, pads=(1, 1, 1, 1)))
        return g.build()
    restored = [
        g.apply("dequantize_linear", x, step, zero, axis=0),
        g.apply("dequantize_linear", w, channels, none, axis=0),
        g.apply("dequantize_linear", b, unit, axis=0),
    ]
    y = g.apply("conv", *restored, pads=(1, 1, 1, 1))
    y = g.apply("relu", y) if clamped else y
    g.output("y", g.apply("quantize_linear", y, step, zero, to="uint8", axis=0))
    return g.build()


CONV = (
    'conv {"activation":"none","dilations":[],"group":1,"pads":[1,1,1,1],"strides":[]} '
    "uint8[1, 32, 16, 16]@nhwc =int8[64, 32, 3, 3] =float32[64] -> uint8@nhwc by int8"
)


def model(*entries: tuple[str, float]) -> CostModel:
    """A cost model whose table has the times of kernels."""
    table = CostTable(":memory:")
    for text, seconds in entries:
        key = FusedKey.parse(text) if " ; " in text else OpKey.parse(text)
        table.put(Environment.current(), key, Entry(seconds, seconds, seconds, 20))
    return CostModel("onnxruntime-cpu", table)


def conv_key() -> str:
    """The key of the kernel on integers, as a model prices the operator form by it."""
    node = convolution("operators").nodes[0]
    graph = convolution("operators")
    types = [graph.type(v or "") for v in node.inputs]
    return model().key(node.op, node.attrs, types, [v in graph.constants for v in node.inputs]).text


def test_both_forms_of_a_kernel_on_integers_have_one_price() -> None:
    costs = model((conv_key(), 77e-6))
    for form in ("qdq", "operators"):
        cost = costs.graph(convolution(form)).total
        assert cost.seconds == pytest.approx(77e-6)
        assert (cost.launches, cost.estimated) == (1, False)


def test_bounds_before_a_quantisation_belong_to_the_kernel() -> None:
    key = conv_key()
    relu = " ; relu {} %0:uint8[1, 64, 16, 16]@nhwc -> @nhwc by int8"
    costs = model((key, 77e-6), (key + relu, 80e-6))
    assert costs.graph(convolution("qdq", clamped=True)).total.seconds == pytest.approx(80e-6)


def test_a_choice_knows_the_kernel_that_a_runtime_makes_of_three_operators() -> None:
    """Of their prices one by one the sum would be larger than that of another way to compute the same."""
    graph = convolution("qdq")
    table = CostTable(":memory:")
    table.put(Environment.current(), OpKey.parse(conv_key()), Entry(7e-6, 7e-6, 7e-6, 20))
    result = eqsat.optimize(graph, table=table, measure=False, cache=False)
    assert result.report.cost_before == pytest.approx(result.report.cost_after) == pytest.approx(7e-6)
    assert Counter(n.op for n in result.graph.nodes) == Counter(n.op for n in graph.nodes)


def test_a_kernel_that_was_not_measured_has_the_estimates_of_its_operators() -> None:
    cost = model().graph(convolution("qdq")).total
    assert cost.estimated
    assert cost.launches > 1


def test_a_value_that_others_read_is_in_no_kernel() -> None:
    graph = convolution("qdq")
    inner = next(n.outputs[0] for n in graph.nodes if n.op == "conv")
    from dataclasses import replace

    shared = replace(graph, outputs={**graph.outputs, "z": inner})
    assert model((conv_key(), 77e-6)).graph(shared).total.estimated


def test_kernels_that_a_model_states_are_measured_before_the_choice() -> None:
    g = Builder("product")
    w = g.constant(np.ones((64, 64), np.int8))
    step = g.constant(np.float32(0.1))
    x = g.apply("dequantize_linear", g.input("x", (16, 64), "uint8"), step)
    product = x @ g.apply("dequantize_linear", w, step)
    g.output("y", g.apply("quantize_linear", product, step, to="uint8"))
    table = CostTable(":memory:")
    result = eqsat.optimize(g.build(), table=table, rules=[], cache=False)
    measured = {key.split(" ")[0] for key in table.entries(Environment.current()) if key.endswith("by int8")}
    assert measured == {"matmul"}
    assert not result.report.estimated_share


def dynamic_convolution() -> eqsat.Graph:
    g = Builder("dynamic")
    numbers, scale, zero = g.apply("dynamic_quantize_linear", g.input("x", (1, 4, 9, 9)))
    w, none = g.constant(RNG.integers(-99, 99, (6, 4, 3, 3)).astype(np.int8)), g.constant(np.int8(3))
    sums = g.apply("conv_integer", numbers, w, zero, none, pads=(1, 1, 1, 1))
    g.output("y", g.apply("cast", sums, to="float32") * (scale * g.constant(np.float32(0.01))))
    return g.build()


def test_sums_of_integers_are_products_of_floats_where_those_are_cheaper() -> None:
    graph = dynamic_convolution()
    # That of convolved integers is proved for some sizes.
    cost = {"cost": lambda one: 100.0 if one.op == "conv_integer" else 1.0, "trust": "bounded"}
    result = eqsat.optimize(graph, measure=False, **cost)
    assert {"conv"} <= {n.op for n in result.graph.nodes}
    assert "conv_integer" not in {n.op for n in result.graph.nodes}
    assert result.report.certificate.kind == "exact"
    x = {"x": drawn(1, 4, 9, 9)}
    np.testing.assert_allclose(result.run(**x)["y"], execute(graph, x, "numpy")["y"], rtol=1e-5, atol=1e-5)


def restored_and_quantised(scale: float, *, zero: int = 7) -> eqsat.Graph:
    """Numbers that are restored, turned and quantised again, by two scales."""
    g = Builder("again")
    first, point = g.constant(np.float32(0.1)), g.constant(np.uint8(7))
    y = g.apply("dequantize_linear", g.input("x", (4, 6), "uint8"), first, point, axis=0)
    y = g.apply("transpose", y, perm=(1, 0))
    second = g.constant(np.float32(scale)), g.constant(np.uint8(zero))
    g.output("y", g.apply("quantize_linear", y, *second, to="uint8", axis=0))
    return g.build()


def test_numbers_that_are_quantised_again_by_their_own_scale_are_not_touched() -> None:
    result = eqsat.optimize(restored_and_quantised(0.1), measure=False)
    assert [n.op for n in result.graph.nodes] == ["transpose"]
    x = {"x": np.arange(24, dtype=np.uint8).reshape(4, 6)}
    assert np.array_equal(result.run(**x)["y"], x["x"].T)


@pytest.mark.parametrize("scale, zero", [(0.2, 7), (0.1, 8)])
def test_numbers_that_are_quantised_by_another_scale_are_computed(scale: float, zero: int) -> None:
    graph = restored_and_quantised(scale, zero=zero)
    result = eqsat.optimize(graph, measure=False)
    assert "quantize_linear" in {n.op for n in result.graph.nodes}
    x = {"x": np.arange(24, dtype=np.uint8).reshape(4, 6)}
    assert np.array_equal(result.run(**x)["y"], execute(graph, x, "numpy")["y"])


def rounded(*, twice: bool) -> eqsat.Graph:
    g = Builder("rounded")
    x = g.input("x", (4, 6))
    step, zero = g.constant(np.float32(0.1)), g.constant(np.uint8(128))
    y = g.apply("quantize_linear", x, step, zero, to="uint8", axis=0)
    g.output("y", eqsat.relu(g.apply("dequantize_linear", y, step, zero, axis=0) if twice else x))
    return g.build()


def test_a_rounding_that_is_left_out_is_caught_by_the_certificate() -> None:
    before, after = rounded(twice=True), rounded(twice=False)
    claims = {after.outputs["y"]: (before.outputs["y"],), "x": ("x",)}
    with pytest.raises(CertificateError, match="y"):
        certify(before, after, after, claims, sizes=assignments(before))


def test_a_rule_that_leaves_a_rounding_out_is_not_loaded() -> None:
    wrong = "unrounded: dequantize_linear(quantize_linear(x, s, z, to=t, axis=j, block=0), s, z, axis=k, block=0) => x"
    with pytest.raises(RuleError, match="unrounded"):
        eqsat.optimize(rounded(twice=True), rules=wrong, measure=False)


def test_what_is_chosen_runs_as_the_kernels_that_were_priced(
    quantised: dict[tuple[str, str], Path], tmp_path: Path
) -> None:
    """From the profile of ONNX Runtime."""
    result = eqsat.optimize(quantised["perceptron", "qdq"], measure=False)
    result.save(tmp_path / "chosen.onnx")
    _, ran = profiled(tmp_path / "chosen.onnx", {"x": drawn(8, 32)})
    assert ran["QGemm"] == 2
    assert ran["Gemm"] == ran["MatMul"] == 0
