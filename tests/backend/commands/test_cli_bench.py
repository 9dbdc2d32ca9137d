"""`eqsat bench`: who takes part, what is measured and checked, and what is written, on the CPU and on a GPU's twin."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.bench import comparison
from eqsat.bench.case import BenchCase, narrowed
from eqsat.bench.comparison import Comparison, ContenderResult, compare, contenders, summary
from eqsat.bench.contender import Loaded
from eqsat.costs.devices.device import Device
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError, UsageError
from eqsat.language.graphs.builder import Builder
from eqsat.language.onnx.write.exporter import save
from eqsat.language.terms.types import DType
from tests.support import host_stopwatch

CPU = Device.of("onnxruntime-cpu")
FAST = ("--seconds", "0.2s", "--rounds", "5", "--time-limit", "3s")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQSAT_COST_TABLE", str(tmp_path / "costs.sqlite3"))
    return tmp_path


def layer(batch=8):
    g = Builder("layer")
    w = g.constant(np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32))
    g.output("y", eqsat.softmax(eqsat.relu(g.input("x", (batch, 64)) @ w), axis=-1))
    return g.build()


@pytest.fixture
def model(folder):
    save(layer("batch"), folder / "layer.onnx")
    return "layer.onnx"


def test_all_that_is_here_takes_part_and_the_rest_is_named(run, model):
    code, out, err = run("bench", "--models", model, "--size", "batch=8", "--results", "results", *FAST)
    assert code == 0, err
    found = json.loads(Path("results/bench-onnxruntime-cpu.json").read_text())
    (row,) = found["models"]
    assert (row["model"], row["device"], row["precision"]) == ("layer", "onnxruntime-cpu", "float32")
    names = [r["name"] for r in row["results"]]
    ours = ["eqsat", "eqsat, one after the other", "eqsat, graph only", "eqsat, layout only", "eqsat, unoptimised"]
    assert names[:5] == ours
    assert "ONNX Runtime" in names
    for package, name in (("torch", "torch eager"), ("torch", "torch.compile max-autotune"), ("jax", "XLA (JAX)")):
        if importlib.util.find_spec(package) is None:
            assert row["skipped"][name] == f"{package} is not installed"
            assert f"left out: {name}: {package} is not installed" in out
        else:
            assert name in names
    assert all(0 <= r["error"] < 1e-6 and r["rounds"] == 5 and r["median"] > 0 for r in row["results"])
    assert set(row["ratios"]) == set(names) - {"eqsat"}
    assert "layer, float32; limits of onnxruntime-cpu: bytes " in out
    assert "best peer / eqsat: " in out
    lines = [json.loads(line) for line in Path("results/bench-onnxruntime-cpu.samples.jsonl").read_text().splitlines()]
    assert {name: len(samples) for name, samples in lines[1]["samples"].items()} == dict.fromkeys(names, 5)
    assert found["environment"]["device"] == lines[0]["environment"]["device"] == "onnxruntime-cpu"


def test_without_a_gpu_it_says_what_is_missing(run, model, monkeypatch):
    host_stopwatch.absent(monkeypatch)
    code, _, err = run("bench", "--device", "cuda", "--models", model)
    assert code == 2
    assert err.startswith("error: cuda is not here to run models: ")
    assert not Path("results").exists()


def test_a_gpu_runs_plans_and_not_what_runs_on_the_cpu(monkeypatch):
    host_stopwatch.install(monkeypatch)
    from eqsat.runtime.backend import BACKENDS

    monkeypatch.setitem(BACKENDS, "cupy", host_stopwatch.HostBackend())
    case = BenchCase.of(layer(), "layer", Device.of("cuda"), "float16", {})
    with CostTable(":memory:") as table:
        found = compare(case, contenders(table, forms=("joint", "unoptimised"), time_limit=3.0), rounds=5, seconds=0.2)
    assert [r.name for r in found.results] == ["eqsat", "eqsat, unoptimised"]
    assert found.skipped["ONNX Runtime"] == "it runs on the CPU here"
    # Rounding the operands and the result to float16 shows, and no more than that.
    assert all(1e-5 < r.error < 2e-3 for r in found.results)
    assert found.device == "nvidia-h200"


def test_a_case_is_in_one_precision_and_its_limits_follow_from_the_device():
    wide, tf32, half = (
        BenchCase.of(layer(), "layer", Device.of("nvidia-h200"), p, {}) for p in ("float32", "tf32", "float16")
    )
    moved = 8 * 64 + 64 * 48 + 8 * 48
    assert (wide.limits.bytes, half.limits.bytes) == (4 * moved, 2 * moved)
    assert wide.limits.memory_seconds == pytest.approx(4 * moved / 4.3e12)
    assert wide.limits.flops == half.limits.flops >= 2 * 8 * 64 * 48
    assert wide.limits.arithmetic_seconds > tf32.limits.arithmetic_seconds > half.limits.arithmetic_seconds
    assert {str(t.dtype) for t in half.graph.types.values()} == {str(DType.FLOAT16)}
    assert half.inputs(1)["x"].dtype == np.float16
    assert not np.array_equal(half.inputs(0)["x"], half.inputs(1)["x"])
    with pytest.raises(UsageError, match="precision = 'int8'"):
        BenchCase.of(layer(), "layer", CPU, "int8", {})
    free = [BenchCase.of(layer("batch"), "layer", CPU, "float32", sizes) for sizes in ({}, {"batch": 3})]
    assert [case.inputs(0)["x"].shape for case in free] == [(16, 64), (3, 64)]


def test_a_narrowed_graph_casts_to_what_stands_for_float32():
    g = Builder("casts")
    g.output("y", eqsat.cast(g.input("x", (2,), "int64"), to="float32") * g.constant(np.float32([1, 2])))
    found = narrowed(g.build(), DType.BFLOAT16)
    assert [n.attrs["to"] for n in found.nodes if n.op == "cast"] == ["bfloat16"]
    assert {str(t.dtype.value) for t in found.types.values()} == {"int64", "bfloat16"}


class Contender:
    """Something that runs a case by NumPy, more or less rightly."""

    def __init__(self, name, ours=False, wrong=0.0, fault=None, missing=None):
        self.name, self.ours, self.wrong, self.fault, self.reason = name, ours, wrong, fault, missing
        self.closed = 0

    def missing(self, case):
        return self.reason

    def load(self, case):
        if self.fault is not None:
            raise self.fault

        def outputs(inputs):
            assert inputs is case.checked[0]
            return {name: array * (1 + self.wrong) for name, array in case.checked[1].items()}

        return Loaded(lambda: sum(range(100)), outputs, self.close)

    def close(self):
        self.closed += 1


def test_a_wrong_result_shows_and_a_failure_of_one_ends_nothing():
    case = BenchCase.of(layer(), "layer", CPU, "float32", {})
    right, wrong = Contender("right", ours=True), Contender("wrong", wrong=0.25)
    lost = Contender("lost", wrong=float("nan"))
    broken, refused = (
        Contender("broken", fault=ValueError("boom\nmore")),
        Contender("refused", fault=BackendError("no")),
    )
    found = compare(case, [right, wrong, broken, refused, Contender("absent", missing="x is not installed")], rounds=5)
    assert [(r.name, r.error) for r in found.results] == [("right", 0.0), ("wrong", pytest.approx(0.25))]
    assert found.skipped == {"broken": "ValueError: boom", "refused": "no", "absent": "x is not installed"}
    assert (right.closed, wrong.closed) == (1, 1)
    assert found.peer.name == "wrong"
    rows = compare(case, [right, lost], rounds=5).as_dict()["results"]
    assert [row["error"] for row in rows] == [0.0, "inf"]
    json.dumps(rows, allow_nan=False)
    unchecked = compare(case, [right], check=False, rounds=5)
    assert unchecked.results[0].error is None
    with pytest.raises(BackendError, match="nothing can run it here"):
        compare(case, [broken], rounds=5)
    with pytest.raises(BackendError, match="interrupted before anything was measured"):
        compare(case, [right], rounds=5, should_stop=lambda: True)


def result(name, seconds, ours=False):
    rng = np.random.default_rng(len(name))
    return ContenderResult(name, ours, tuple(seconds * (1 + 0.01 * rng.standard_normal(40))), 0.0)


def test_the_summary_is_a_geometric_mean_and_names_what_is_behind():
    limits = BenchCase.of(layer(), "layer", CPU, "float32", {}).limits
    forms = {"eqsat": True, "eqsat, unoptimised": True, "slow": False, "fast": False}

    def made(model, *seconds):
        rows = (result(name, s, ours) for (name, ours), s in zip(forms.items(), seconds, strict=True))
        return Comparison(model, "d", "float16", limits, tuple(rows))

    won, lost = made("won", 1.0, 1.5, 4.0, 2.0), made("lost", 1.0, 1.2, 3.0, 0.5)
    total = summary([won, lost])
    assert total["best peer over eqsat"] == pytest.approx(1.0, rel=0.02)
    assert (total["models"], total["behind"]) == (2, ["lost, float16"])
    assert total["forms over joint"]["eqsat, unoptimised"] == pytest.approx((1.5 * 1.2) ** 0.5, rel=0.02)
    median, low, high = won.ratio("slow", "eqsat")
    assert low < median < high
    assert won.ratio("slow", "none") is None
    assert summary([])["best peer over eqsat"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no model\n  expected one or more ONNX files"),
        (("layer.onnx", "--forms", "half"), "--forms half\n  expected all, or some of joint, one after the other"),
        (("layer.onnx", "--device", "abacus"), "no device 'abacus'"),
        (("layer.onnx", "--seconds", "soon"), "Invalid value for '--seconds'"),
    ],
)
def test_bad_arguments_are_one_clear_error(run, model, arguments, message):
    code, _, err = run("bench", *arguments)
    assert (code, err.startswith(f"error: {message}")) == (2, True), err


def test_a_model_that_fails_is_named_and_the_others_go_on(run, model):
    code, out, err = run("bench", "missing.onnx", model, "--size", "batch=2", "--forms", "unoptimised", *FAST)
    assert code == 0, err
    assert "failed: missing.onnx, float32: missing.onnx: the file cannot be read" in out
    assert "layer, float32" in out
    assert comparison.ROUNDS >= 20
