"""`eqsat bench --ablation`: what each part of a fast program is worth, in C, on NumPy and as a plan for a GPU."""

import json
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.bench.ablation import ablate, variants
from eqsat.bench.case import BenchCase
from eqsat.costs.devices.device import Device
from eqsat.costs.table.table import CostTable
from eqsat.errors import UsageError
from eqsat.language.onnx.write.exporter import save

FAST = ("--seconds", "0.5s", "--rounds", "6", "--time-limit", "4s")

pytestmark = pytest.mark.usefixtures("folder")


def layers(batch=64):
    """Two branches of products, and a sum of two products that is one."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("layers")
    x = g.input("x", (batch, 64))
    made = []
    for _ in range(2):
        y = x
        for _ in range(3):
            y = eqsat.relu(y @ g.constant((rng.standard_normal((64, 64)) / 8).astype(np.float32)))
        made.append(eqsat.softmax(y, axis=1))
    one, other = (g.constant(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(2))
    g.output("z", made[0] + made[1] + (x @ one + x @ other))
    return g.build()


def rows_of(path):
    (model,) = json.loads(Path(path).read_text())["models"]
    return model, {tuple(row["parts"]): row for row in model["rows"]}


def test_every_variant_of_a_program_of_c_is_timed_beside_the_one_without_any_part(run):
    save(layers(), Path("layers.onnx"))
    args = ("bench", "--ablation", "layers.onnx", "--device", "c-cpu", "--threads", "2", "--results", "results")
    code, out, error = run(*args, *FAST)
    assert code == 0, error
    model, rows = rows_of("results/ablation-c-cpu.json")
    parts = ("graph", "one launch", "memory reuse", "threads")
    assert list(rows) == variants(parts) and len(rows) == 10
    assert model["measured"] and "measured" in out and "graph + one launch + memory reuse + threads" in out
    for names, row in rows.items():
        assert row["calls"] == (1 if "one launch" in names else row["launches"])
        assert row["error"] < 1e-5 and row["seconds"] > 0 and row["rounds"] >= 5
    assert rows[("graph",)]["launches"] < rows[()]["launches"]
    assert rows[("memory reuse",)]["memory"] < rows[()]["memory"]
    assert rows[()]["ratio"] == 1.0


def test_one_thread_leaves_threads_out_and_sizes_are_asked_for(run):
    save(layers("batch"), Path("layers.onnx"))
    args = ("bench", "--ablation", "layers.onnx", "--device", "c-cpu", "--size", "batch=8", "--results", "results")
    code, _, error = run(*args, *FAST)
    assert code == 0, error
    _, rows = rows_of("results/ablation-c-cpu.json")
    assert list(rows) == variants(("graph", "one launch", "memory reuse")) and len(rows) == 8


def test_on_numpy_the_list_of_calls_and_values_given_up_are_parts(run):
    save(layers(), Path("layers.onnx"))
    args = ("bench", "--ablation", "layers.onnx", "--device", "numpy-cpu", "--results", "results")
    code, out, error = run(*args, *FAST)
    assert code == 0, error
    model, rows = rows_of("results/ablation-numpy-cpu.json")
    assert list(rows) == variants(("graph", "one launch", "memory reuse")) and model["measured"] and "numpy-cpu" in out
    for names, row in rows.items():
        assert row["calls"] == (1 if "one launch" in names else row["launches"])
        assert row["error"] < 1e-5 and row["seconds"] > 0 and row["rounds"] >= 5
    assert rows[("graph",)]["launches"] < rows[()]["launches"]
    # All results are of one size; at most the sum of the branches, two products and their sum are held at once.
    size = 64 * 64 * 4
    assert (rows[()]["memory"], rows[("memory reuse",)]["memory"]) == (rows[()]["launches"] * size, 4 * size)


def test_a_plan_for_a_gpu_that_is_not_here_is_worked_out_and_says_so(run):
    save(layers(), Path("layers.onnx"))
    args = ("bench", "--ablation", "layers.onnx", "--device", "nvidia-h200", "--results", "results")
    code, out, error = run(*args, *FAST)
    assert code == 0, error
    model, rows = rows_of("results/ablation-nvidia-h200.json")
    assert not model["measured"] and "not measured" in out
    assert list(rows) == variants(("graph", "one launch", "memory reuse", "streams"))
    assert all(row["error"] is None and row["rounds"] == 1 for row in rows.values())
    assert rows[("one launch",)]["calls"] == 1 < rows[()]["calls"]
    # The branches may run beside each other where memory is not shared by their values.
    assert rows[("streams",)]["seconds"] < rows[()]["seconds"]
    every = rows[("graph", "one launch", "memory reuse", "streams")]
    assert every["seconds"] < rows[()]["seconds"] and every["launches"] < rows[()]["launches"]


def test_devices_and_options_that_have_no_ablation_are_refused(run):
    save(layers(), Path("layers.onnx"))
    code, _, error = run("bench", "--ablation", "layers.onnx", "--device", "c-cpu", "--consumers")
    assert code == 2 and "--ablation with --consumers" in error
    case = BenchCase.of(layers(), "layers", Device.of("onnxruntime-cpu"), "float32", {})
    with CostTable() as table, pytest.raises(UsageError, match="--ablation on onnxruntime-cpu"):
        ablate(case, table)
