"""Calls within a limit: what is left undone is said, and the same steps come to the same bytes."""

import functools
import hashlib
import importlib
import itertools
import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
import eqsat.steps.reporting
from eqsat.cli import run
from eqsat.errors import ExtractionError, UsageError
from eqsat.language.onnx.read.importer import load
from eqsat.report.finalists import measure_finalists
from eqsat.runtime.examples import SizePoint
from eqsat.system.deadline import Deadline, TimeUp


def perceptron(layers=4):
    """A chain of products, sums and activations, with pairs of transposes that cancel."""
    rng, nodes, held, value = np.random.default_rng(0), [], [], "x"
    for i in range(layers):
        held += [numpy_helper.from_array((rng.standard_normal((8, 8)) / 3).astype(np.float32), f"w{i}")]
        held += [numpy_helper.from_array(rng.standard_normal(8).astype(np.float32), f"b{i}")]
        for op, inputs in (
            ("MatMul", [value, f"w{i}"]),
            ("Add", ["", f"b{i}"]),
            ("Transpose", [""]),
            ("Transpose", [""]),
            ("Relu", [""]),
        ):
            name = f"v{len(nodes)}"
            nodes.append(helper.make_node(op, [v or value for v in inputs], [name]))
            value = name
    of = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in ("x", value)}
    graph = helper.make_graph(nodes, "perceptron", [of["x"]], [of[value]], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def outputs(model):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)})[0]


def assert_same(result, model):
    np.testing.assert_allclose(outputs(result.to_onnx()), outputs(model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [1, 100, 1000, 3000, 10_000, 30_000, 100_000, 300_000])
def test_however_few_steps_there_are_the_result_is_right_and_says_what_was_left_out(steps):
    model = perceptron()
    result = eqsat.optimize(model, steps=steps, measure=False)
    assert_same(result, model)
    report = result.report
    assert not report.failure and not result.failures
    if report.kept == "original":
        assert any("steps is reached" in text for text in report.skipped)
        assert report.certificate.kind == "identical"
    else:
        assert report.certificate.regions


def test_enough_steps_leave_nothing_out():
    result = eqsat.optimize(perceptron(), steps=1_000_000, measure=False)
    assert (result.report.kept, result.report.skipped) == ("ilp", ())
    assert result.report.stopped_by in ("saturated", "radius_limit") and result.report.extraction == "optimal"


_RUN = """
import sys
import eqsat
source, target, *counts = sys.argv[1:]
for steps in counts:
    result = eqsat.optimize(source, steps=int(steps), measure=False)
    result.save(target + steps)
    print(result.report.stopped_by)
"""


def test_the_same_steps_write_the_same_bytes_in_every_process(tmp_path):
    counts = ("20000", "60000", "400000")
    onnx.save(perceptron(6), tmp_path / "model.onnx")
    written = []
    for seed in ("1", "2"):
        target = str(tmp_path / f"out{seed}.onnx")
        command = [sys.executable, "-c", _RUN, str(tmp_path / "model.onnx"), target, *counts]
        environment = {**os.environ, "PYTHONHASHSEED": seed, "EQSAT_COST_TABLE": ":memory:"}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        files = [hashlib.sha256(Path(target + steps).read_bytes()).hexdigest() for steps in counts]
        written.append(list(zip(counts, said, files, strict=True)))
    assert written[0] == written[1]


def test_the_command_line_takes_steps_and_tells_what_was_skipped(tmp_path, capsys):
    model = perceptron()
    onnx.save(model, tmp_path / "model.onnx")
    arguments = [str(tmp_path / "model.onnx"), "-o", str(tmp_path / "out.onnx"), "--json", str(tmp_path / "r.json")]
    assert run(["optimize", *arguments, "--no-measure", "--steps", "50"]) == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["stopped_by"] == "step_limit" and report["kept"] == "original"
    assert report["skipped"] == ["nothing was looked for: the limit of 50 steps is reached"]
    assert "skipped: nothing was looked for" in capsys.readouterr().out
    np.testing.assert_array_equal(outputs(onnx.load(tmp_path / "out.onnx")), outputs(model))


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "many"])
def test_steps_are_a_whole_number_above_zero(steps):
    with pytest.raises(UsageError) as error:
        eqsat.optimize(perceptron(), steps=steps)
    assert error.value.what == f"steps = {steps!r}"
    assert error.value.expected == "a whole number above 0, or None to limit seconds"


def test_a_front_without_time_for_one_point_is_an_error():
    with pytest.raises(ExtractionError, match="no point of the front was found: the limit of 10 steps is reached"):
        eqsat.pareto(perceptron(), steps=10)
    assert eqsat.pareto(perceptron(), "time", "launches", steps=100_000).points


def test_a_front_that_is_asked_to_end_has_a_little_time_left(monkeypatch):
    """A clock that goes on by a second a reading: three seconds are left of a million, and are over while encoding."""
    clock = functools.partial(next, itertools.count(0.0))
    monkeypatch.setattr("eqsat.steps.settings.Deadline", functools.partial(Deadline, now=clock))
    with pytest.raises(ExtractionError, match="no point of the front was found: the run was interrupted") as error:
        eqsat.pareto(perceptron(), time_limit=1e6, should_stop=lambda: True)
    assert error.value.remedy == "let it run on"


def test_buckets_share_the_steps_and_each_says_what_it_lacks():
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])
    nodes = [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("Transpose", ["t"], ["u"])]
    made = helper.make_graph([*nodes, helper.make_node("Relu", ["u"], ["y"])], "rows", [x], [y])
    graph = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    few = eqsat.optimize(graph, buckets={"batch": [1, 4]}, steps=40, measure=False)
    assert all(r.report.skipped and r.report.kept == "original" for r in few.results.values())
    many = eqsat.optimize(graph, buckets={"batch": [1, 4]}, steps=1_000_000, measure=False)
    assert not any(r.report.skipped for r in many.results.values())


class Leaping:
    """A clock that runs until it leaps past every limit: when it is told to, or at a reading of that number."""

    def __init__(self, reading=10**9):
        self.readings, self.leap, self.leapt = 0, reading, False

    def __call__(self):
        self.readings += 1
        return time.monotonic() + (1e9 if self.leapt or self.readings > self.leap else 0)

    def before(self, call):
        def late(*arguments, **more):
            self.leapt = True
            return call(*arguments, **more)

        return late


def optimised(monkeypatch, clock, measure=False):
    monkeypatch.setattr("eqsat.steps.settings.Deadline", functools.partial(Deadline, now=clock))
    return eqsat.optimize(perceptron(), measure=measure, time_limit=60.0)


def test_egglog_is_loaded_while_the_time_does_not_count(monkeypatch):
    done = []

    @contextmanager
    def paused(_):
        done.append("paused")
        yield
        done.append("goes on")

    monkeypatch.setattr("eqsat.run.load", lambda: done.append("loaded"))
    monkeypatch.setattr(Deadline, "paused", paused)
    eqsat.optimize(perceptron(), steps=50, measure=False)
    place = done.index("loaded")
    assert done[place - 1 : place + 2] == ["paused", "loaded", "goes on"]


@pytest.mark.parametrize("reading", [1, 20, 60, 300, 800, 1500, 3000])
def test_wherever_the_time_ends_the_result_is_right(monkeypatch, reading):
    result = optimised(monkeypatch, Leaping(reading))
    assert_same(result, perceptron())
    assert not result.report.failure and not result.failures
    assert result.report.kept != "original" or result.report.skipped


@pytest.mark.parametrize(
    ("step", "measure", "told"),
    [
        ("eqsat.steps.growing.encode", False, "nothing was looked for"),
        ("eqsat.steps.choosing.tensor_problem", False, "nothing was chosen from what was found"),
        ("eqsat.steps.trials.compare_finalists", False, "outputs were not compared"),
        ("eqsat.steps.trials.measure_finalists", True, "not measured"),
        ("eqsat.steps.trials.certify_graphs", False, "ilp was not certified"),
    ],
)
def test_what_there_was_no_time_for_is_said_and_nothing_is_kept_unchecked(monkeypatch, step, measure, told):
    clock = Leaping()
    place, name = step.rsplit(".", 1)
    module = importlib.import_module(place)
    monkeypatch.setattr(module, name, clock.before(getattr(module, name)))
    report = optimised(monkeypatch, clock, measure).report
    assert f"{told}: the time limit of 60 s is over" in report.skipped
    assert report.kept == "original" and report.certificate.kind == "identical"


def test_what_was_compared_before_the_time_for_measuring_ended_is_kept_without_being_measured(monkeypatch):
    """Outputs are compared once: a model whose runs take long would have no time for a second comparison."""

    def late(*arguments, **more):
        raise TimeUp("the time limit of 60 s is over")

    monkeypatch.setattr("eqsat.report.timing.bench.interleaved", late)
    monkeypatch.setattr(
        "eqsat.steps.trials.compare_finalists", lambda *arguments, **more: pytest.fail("compared again")
    )
    result = eqsat.optimize(perceptron(), time_limit=60.0)
    assert result.report.skipped == ("not measured: the time limit of 60 s is over",)
    assert result.report.kept == "ilp" and result.report.certificate.regions
    assert_same(result, perceptron())


class Slow:
    """A clock on which everything takes 4 s."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 4.0
        return self.now


def test_where_there_is_no_time_to_make_all_ready_the_first_two_are_timed(monkeypatch):
    """What was found is not lost because the last finalist, which promises least, takes long to be made ready."""
    monkeypatch.setattr("eqsat.report.timing.comparison.time", Slow())
    graph = load(perceptron())
    graphs = {"original": graph, "ilp": graph, "greedy": graph}
    with Deadline(12.0):
        timed = measure_finalists(graphs, None, points=[SizePoint({}, 1.0)], seed=0, threads=1, seconds=0.1)
    assert set(timed.timings.samples) == {"original", "ilp"}
    assert timed.refused == {"greedy": "the time left was too short to make it ready beside the others"}


def test_where_there_is_no_time_to_time_all_the_fastest_is_timed_beside_the_original(monkeypatch):
    graph = load(perceptron())
    point = SizePoint({}, 1.0)
    timed = {}
    for clock in (None, Slow()):
        if clock is not None:
            monkeypatch.setattr("eqsat.report.timing.bench.time", clock)
        with Deadline(60.0):
            graphs = {"original": graph, "ilp": graph, "greedy": graph}
            timed[clock is None] = measure_finalists(graphs, None, points=[point], seed=0, threads=1, seconds=0.1)
    assert set(timed[True].timings.samples) == {"original", "ilp", "greedy"} and not timed[True].refused
    assert len(timed[False].timings.samples) == 2 and "original" in timed[False].timings.samples
    assert set(timed[False].refused.values()) == {"the time left was too short to time it beside the others"}


def test_changes_that_there_was_no_time_to_explain_are_kept_and_said(monkeypatch):
    clock = Leaping()
    monkeypatch.setattr("eqsat.steps.reporting.regions", clock.before(eqsat.steps.reporting.regions))
    report = optimised(monkeypatch, clock).report
    assert report.kept == "ilp" and report.certificate.regions
    assert report.skipped == ("changes are not explained: the time limit of 60 s is over",)


@pytest.mark.parametrize("options", [{"sizes": {"none": 1}}, {"buckets": {"none": [1, 2]}}], ids=["sizes", "buckets"])
def test_a_dim_that_a_model_lacks_is_told_before_costs_are_calibrated_and_rules_are_loaded(monkeypatch, options):
    for step in ("calibrated", "load", "rules_of"):
        monkeypatch.setattr(f"eqsat.run.{step}", lambda *given, **more: pytest.fail("work had begun"))
    with pytest.raises(UsageError, match="'none'\n  expected "):
        eqsat.optimize(perceptron(), **options)


def test_a_run_whose_steps_are_used_up_tells_of_no_e_graph_and_no_time():
    report = eqsat.optimize(perceptron(), steps=1, measure=False).report
    assert report.kept_because == "the steps were used up"
    text = str(report)
    assert "nothing was chosen" in text
    assert "0 e-nodes" not in text and "no time" not in text and "estimated share" not in text
