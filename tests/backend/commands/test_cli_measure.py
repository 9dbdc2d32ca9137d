"""`eqsat measure`: on the CPU, from lists on a GPU machine without egglog, and what is said where there is no GPU."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat import cli
from eqsat.costs.kernels.keylist import HEADER, read_keys
from eqsat.costs.table import shipped
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.language.onnx.write.exporter import save
from tests.support import host_stopwatch

ROOT = Path(__file__).parents[3]
BLOCKED = ("egglog", "z3", "onnxruntime", "highspy", "scipy")


pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def model(folder):
    g = eqsat.Graph("layer")
    w = g.constant(np.random.default_rng(0).standard_normal((64, 48)).astype(np.float32))
    g.output("y", eqsat.relu(g.input("x", (8, 64)) @ w))
    save(g.build(), folder / "layer.onnx")
    return "layer.onnx"


@pytest.fixture
def h200(monkeypatch):
    host_stopwatch.install(monkeypatch)
    return Environment.current("cuda")


def own(environment):
    with CostTable() as table:
        return table.own(environment)


def test_the_cpu_is_measured_with_the_whole_of_each_result(run, model):
    code, out, err = run("measure", "--models", model, "--fused", "4", "--export", "out.jsonl")
    assert code == 0, err
    assert ", 1 whole graph measured, 0 known before, 0 left" in out
    entries = own(Environment.current())
    (whole,) = (key for key in entries if key.startswith("whole "))
    # Which kernels are chosen is up to what was measured: by the same table the same ones are.
    steps = eqsat.optimize(model, measure=False).report.steps
    assert json.loads(entries[whole].plan) == {
        "estimated": 0.0,
        "kernels": sum(step.bytes > 0 for step in steps),
        "sum": pytest.approx(sum(step.seconds for step in steps)),
    }
    assert {"matmul {} float32[8, 64] =float32[64, 48]", "relu {} float32[8, 48]"} <= set(entries)
    assert len(Path("out.jsonl").read_text().splitlines()) == len(entries) + 1
    assert run("costs", "import", "out.jsonl")[1].startswith("0 new, 0 replaced")
    assert "0 operators measured" in run("measure", model, "--fused", "4")[1]


def test_a_list_has_what_a_gpu_may_run_and_needs_none(run, model):
    code, out, err = run(
        "measure",
        "--device",
        "nvidia-h200",
        "--list",
        "keys.txt",
        "--models",
        model,
        "--precision",
        "exact,mixed",
        "--dtype",
        "float32,bfloat16",
    )
    assert code == 0, err
    keys = [key.text for key in read_keys(Path("keys.txt"))]
    assert f"{len(keys)} kernels of nvidia-h200 to measure in keys.txt" in out
    assert "matmul {} float32[8, 64] =float32[64, 48]" in keys
    assert "matmul {} float16[8, 64] =float16[64, 48] -> float32" in keys
    assert "relu {} bfloat16[8, 48]" in keys
    assert any(" ; relu" in key for key in keys)
    assert Path("keys.txt").read_text().splitlines()[0] == HEADER


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "relu {} float32[2]\n",
            "keys.txt:1: no list of keys: 'relu {} float32[2]'\n  expected # eqsat keys, version 1",
        ),
        (HEADER + "\nrelu {} float32[2]\nrelu\n", "keys.txt:3: no operator key: 'relu'"),
        (None, "keys.txt: the file cannot be read: No such file"),
    ],
)
def test_a_list_that_is_none_is_named_with_its_line(run, h200, text, message):
    if text is not None:
        Path("keys.txt").write_text(text)
    code, _, err = run("measure", "--device", "cuda", "--keys", "keys.txt")
    assert (code, err.rpartition("error: ")[2].startswith(message)) == (2, True), err


def test_without_a_gpu_it_says_what_is_missing_and_what_can_be_done_here(run, model, monkeypatch):
    host_stopwatch.absent(monkeypatch)
    for device in ("cuda", "nvidia-h200"):
        code, _, err = run("measure", "--device", device, "--models", model)
        assert code == 2
        assert err.startswith(f"error: {device} is not here to be measured: cupy is not installed\n")
        assert "`eqsat measure --device nvidia-h200 --list FILE MODEL…` writes what is to be measured" in err
    assert not Path("costs.sqlite3").exists()


KEYS = """relu {} float16[8, 48]
matmul {} float16[8, 64] =float16[64, 48] -> float32
matmul {} float32[8, 64] =float32[64, 48] by tf32
relu {} float32[1, 4, 6, 6]@nhwc -> @nhwc
wave {} float32[2]
"""
MEASURE = f"""
import sys
sys.modules.update(dict.fromkeys({BLOCKED!r}))
sys.path.insert(0, {str(ROOT)!r})
from tests.support import host_stopwatch
host_stopwatch.install()
from eqsat import cli
sys.exit(cli.run(sys.argv[1:]))
"""


def measured_apart(*arguments):
    """The command in a process that can import neither egglog nor a solver nor ONNX Runtime."""
    paths = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", MEASURE, "measure", "--device", "cuda", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=paths, check=False, timeout=120)


def test_a_list_is_measured_without_egglog_and_a_machine_without_the_gpu_chooses_by_it(run, model, folder, monkeypatch):
    assert run("measure", "--device", "nvidia-h200", "--list", "keys.txt", model)[0] == 0
    Path("keys.txt").write_text(Path("keys.txt").read_text() + KEYS)
    done = measured_apart("--keys", "keys.txt", "--export", "out.jsonl", "--models", model)
    assert done.returncode == 0, done.stderr
    keys = read_keys(Path("keys.txt"))
    assert f"{len(keys) - 1} operators measured, 0 known before, 0 left" in done.stdout
    assert "not measured: wave {} float32[2]: wave cannot be measured alone" in done.stdout
    assert "warning: whole graphs were not measured: egglog is not installed" in done.stdout
    lines = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()[1:]]
    assert len(lines) == len(keys) - 1
    assert lines[0]["environment"]["cpu"] == "NVIDIA H200, driver 580.95.05, CUDA 13.0"
    assert lines[0]["environment"]["runtime"].startswith(
        "cupy 14.2.0, cublasLt 13.1.0, cudnn 9.28.0, nvrtc 13.5, kernels "
    )
    assert all(line["samples"] >= 20 for line in lines)
    # A product reads 64 × 48 weights of its own in every copy; the made-up clock knows bytes alone.
    product = next(line for line in lines if line["key"] == "matmul {} float32[8, 64] =float32[64, 48]")
    moved = 4 * (8 * 64 + 64 * 48 + 8 * 48)
    assert product["seconds"] == pytest.approx(host_stopwatch.LAUNCH + moved / host_stopwatch.BANDWIDTH)
    assert product["hot"] == pytest.approx(product["seconds"])
    again = measured_apart("--keys", "keys.txt")
    assert f"0 operators measured, {len(keys) - 1} known before" in again.stdout

    host_stopwatch.absent(monkeypatch)
    # On another machine, by an import, and as if the file came with eqsat.
    monkeypatch.setenv("EQSAT_COST_TABLE", "laptop.sqlite3")
    assert run("costs", "import", "out.jsonl")[0] == 0
    result = eqsat.optimize(model, device="nvidia-h200", measure=False)
    assert (result.report.device, result.report.estimated_share, result.report.warnings) == ("nvidia-h200", 0, [])
    assert eqsat.optimize(model, device="nvidia-h200", measure=False, table=":memory:").report.estimated_share == 1
    Path("out.jsonl").rename("nvidia-h200.jsonl")
    monkeypatch.setattr(shipped, "FOLDER", folder)
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()
    assert eqsat.optimize(model, device="nvidia-h200", measure=False, table=":memory:").report.estimated_share == 0
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()


def test_whole_graphs_are_measured_and_predictions_are_shown_beside_them(run, model, h200):
    code, out, err = run("measure", "--device", "cuda", model, "--precision", "exact,tf32")
    assert code == 0, err
    assert ", 2 whole graphs measured" in out
    code, out, err = run("costs", "check", "--device", "nvidia-h200", "--folds", "2", "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["environment"]["cpu"].startswith("NVIDIA H200")
    assert [g["key"]["name"] for g in found["graphs"]] == ["layer", "layer"]
    for graph in found["graphs"]:
        # What is summed is what the made-up clock takes, launch by launch.
        assert graph["sum"] == pytest.approx(graph["measured"], rel=0.3)
    _, out, _ = run("costs", "check", "--device", "nvidia-h200", "--folds", "2")
    assert "whole graphs: sums of kernels beside what was measured" in out
    assert "too few graphs to correct sums by, 6 are needed" in out


def test_an_interrupted_measurement_keeps_what_it_measured(run, model, h200, monkeypatch):
    put = CostTable.put
    begun = []

    def put_and_interrupt(self, environment, key, entry):
        put(self, environment, key, entry)
        begun.append(key.text)
        if len(begun) == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(CostTable, "put", put_and_interrupt)
    code, out, err = run("measure", "--device", "cuda", model)
    assert code == 130
    assert "error: interrupted" in err
    assert "2 operators measured" in out
    assert len(own(h200)) == 2


def test_another_driver_is_another_environment_whose_times_stand_in(run, model, h200, monkeypatch):
    from dataclasses import replace

    assert run("measure", "--device", "cuda", model, "--no-wholes")[0] == 0
    newer = replace(host_stopwatch.H200, driver="590.1, CUDA 13.1")
    monkeypatch.setattr(host_stopwatch, "H200", newer)
    host_stopwatch.install(monkeypatch)
    report = eqsat.optimize(model, device="cuda", measure=False).report
    (warning,) = report.warnings
    assert warning.startswith("costs were measured in another environment: cpu is 'NVIDIA H200, driver 580.95.05")
    assert report.estimated_share < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--time-limit", "0s"], "--time-limit 0.0"),
        (["--fused", "-1"], "--fused -1"),
        (["--threads", "0"], "--threads 0"),
        (["--precision", "half"], "precision = 'half'"),
        (["--dtype", "int8"], "--dtype int8\n  expected float32, float16, bfloat16"),
        (["--device", "abacus"], "no device 'abacus'"),
        (["--list", "keys.txt", "--keys", "k.txt"], "--list with --keys or --export"),
        (["missing.onnx"], "missing.onnx: the file cannot be read"),
    ],
)
def test_bad_arguments_are_one_clear_error(run, arguments, message):
    code, _, err = run("measure", *arguments)
    assert (code, err.rpartition("error: ")[2].startswith(message)) == (2, True), err


def test_help_says_what_each_option_is_for():
    assert cli.run(["measure", "--help"]) == 0
