"""Requests for precisions: from a command line to a file, and refused in one message with nothing written."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import eqsat
from eqsat.costs.devices.device import DEVICES
from eqsat.costs.kernels.precision import POLICIES, RANGES, SENSITIVE
from eqsat.errors import UsageError
from eqsat.quantisation.ranges import RangeMethod
from eqsat.quantisation.sensitivity import output_error
from tests.support.profiles import profiled

SHAPE = (64, 256)


def perceptron() -> eqsat.Graph:
    rng = np.random.default_rng(0)
    g = eqsat.Graph("perceptron")
    x = g.input("x", SHAPE)
    first, last = (g.constant((rng.standard_normal((256, 256)) / 16).astype(np.float32)) for _ in range(2))
    g.output("y", eqsat.relu(x @ first) @ last)
    return g.build()


def stacked(count: int = 6) -> np.ndarray:
    return np.random.default_rng(1).standard_normal((count, *SHAPE)).astype(np.float32)


@pytest.fixture
def files(tmp_path, monkeypatch) -> Path:
    """A folder with model.onnx, data.npz, and the same data as a folder of arrays, data/."""
    monkeypatch.chdir(tmp_path)
    eqsat.optimize(perceptron(), measure=False, rules=(), cache=False).save("model.onnx")
    np.savez("data.npz", x=stacked())
    Path("data").mkdir()
    for number, batch in enumerate(stacked()):
        np.save(f"data/x_{number}.npy", batch)
    return tmp_path


INT8 = ("--precision", "int8", "--no-cache")


def test_a_command_takes_data_and_a_limit_and_writes_a_model_on_integers_with_its_report(files, run):
    arguments = ("--limit", "error=5%", "--json", "report.json", "--calibration", "data.npz")
    code, out, err = run("optimize", "model.onnx", "-o", "out.onnx", *INT8, *arguments)
    assert code == 0, err
    report = json.loads(Path("report.json").read_text())
    rounding = report["rounding"]
    assert rounding["integers"]["matmul"] == 2
    assert rounding["data"] == {"source": "data.npz", "calibrate": 2, "tighten": 2, "report": 2}
    assert 0 < rounding["outputs"]["y"]["worst"] <= rounding["predicted"] <= report["limits"]["error"] == 0.05
    assert "on integers: 2 matmul" in out
    written = onnx.load("out.onnx")
    onnx.checker.check_model(written, full_check=True)
    feeds = {"x": stacked(8)[7]}
    given, made = (ort.InferenceSession(path).run(None, feeds)[0] for path in ("model.onnx", "out.onnx"))
    assert output_error({"y": made}, {"y": given}) <= 0.05
    tensors = [onnx.numpy_helper.to_array(t) for t in written.graph.initializer if len(t.dims) == 2]
    assert [(array.dtype, array.shape) for array in tensors] == [(np.int8, (256, 256))] * 2
    assert min(int(array.min()) for array in tensors) >= -127
    # Times decide which of its kernels on integers a product runs in, and where floats are made of their results.
    _, ran = profiled(Path("out.onnx"), feeds)
    kernels = {name: count for name, count in ran.items() if "MatMul" in name}
    assert sum(kernels.values()) == 2
    assert kernels.keys() <= {"QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"}


def test_a_folder_of_arrays_is_calibration_data_on_a_command_line(files, run):
    arguments = ("--precision", "bfloat16", "--device", "nvidia-h200", "--no-measure", "--no-cache")
    code, _, err = run(
        "optimize", "model.onnx", "-o", "out.onnx", *arguments, "--calibration", "data", "--json", "report.json"
    )
    assert code == 0, err
    rounding = json.loads(Path("report.json").read_text())["rounding"]
    assert rounding["data"] == {"source": "data", "calibrate": 2, "tighten": 2, "report": 2}


def test_the_front_of_time_and_error_is_a_command_too(files, run):
    arguments = ("--terms", "time,error", "--precision", "int8", "--calibration", "data.npz")
    code, _, err = run("pareto", "model.onnx", *arguments, "--time-limit", "30s", "--json", "front.json")
    assert code == 0, err
    points = json.loads(Path("front.json").read_text())["points"]
    errors = [point["error"] for point in points]
    assert errors[-1] == 0.0
    assert errors[0] > 0.0
    assert [point["time"] for point in points] == sorted(point["time"] for point in points)


REFUSED = {
    "a wrong name": ({"z": stacked(2)}, (), "'z' is no input expected inputs x"),
    "a wrong shape": ({"x": np.ones((2, 64, 255), np.float32)}, (), "has 255 at axis 1, not 256"),
    "a wrong type": ({"x": stacked(2).astype(np.float64)}, (), "input 'x' has element type float64"),
    "no elements": ({"x": stacked(0)}, (), "no batch"),
    "NaN": ({"x": np.full((2, *SHAPE), np.nan, np.float32)}, (), "input 'x' has NaN"),
    "a limit below rounding to float32": ({"x": stacked(2)}, ("--limit", "error=1e-9"), "limits: error = 1e-09"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_data_and_limits_that_cannot_be_used_are_one_message_and_no_file(files, run, case):
    arrays, more, message = REFUSED[case]
    np.savez("bad.npz", **arrays)
    code, _, err = run("optimize", "model.onnx", "-o", "out.onnx", *INT8, "--calibration", "bad.npz", *more)
    refused_once(code, err, message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--precision", "bfloat16"), "precision = 'bfloat16' on onnxruntime-cpu"),
        (("--precision", "int8", "--calibration", "nowhere.npz"), "nowhere.npz"),
    ],
)
def test_a_precision_that_cannot_be_had_is_one_message_and_no_file(files, run, arguments, message):
    code, _, err = run("optimize", "model.onnx", "-o", "out.onnx", *arguments)
    refused_once(code, err, message)


def refused_once(code: int, err: str, message: str) -> None:
    assert code != 0
    assert sum(line.startswith("error") for line in err.splitlines()) == 1, err
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert not Path("out.onnx").exists()


def test_a_runtime_that_is_not_installed_is_one_message_and_no_file(files, run, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "openvino" else found(name))
    code, _, err = run("optimize", "model.onnx", "-o", "out.onnx", "--device", "openvino-cpu", *INT8)
    refused_once(code, err, "a lower precision on openvino-cpu: openvino is not installed")
    assert "pip install 'eqsat[openvino]'" in err


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ranges": "min"}, "ranges by 'min'\n  expected one of mse, max, percentile, kl"),
        (
            {"precisions": ("float16",), "ranges": "max"},
            "ranges by 'max' in a precision policy without int8\n  expected ranges of values that are held in integers",
        ),
        (
            {"precisions": ("int8",), "keep": frozenset(eqsat.language.ops.OPS)},
            "a precision policy of int8 that keeps every operator in float32",
        ),
    ],
)
def test_a_policy_that_contradicts_itself_is_refused_when_it_is_made(fields, message):
    with pytest.raises(UsageError) as told:
        eqsat.PrecisionPolicy(**{"precisions": ("int8",), **fields})
    assert message in str(told.value)


def test_a_policy_has_the_ranges_that_observers_know():
    from typing import get_args

    assert sorted(RANGES) == sorted(get_args(RangeMethod))


def filtered() -> eqsat.Graph:
    rng = np.random.default_rng(0)
    g = eqsat.Graph("filtered")
    w = g.constant((rng.standard_normal((64, 32, 3, 3)) / 17).astype(np.float32))
    g.output("y", eqsat.relu(eqsat.conv(g.input("x", (1, 32, 32, 32)), w, pads=(1, 1, 1, 1))))
    return g.build()


def test_a_bad_set_costs_error_that_is_reported_and_a_policy_chooses_the_ranges():
    """One element far out in each batch for calibration takes all numbers from the others, unless it is clipped."""
    rng = np.random.default_rng(1)
    data = [{"x": rng.standard_normal((1, 32, 32, 32)).astype(np.float32)} for _ in range(6)]
    for batch in data[::3]:
        batch["x"][0, 0, 0, 0] = 60.0
    worst = {}
    for ranges in ("max", "percentile"):
        policy = dataclasses.replace(POLICIES["int8"], ranges=ranges)
        found = eqsat.optimize(filtered(), precision=policy, calibration=data, limits={"error": 0.9}, cache=False)
        worst[ranges] = found.report.rounding.outputs["y"].worst
    assert worst["max"] > 2 * worst["percentile"]


def test_softmax_leaves_float32_where_a_policy_says_so_and_only_there():
    device = dataclasses.replace(DEVICES["nvidia-h200"], name="without-launches", launch=0.0)
    g = eqsat.Graph("attention")
    x = g.input("x", (64, 64))
    w = g.constant((np.random.default_rng(0).standard_normal((64, 64)) / 8).astype(np.float32))
    g.output("y", eqsat.softmax(x @ w, axis=0) @ w)
    graph = g.build()
    kept = eqsat.PrecisionPolicy(precisions=("float16",))
    allowed = dataclasses.replace(kept, keep=SENSITIVE - {"softmax"})
    results = [
        eqsat.optimize(graph, device=device, precision=one, measure=False, cache=False) for one in (kept, allowed)
    ]
    narrow = [result.report.rounding.narrow["float16"] for result in results]
    assert "softmax" not in narrow[0]
    assert narrow[1]["softmax"] == 1
    assert results[0].report.rounding.kept["softmax"] == {"policy": 1}


def test_zeros_alone_are_quantised_to_zeros():
    rng = np.random.default_rng(0)
    g = eqsat.Graph("zeros")
    x = g.input("x", SHAPE)
    w = (rng.standard_normal((256, 256)) / 16).astype(np.float32)
    w[:, 7] = 0.0
    g.output("y", x @ g.constant(w))
    data = [{"x": np.zeros(SHAPE, np.float32)} for _ in range(3)]
    found = eqsat.optimize(g.build(), precision="int8", calibration=data, limits={"error": 0.05}, cache=False)
    outputs = found.run(x=stacked(1)[0])["y"]
    assert np.isfinite(outputs).all()
    assert not outputs[:, 7].any()
    assert not found.run(**data[0])["y"].any()
