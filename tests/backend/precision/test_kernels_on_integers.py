"""Results on integers: what runs on them, within which error, and what is written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import eqsat
from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.precision import DEFAULT_ERROR
from eqsat.extract.tensors.integers import IntegerKernel
from eqsat.quantisation.sensitivity import output_error
from eqsat.report.finalists import measure_finalists
from eqsat.runtime.backend import select
from eqsat.runtime.onnxruntime.saturation import saturates
from eqsat.steps.precision.kernels import kernels_of
from tests.support.profiles import profiled

BUDGET = 0.05


#: The finalists on integers: at the prices of kernels, and with more of them.
CHOICES = ("int8", "int8-wide")


def network() -> eqsat.Graph:
    """Two convolutions around a residual, then a classifier: large enough that integers pay on any processor."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("network")
    x = g.input("x", (1, 32, 48, 48))

    def convolved(y, channels):
        w = g.constant((rng.standard_normal((channels, y.shape[1], 3, 3)) / np.sqrt(4.5 * y.shape[1])).astype("f"))
        return eqsat.conv(y, w, g.constant(rng.standard_normal(channels).astype("f") / 10), pads=(1, 1, 1, 1))

    y = eqsat.relu(convolved(x, 64))
    y = eqsat.relu(convolved(y, 64) + y)
    y = eqsat.relu(convolved(y, 64))
    g.output("y", eqsat.global_avg_pool(y).reshape(1, 64) @ g.constant(rng.standard_normal((64, 10)).astype("f")))
    return g.build()


def batches(count: int, seed: int = 0) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((1, 32, 48, 48)).astype(np.float32)} for _ in range(count)]


@pytest.fixture(scope="module")
def result():
    return eqsat.optimize(network(), precision="int8", calibration=batches(9), limits={"error": BUDGET}, strict=True)


@pytest.fixture(scope="module")
def saved(result, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "integers.onnx"
    result.save(path)
    return path


def test_the_choice_on_integers_is_kept_and_its_error_is_as_predicted(result):
    rounding = result.report.rounding
    assert result.report.kept in CHOICES
    assert rounding.integers["conv"] == 3
    assert 0 < rounding.tightened <= rounding.predicted <= BUDGET
    assert result.report.amounts["error"] == pytest.approx(rounding.predicted)
    assert rounding.data.source == "calibration"
    assert (rounding.data.calibrate, rounding.data.tighten, rounding.data.report) == (3, 3, 3)


def calibrated(seed: int) -> eqsat.Result:
    data = batches(9, seed)
    return eqsat.optimize(network(), precision="int8", calibration=data, limits={"error": BUDGET}, strict=True)


def test_of_new_data_99_batches_in_100_are_within_the_prediction(result):
    """Over several draws of the data for calibration: an interval holds on average over these, not for each of them."""
    before = select("onnxruntime").compile(network())
    data = batches(50, seed=1)
    references = [before.run(batch) for batch in data]
    shares = []
    for found in (result, *map(calibrated, range(2, 7))):
        predicted = found.report.rounding.predicted
        errors = [output_error(found.run(**batch), y) for batch, y in zip(data, references, strict=True)]
        assert max(errors) > predicted / 50, "the prediction is no bound that means nothing"
        shares += [error / predicted for error in errors]
    assert np.quantile(shares, 0.98) <= 1.0, "0.99 of many, of which 300 with six predictions are a sample"
    assert max(shares) <= 2.0


def test_kernels_on_integers_run_with_no_floats_between_them(saved):
    _, ran = profiled(saved, batches(1)[0])
    assert ran["QLinearConv"] == 3
    assert ran["Conv"] == ran["FusedConv"] == 0
    assert ran["QLinearAdd"] == 1
    # One conversion to integers at the beginning, and one back.
    assert ran["QuantizeLinear"] <= 2
    assert ran["DequantizeLinear"] <= 2


def test_what_was_chosen_can_be_written_in_operators_on_integers(result, tmp_path):
    result.save(tmp_path / "operators.onnx", quantised="operators")
    onnx.checker.check_model(onnx.load(tmp_path / "operators.onnx"), full_check=True)
    feeds = batches(1, seed=5)[0]
    _, ran = profiled(tmp_path / "operators.onnx", feeds)
    assert ran["QLinearConv"] == 3
    assert ran["Conv"] == ran["FusedConv"] == 0
    (y,) = ort.InferenceSession(tmp_path / "operators.onnx").run(None, feeds)
    np.testing.assert_allclose(y, result.run(**feeds)["y"], rtol=1e-3, atol=1e-3)


def test_weights_are_written_in_a_byte_each_and_never_as_the_least(saved):
    model = onnx.load(saved)
    onnx.checker.check_model(model, full_check=True)
    tensors = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    filters = [t for t in tensors.values() if t.dtype == np.int8 and t.ndim == 4]
    assert len(filters) == 3
    assert min(int(t.min()) for t in filters) >= (-64 if saturates() else -127)
    assert max(int(np.abs(t.astype(int)).max()) for t in filters) == (64 if saturates() else 127)
    stated = sum(c.nbytes for c in network().constants.values())
    assert sum(t.nbytes for t in tensors.values()) <= 0.27 * stated


def test_the_report_says_what_runs_on_integers_and_why_the_rest_does_not(result):
    text = " ".join(str(result.report).split())
    assert "on integers: 3 conv" in text
    assert "held back of calibration" in text
    assert "predicted" in text
    record = json.loads(result.report.json())["rounding"]
    assert record["budget"] == BUDGET
    assert set(record["outputs"]["y"]) == {"mean", "worst", "agreement"}
    reasons = {reason for kept in record["kept"].values() for reason in kept}
    assert reasons <= {"policy", "kernel", "cost", "error"}


def test_the_graph_is_certified_before_it_is_rounded(result):
    certificate = result.report.certificate
    assert certificate.kind == "exact" or certificate.regions == 0
    assert "move outputs by" in certificate.text


def test_a_budget_of_nothing_is_the_exact_plan():
    found = eqsat.optimize(network(), precision="int8", calibration=batches(3), limits={"error": 0.0})
    assert found.report.rounding is None
    assert not any(node.op == "quantize_linear" for node in found.graph.nodes)


def test_time_falls_as_the_error_that_is_allowed_grows():
    front = eqsat.pareto(network(), "time", "error", precision="int8", calibration=batches(3), time_limit=40.0)
    points = front.points
    assert len(points) > 2
    assert [p["error"] for p in points] == sorted((p["error"] for p in points), reverse=True)
    assert [p["time"] for p in points] == sorted(p["time"] for p in points)
    assert points[-1]["error"] == 0.0


def test_without_a_budget_every_row_keeps_its_largest_element():
    found = eqsat.optimize(network(), precision="int8", calibration=batches(6), strict=True)
    assert found.report.rounding.budget is None
    before = select("onnxruntime").compile(network())
    for batch in batches(6):
        assert found.run(**batch)["y"].argmax() == before.run(batch)["y"].argmax()


def test_without_a_budget_a_map_moves_as_little_as_in_narrow_floats():
    """An image has no row of scores: its largest elements say nothing of what it shows."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("map")
    y = g.input("x", (1, 32, 48, 48))
    for _ in range(8):
        w = g.constant((rng.standard_normal((32, 32, 3, 3)) / 12).astype("f"))
        y = eqsat.relu(eqsat.conv(y, w, pads=(1, 1, 1, 1)))
    g.output("y", y)
    free = eqsat.optimize(g.build(), precision="int8", calibration=batches(6), limits={"error": 0.5})
    found = eqsat.optimize(g.build(), precision="int8", calibration=batches(6))
    assert free.report.rounding.tightened > DEFAULT_ERROR, "the limit is one that matters"
    if found.report.rounding is None:
        assert any("which a higher limit of error would allow" in warning for warning in found.report.warnings)
    else:
        assert found.report.rounding.tightened <= DEFAULT_ERROR
        assert found.report.rounding.outputs["y"].agreement is None


def test_a_kernel_that_reads_what_folding_took_away_is_not_offered():
    """A text recogniser multiplied by a constant that its choice had in another shape, folded: the run failed."""
    g = eqsat.Graph("folded")
    g.output("y", eqsat.relu(g.input("x", (4,))))
    graph = g.build()
    names = {1: "x", 2: "a constant", 3: graph.outputs["y"]}
    there, folded, unnamed = (IntegerKernel((0,), reads, 3, None) for reads in ((1,), (1, 2), (4,)))
    assert kernels_of(graph, names, [there, folded, unnamed]) == [there]


def test_the_finalists_that_promise_most_are_made_ready_first(monkeypatch):
    """A choice on integers comes last of all, and is the one that is lost where time is short.

    Kernels in float32 are estimated, those on integers measured: here float32 is said to be slow, on any processor.
    """
    known = Device.of("onnxruntime-cpu")
    slow = dataclasses.replace(known, flops={name: speed / 20 for name, speed in known.flops.items()})
    orders = []

    def measured(graphs, *given, **more):
        orders.append(list(graphs))
        return measure_finalists(graphs, *given, **more)

    monkeypatch.setattr("eqsat.steps.trials.measure_finalists", measured)
    options = {"precision": "int8", "calibration": batches(6), "limits": {"error": BUDGET}, "device": slow}
    found = eqsat.optimize(network(), cache=False, **options)
    prices = {one.name: one.predicted for one in found.report.finalists}
    first, *others = orders[0]
    assert first == "original" and others[0].startswith("int8")
    assert others == sorted(others, key=prices.__getitem__)


def product() -> eqsat.Graph:
    rng = np.random.default_rng(0)
    g = eqsat.Graph("product")
    x = g.input("x", (128, 512))
    w = g.constant(rng.standard_normal((512, 512)).astype("f") / 16)
    g.output("y", x @ w)
    return g.build()


def test_without_data_operands_are_quantised_when_they_are_read(tmp_path):
    found = eqsat.optimize(product(), precision="int8", limits={"error": 0.05})
    assert any("no calibration data" in warning for warning in found.report.warnings)
    assert found.report.kept in CHOICES
    found.save(tmp_path / "online.onnx")
    x = np.random.default_rng(1).standard_normal((128, 512)).astype(np.float32)
    _, ran = profiled(tmp_path / "online.onnx", {"x": 100 * x})
    assert ran["DynamicQuantizeMatMul"] == 1
    # No range was calibrated that these could be out of.
    expected = select("onnxruntime").compile(product()).run({"x": 100 * x})
    assert output_error(found.run(x=100 * x), expected) <= found.report.rounding.predicted


def test_a_budget_below_every_rounding_keeps_float32_and_says_so():
    found = eqsat.optimize(product(), precision="int8", limits={"error": 1e-6})
    assert found.report.rounding is None
    assert any("float32 is kept" in warning for warning in found.report.warnings)


def test_data_that_nothing_reads_are_said_to_be_of_no_use():
    found = eqsat.optimize(product(), calibration={"x": np.ones((128, 512), np.float32)}, measure=False)
    assert "calibration data were read, and nothing is quantised: precision='int8' would be" in found.report.warnings


def older(graph: eqsat.Graph) -> onnx.ModelProto:
    """A graph as a model of an opset whose scales are numbers, not vectors."""
    from eqsat.language.onnx.write.exporter import to_model

    return to_model(graph, 11)


def test_a_model_of_an_old_opset_is_written_at_the_first_with_scales_for_channels():
    result = eqsat.optimize(
        older(network()), precision="int8", calibration=batches(9), limits={"error": BUDGET}, strict=True
    )
    assert result.report.rounding is not None
    written = result.to_onnx()
    assert {o.domain: o.version for o in written.opset_import}[""] == 13
    onnx.checker.check_model(written, full_check=True)
    feeds = batches(1, seed=7)[0]
    expected = select().compile(network(), threads=1).run(feeds)
    (y,) = ort.InferenceSession(written.SerializeToString()).run(None, feeds)
    assert output_error({"y": y}, expected) <= BUDGET


def test_an_opset_without_scales_for_channels_keeps_float32():
    result = eqsat.optimize(network(), precision="int8", calibration=batches(3), opset=11, measure=False)
    assert result.report.rounding is None
    assert (
        "no kernel on integers can be written: opset 11 has no scale for each channel; pass opset=13 or newer"
        in result.report.warnings
    )


def test_numbers_of_weights_are_chosen_for_data():
    """The same scales and kernels, with weights rounded one by one."""
    from eqsat.steps.precision import roundings

    settings = {"precision": "int8", "limits": {"error": 0.5}, "cache": False}
    eqsat.optimize(network(), calibration=batches(9), **settings)
    # With the kernels' times known, cost alone decides from here on: two timings may prefer different finalists.
    settings["measure"] = False
    chosen = eqsat.optimize(network(), calibration=batches(9), **settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(roundings, "adjusted_weights", lambda graph, products, *rest: dict(products))
        plain = eqsat.optimize(network(), calibration=batches(9), **settings)
    assert chosen.report.rounding is not None
    assert plain.report.rounding is not None
    assert chosen.report.rounding.integers == plain.report.rounding.integers
    assert chosen.report.rounding.worst < 0.9 * plain.report.rounding.worst


def test_a_maximum_over_windows_is_not_left_to_quantisation_around_it():
    """ONNX Runtime would compute it of integers, element by element, where a kernel in float32 makes what it reads."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("pooled")
    y = g.input("x", (1, 3, 96, 96))
    for channels in (32, 64, 64):
        w = (rng.standard_normal((channels, y.shape[1], 3, 3)) / np.sqrt(4.5 * y.shape[1])).astype("f")
        y = eqsat.relu(eqsat.conv(y, g.constant(w), g.constant(np.zeros(channels, "f")), pads=(1, 1, 1, 1)))
        y = eqsat.max_pool(y, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    g.output("y", y)
    data = [{"x": np.random.default_rng(i).standard_normal((1, 3, 96, 96)).astype("f")} for i in range(9)]
    result = eqsat.optimize(g.build(), precision="int8", calibration=data, limits={"error": 0.5})
    makers = {n.outputs[0]: n for n in result.graph.nodes}
    for node in result.graph.nodes:
        pooled = makers.get(node.inputs[0] or "") if node.op == "quantize_linear" else None
        if pooled is not None and pooled.op == "max_pool":
            assert makers[pooled.inputs[0] or ""].op == "dequantize_linear"


@pytest.mark.parametrize("high", [6.0, 0.5])
def test_bounds_that_quantisation_holds_by_itself_are_not_written(high):
    rng = np.random.default_rng(0)
    g = eqsat.Graph("clipped")
    x = g.input("x", (1, 32, 32, 32))
    w = g.constant((rng.standard_normal((64, 32, 3, 3)) / 12).astype("f"))
    y = eqsat.conv(x, w, g.constant(np.zeros(64, "f")), pads=(1, 1, 1, 1))
    y = eqsat.clip(y, g.constant(np.float32(0)), g.constant(np.float32(high)))
    v = g.constant((rng.standard_normal((32, 64, 3, 3)) / 24).astype("f"))
    g.output("y", eqsat.conv(y, v, g.constant(np.zeros(32, "f")), pads=(1, 1, 1, 1)))
    graph = g.build()
    data = [{"x": np.random.default_rng(i).standard_normal((1, 32, 32, 32)).astype("f")} for i in range(9)]
    result = eqsat.optimize(graph, precision="int8", calibration=data, limits={"error": 0.2}, cache=False)
    assert result.report.rounding is not None
    assert result.report.rounding.integers == {"conv": 2, "clip": 1}
    assert "Clip" not in {n.op_type for n in result.to_onnx().graph.node}
    errors = [output_error(result.run(**one), select().compile(graph, threads=1).run(one)) for one in data]
    assert max(errors) <= result.report.rounding.predicted
