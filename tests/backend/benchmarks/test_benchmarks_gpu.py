"""The one command that produces all figures of a GPU, on the host's machine in its place."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import eqsat
from benchmarks import gpu
from eqsat import cli
from eqsat.costs.table.lines import read_records
from eqsat.language.onnx.write.exporter import to_model
from eqsat.runtime.backend import BACKENDS
from tests.support import host_stopwatch


def layer():
    g = eqsat.Graph("layer")
    w = g.constant(np.random.default_rng(0).standard_normal((24, 16)).astype(np.float32))
    g.output("y", eqsat.relu(g.input("x", (1, 24)) @ w))
    return to_model(g.build())


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An H200 that measures on the host, one small model, and folders of its own; the commands that were run."""
    host_stopwatch.install(monkeypatch)
    monkeypatch.setitem(BACKENDS, "cupy", host_stopwatch.HostBackend())
    monkeypatch.setenv("EQSAT_COST_TABLE", str(tmp_path / "costs.sqlite3"))
    monkeypatch.setattr(gpu, "MODELS", {"layer": layer})
    monkeypatch.setattr(gpu, "load", lambda name: gpu.MODELS[name]())
    for name in ("RESULTS", "DEVICES"):
        monkeypatch.setattr(gpu, name, tmp_path / name.lower())
        (tmp_path / name.lower()).mkdir()
    run = []

    def called(arguments, target=None):
        fast = ["--time-limit", "2s", "--seconds", "0.2s", "--rounds", "5"] if arguments[0] == "bench" else []
        folds = ["--folds", "2"] if arguments[1] == "check" else []
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            code = cli.run([*arguments, *fast, *folds])
        run.append((arguments[:2], out.getvalue()))
        assert code == 0, err.getvalue()
        if target is not None:
            target.write_text(out.getvalue())

    monkeypatch.setattr(gpu, "_run", called)
    return run


def call(*arguments):
    return CliRunner().invoke(gpu.main, [str(a) for a in arguments])


def test_one_command_measures_checks_and_compares(here, tmp_path):
    done = call("--models", "layer,layer_batch16", "--folder", tmp_path / "build")
    assert done.exit_code == 0, (done.output, done.exception)
    assert [arguments[0] for arguments, _ in here] == ["measure", "costs", "costs", "bench"]
    table = tmp_path / "devices" / "nvidia-h200.jsonl"
    records = list(read_records(table.read_text(), table.name))
    keys = {r.key for r in records}
    for key in ("matmul {} float32[1, 24] =float32[24, 16]", "matmul {} float32[16, 24] =float32[24, 16] by tf32"):
        assert key in keys
    assert any("float16[16, 24] =float16[24, 16]" in key for key in keys)
    wholes = [key for key in keys if key.startswith("whole ")]
    assert len(wholes) == 4
    predicted = json.loads((tmp_path / "results" / "predict-nvidia-h200.json").read_text())
    assert len(predicted["graphs"]) == 4
    bench = json.loads((tmp_path / "results" / "bench-nvidia-h200.json").read_text())
    assert [(m["model"], m["precision"]) for m in bench["models"]] == [
        ("layer", "tf32"),
        ("layer", "float16"),
        ("layer_batch16", "tf32"),
        ("layer_batch16", "float16"),
    ]
    assert bench["failed"] == {}
    for model in bench["models"]:
        errors = [row["error"] for row in model["results"]]
        assert len(errors) == 5
        assert max(errors) < 5e-3


def test_a_list_is_written_without_a_gpu_and_measured_with_one_alone(here, tmp_path, monkeypatch):
    keys = tmp_path / "keys.txt"
    with monkeypatch.context() as without:
        host_stopwatch.absent(without)
        refused = call("--models", "layer", "--folder", tmp_path / "build")
        assert refused.exit_code != 0
        assert "cuda is not here to be measured: cupy is not installed" in refused.output
        arguments = ("--models", "layer", "--folder", tmp_path / "build", "--device", "nvidia-h200")
        assert call(*arguments, "--list", keys).exit_code == 0
    assert "matmul {} float16[1, 24] =float16[24, 16]" in keys.read_text()
    assert call("--keys", keys).exit_code == 0
    assert Path(tmp_path / "devices" / "nvidia-h200.jsonl").exists()
    assert [arguments[0] for arguments, _ in here] == ["measure", "measure"]


def test_an_unknown_model_is_refused_and_a_batch_changes_inputs_and_outputs_alone(here):
    assert "no model 'none'" in call("--models", "none").output
    made = gpu.rebatched(layer(), 16)
    onnx.checker.check_model(made)
    assert [v.type.tensor_type.shape.dim[0].dim_value for v in (*made.graph.input, *made.graph.output)] == [16, 16]
    assert set(gpu.NAMES) >= {"bert_base", "resnet50", "resnet50_batch16", "llama"}
