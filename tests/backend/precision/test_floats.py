"""Results in narrower floats: errors predicted and measured, and why the rest keeps float32."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import eqsat
from eqsat.costs.devices.device import DEVICES
from eqsat.costs.kernels.precision import POLICIES

#: A GPU on which small kernels are worth a lower precision, since none costs a launch.
DEVICE = dataclasses.replace(DEVICES["nvidia-h200"], name="without-launches", launch=0.0)
HALVES = eqsat.PrecisionPolicy(precisions=("float16",))


def model(scale: float = 1.0) -> eqsat.Graph:
    rng = np.random.default_rng(0)
    g = eqsat.Graph("model")
    y = g.input("x", (32, 64))
    for _ in range(3):
        y = eqsat.relu(y @ g.constant((scale * rng.standard_normal((64, 64)) / 8).astype(np.float32)))
    g.output("y", eqsat.softmax(y / scale, axis=-1))
    return g.build()


def batches(count: int = 6) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((32, 64)).astype(np.float32)} for _ in range(count)]


def optimised(graph: eqsat.Graph, precision: object, **more: object) -> eqsat.Result:
    return eqsat.optimize(graph, device=DEVICE, precision=precision, measure=False, cache=False, **more)


@pytest.mark.parametrize("precision", ["tf32", "float16", "bfloat16"])
def test_errors_are_predicted_and_measured_on_random_inputs_and_said_to_be(precision):
    policy = dataclasses.replace(POLICIES[precision], arithmetic=()) if precision != "tf32" else precision
    report = optimised(model(), policy).report
    rounding = report.rounding
    assert set(rounding.narrow) == {precision}
    assert rounding.narrow[precision]["matmul"] == 3
    assert (rounding.data.source, rounding.data.report, rounding.integers) == ("random inputs", 1, {})
    output = rounding.outputs["y"]
    assert 0 < output.mean <= output.worst <= rounding.predicted
    assert 0 <= output.agreement <= 1
    text = " ".join(str(report).split())
    assert f"in {precision}: 3 matmul" in text
    assert "on 1 batch of random inputs; largest elements agree in " in text
    assert "on integers" not in text
    assert json.loads(report.json())["rounding"]["outputs"]["y"]["worst"] == output.worst


def test_calibration_data_are_used_and_what_is_reported_comes_from_the_part_that_was_held_back():
    report = optimised(model(), HALVES, calibration=batches(), limits={"error": 0.01}).report
    rounding = report.rounding
    data = rounding.data
    assert (data.source, data.calibrate, data.tighten, data.report) == ("calibration", 2, 2, 2)
    assert 0 < rounding.tightened <= rounding.predicted <= 0.01
    assert rounding.outputs["y"].worst <= rounding.predicted
    assert not [warning for warning in report.warnings if "nothing is quantised" in warning]
    assert report.amounts["error"] == rounding.predicted


def test_operators_keep_float32_by_policy_and_for_their_errors():
    free = optimised(model(), HALVES).report.rounding
    assert free.kept["softmax"] == {"policy": 1}
    bound = optimised(model(), HALVES, limits={"error": 0.8 * free.predicted}).report.rounding
    assert sum(bound.narrow["float16"].values()) < sum(free.narrow["float16"].values())
    assert "error" in {reason for reasons in bound.kept.values() for reason in reasons}


def test_data_that_overflow_float16_keep_float32_and_it_is_said():
    """A value of 65 520 or more is infinite in float16, which no error of single roundings shows."""
    graph = model(scale=1e3)
    found = optimised(graph, HALVES, calibration=batches(), limits={"error": 0.01})
    assert found.report.rounding is None
    assert (
        "no choice in narrower floats is within the error that is allowed on the data: float32 is kept"
        in found.report.warnings
    )
    assert np.isfinite(found.compile("onnxruntime").run(batches(1)[0])["y"]).all()


def test_a_choice_that_is_worse_on_data_than_its_limit_is_made_again_within_what_was_learned():
    """What is rounded is a hundred more than what is left of it, so that errors are many times the predicted ones."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("cancelling")
    x = g.input("x", (32, 64))
    a, b = (g.constant(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(2))
    g.output("y", eqsat.relu(x @ a + 100.0) - 100.0)
    z = x
    for _ in range(3):
        z = eqsat.relu(z @ b / 8.0)
    g.output("z", z)
    again = optimised(g.build(), HALVES, calibration=batches(), limits={"error": 0.0024}).report
    assert again.rounding.rounds > 1
    assert again.rounding.tightened <= again.rounding.predicted <= 0.0024
    assert again.rounding.outputs["y"].worst <= again.rounding.predicted


def test_a_model_that_is_too_large_for_numpy_is_told_not_to_be_measured(monkeypatch):
    monkeypatch.setattr("eqsat.steps.precision.floats.MOST_WORK", 1)
    report = optimised(model(), HALVES).report
    assert report.rounding.outputs == {}
    assert "errors were not measured: the result does not run here, or there was no time for it" in str(report)
    assert "error: predicted " in str(report)
