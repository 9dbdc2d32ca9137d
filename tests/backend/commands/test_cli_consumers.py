"""`eqsat bench --consumers`: both graphs of a model in every runtime that is here."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.bench.case import BenchCase
from eqsat.bench.consumers import CONSUMERS, Consumer, RewrittenCase, compare_consumers
from eqsat.bench.contender import Loaded
from eqsat.bench.ours import OnnxRuntimePeer
from eqsat.costs.devices.device import Device
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError
from eqsat.language.onnx.write.exporter import save
from tests.support import host_stopwatch

FAST = ("--seconds", "0.2s", "--rounds", "5", "--time-limit", "3s")
PACKAGES = {"OpenVINO": "openvino", "torch.compile": "torch", "XLA (JAX)": "jax"}

pytestmark = pytest.mark.usefixtures("folder")


def projections(batch=4):
    """Two products of one input, which are cheaper as one, of rows that an index picks."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("projections")
    rows = g.constant(rng.standard_normal((50, 64)).astype(np.float32))
    x = eqsat.gather(rows, g.input("ids", (batch,), "int64"), axis=0)
    for name in ("q", "k"):
        g.output(name, x @ g.constant(rng.standard_normal((64, 32)).astype(np.float32)))
    return g.build()


def case():
    return BenchCase.of(projections(), "projections", Device.of("onnxruntime-cpu"), "float32", {})


def test_every_consumer_that_is_here_times_both_graphs_and_the_others_are_listed_with_how_to_get_them(run):
    save(projections("batch"), Path("layer.onnx"))
    code, out, error = run("bench", "--consumers", "layer.onnx", "--size", "batch=4", "--results", "results", *FAST)
    assert code == 0, error
    (row,) = json.loads(Path("results/consumers.json").read_text())["models"]
    absent = {name for name, package in PACKAGES.items() if importlib.util.find_spec(package) is None}
    assert {r["name"] for r in row["results"]} | set(row["skipped"]) == {one.name for one in CONSUMERS}
    assert row["results"][0]["name"] == "ONNX Runtime"
    for result in row["results"]:
        assert result["rounds"] == 5
        assert 0 < result["ratio"] <= result["bound"]
        assert max(result["errors"]) < 1e-5
        assert result["name"] in out
    for one in CONSUMERS:
        if one.name in absent:
            reason = f"{PACKAGES[one.name]} is not installed; {one.install}"
            assert row["skipped"][one.name] == reason
            assert f"left out: {one.name}: {reason}" in out
    assert "optimised / original" in out


def test_both_graphs_of_a_model_run_on_the_same_inputs():
    original = case()
    graph = eqsat.optimize(original.graph, measure=False).graph
    assert len(graph.nodes) != len(original.graph.nodes)
    rewritten = RewrittenCase(
        "projections", original.given, graph, original.device, original.precision, original=original
    )
    for draw in range(3):
        one, other = original.inputs(draw)["ids"], rewritten.inputs(draw)["ids"]
        assert one.max() > 1
        np.testing.assert_array_equal(one, other)
    loaded = OnnxRuntimePeer().load(rewritten)
    assert rewritten.error(loaded.outputs(rewritten.checked[0])) < 1e-5


def test_a_gpu_is_no_device_of_consumers(run, monkeypatch):
    host_stopwatch.install(monkeypatch)
    save(projections(), Path("layer.onnx"))
    code, _, error = run("bench", "--consumers", "layer.onnx", "--device", "cuda")
    assert (code, error.splitlines()[0]) == (2, "error: --consumers on nvidia-h200")


class Runtime:
    """A consumer of tests: ONNX Runtime, but for the graph that it fails on."""

    name, ours = "odd", False

    def __init__(self, fault=None, only=None, seen=None):
        self.fault, self.only, self.seen = fault, only, [] if seen is None else seen

    def missing(self, case):
        return None

    def load(self, case) -> Loaded:
        self.seen.append(case.graph)
        if self.fault is not None and (self.only is None or isinstance(case, self.only)):
            raise self.fault
        return OnnxRuntimePeer().load(case)


def compared(*consumers):
    with CostTable(":memory:") as table:
        return compare_consumers(case(), table, consumers, time_limit=3.0, rounds=5, seconds=0.2)


def test_a_consumer_that_fails_on_either_graph_is_left_out_with_the_reason():
    found = compared(
        Consumer("fine", Runtime(), ""),
        Consumer("refusing", Runtime(BackendError("it has no word for gather")), ""),
        Consumer("breaking", Runtime(ValueError("boom\nmore"), only=RewrittenCase), ""),
    )
    assert [one.name for one in found.results] == ["fine"]
    assert found.skipped == {"refusing": "it has no word for gather", "breaking": "ValueError: boom"}
    with pytest.raises(BackendError, match="no consumer can run it here\n  expected it has no word"):
        compared(Consumer("refusing", Runtime(BackendError("it has no word for gather")), ""))


def test_only_the_consumer_that_has_operators_of_onnx_runtimes_own_is_given_them(monkeypatch):
    asked = []

    def optimize(graph, **options):
        asked.append(options["portable"])
        return eqsat.optimize(graph, **options)

    monkeypatch.setattr("eqsat.bench.consumers.optimize", optimize)
    own, one, other = Runtime(), Runtime(), Runtime()
    found = compared(Consumer("own", own, "", portable=False), Consumer("one", one, ""), Consumer("other", other, ""))
    assert asked == [False, True]
    assert one.seen[1] is other.seen[1]
    assert set(found.kept) == {"own operators", "portable"}
    assert [consumer.portable for consumer in CONSUMERS] == [False, True, True, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--precision", "float16"), "--consumers with --precision or --forms\n  expected models in their own element"),
        (("--forms", "joint"), "--consumers with --precision or --forms"),
        (("--device", "nvidia-h200"), "nvidia-h200 is not here to run models"),
    ],
)
def test_options_that_consumers_do_not_have_are_refused(run, arguments, message):
    save(projections(), Path("layer.onnx"))
    code, _, error = run("bench", "--consumers", "layer.onnx", *arguments)
    assert (code, error.startswith(f"error: {message}")) == (2, True), error
