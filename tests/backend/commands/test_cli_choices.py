"""Layouts, precision, limits and fronts on the command line."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import eqsat
from eqsat import cli
from eqsat.language.graphs.builder import Builder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    g = Builder("branches")
    x = g.input("x", (8, 64))
    rng = np.random.default_rng(0)
    h = [eqsat.relu(x @ g.constant(rng.standard_normal((64, 64)).astype(np.float32))) for _ in range(3)]
    g.output("y", h[0] + h[1] * h[2])
    path = tmp_path / "branches.onnx"
    eqsat.optimize(g, measure=False, rules=[]).save(path)
    return path


def run(*arguments: object) -> int:
    return cli.run([str(a) for a in arguments])


def test_a_limit_is_kept_and_told(model, tmp_path, capsys):
    code = run(
        "optimize",
        model,
        "-o",
        tmp_path / "out.onnx",
        "--limit",
        "launches=6",
        "--no-measure",
        "--json",
        tmp_path / "r.json",
    )
    assert code == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["limits"] == {"launches": 6.0}
    assert report["amounts"]["launches"] == len(report["steps"]) == 5
    assert "launches 5 of at most 6" in capsys.readouterr().out


def test_an_impossible_limit_says_what_is_possible_and_writes_nothing(model, tmp_path, capsys):
    assert run("optimize", model, "-o", tmp_path / "out.onnx", "--limit", "launches=2", "--no-measure") == 2
    assert "launches <= 2 cannot be met: every choice needs at least 5" in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_a_limit_with_a_unit_is_read(model, tmp_path, capsys):
    assert run("optimize", model, "-o", tmp_path / "out.onnx", "--limit", "peak_memory=1kB", "--no-measure") == 2
    assert "peak_memory <= 1000 cannot be met" in capsys.readouterr().err


def test_half_precision_for_another_device_is_written_with_casts(tmp_path):
    g = Builder("deep")
    h = g.input("x", (512, 1024))
    rng = np.random.default_rng(0)
    for _ in range(6):
        h = eqsat.relu(h @ g.constant(rng.standard_normal((1024, 1024)).astype(np.float32) / 32))
    g.output("y", h)
    model, out = tmp_path / "deep.onnx", tmp_path / "out.onnx"
    eqsat.optimize(g, measure=False, rules=[]).save(model)
    assert run("optimize", model, "-o", out, "--device", "nvidia-h200", "--precision", "mixed") == 0
    assert onnx.TensorProto.FLOAT16 in {t.data_type for t in onnx.load(out).graph.initializer}
    feeds = {"x": rng.standard_normal((512, 1024)).astype(np.float32)}
    old, new = (eqsat.optimize(path, rules=[], measure=False).run(**feeds)["y"] for path in (model, out))
    assert 0 < np.linalg.norm(old - new) / np.linalg.norm(old) < 2e-2


def test_what_overflows_in_half_precision_is_chosen_anew_in_its_own():
    g, rng = Builder("huge"), np.random.default_rng(0)
    h = g.input("x", (512, 1024))
    for _ in range(6):
        h = eqsat.relu(h @ g.constant(rng.uniform(30.0, 50.0, (1024, 1024)).astype(np.float32)))
    g.output("y", h)
    report = eqsat.optimize(g, device="nvidia-h200", precision="mixed", measure=False).report
    assert any("move an output by inf" in warning for warning in report.warnings)
    assert "chosen anew in the precision of the model" in report.warnings
    assert report.kept == "ilp"
    assert {step.result for step in report.steps} == {"row"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--precision", "half"],
            "precision = 'half'\n  expected one of exact, tf32, mixed, int8, int4, float16, bfloat16",
        ),
        (["--layouts", "diagonal"], "no layout 'diagonal'"),
        (["--layouts", "nhwc"], "layout 'nhwc' on onnxruntime-cpu\n  expected layouts it has kernels for: row, column"),
        (["--limit", "launches"], "'launches' is no limit; expected TERM=AMOUNT"),
        (["--limit", "speed=3"], "no term 'speed'"),
        (["--limit", "launches=9", "--limit", "launches=8"], "--limit launches=9 and --limit launches=8"),
        (["--alpha", "1.1"], "alpha=1.1 with extractor='ilp'"),
        (["--extractor", "magic"], "no extractor 'magic'"),
    ],
)
def test_what_cannot_be_chosen_is_said(arguments, message, model, tmp_path, capsys):
    assert run("optimize", model, "-o", tmp_path / "out.onnx", *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.onnx").exists()


def test_backtracking_is_a_way_to_choose(model, tmp_path):
    arguments = ["--extractor", "backtracking", "--alpha", "1.1", "--no-measure", "--json", tmp_path / "r.json"]
    assert run("optimize", model, "-o", tmp_path / "out.onnx", *arguments) == 0
    report = json.loads((tmp_path / "r.json").read_text())
    assert {b["name"] for b in report["baselines"]} == {"greedy"}
    assert report["extraction"] in ("heuristic", "optimal")


def test_a_front_is_a_table_a_plot_and_json(model, tmp_path, capsys):
    plot, points = tmp_path / "front.svg", tmp_path / "front.json"
    assert run("pareto", model, "-x", "time", "-y", "weight_memory", "--plot", plot, "--json", points) == 0
    shown = capsys.readouterr().out
    assert "time against weight_memory" in shown
    assert "µs" in shown
    assert "49.2 kB" in shown
    assert plot.read_text().startswith("<?xml")
    found = json.loads(points.read_text())
    assert found["terms"] == ["time", "weight_memory"]
    assert found["units"] == {"time": "seconds", "weight_memory": "bytes"}
    assert found["complete"]
    values = [(p["time"], p["weight_memory"]) for p in found["points"]]
    assert values == sorted(values)
    assert [b for _, b in values] == sorted((b for _, b in values), reverse=True)


def test_a_front_tells_of_its_phases_and_how_many_points_it_has(model, capsys):
    assert run("pareto", model, "-x", "time", "-y", "launches", "-vv") == 0
    told = capsys.readouterr().err
    steps = [line for line in told.splitlines() if line.startswith("  extract: ")]
    assert "no point yet, least launches" in steps[0]
    assert any("1 point, " in step for step in steps)
    assert "100 % of the range of launches searched" in steps[-1]
    assert [line.partition(":")[0] for line in told.splitlines() if not line.startswith(" ")][:2] == [
        "read",
        "saturate",
    ]


def test_the_axes_of_a_front_have_units(model):
    front = eqsat.pareto(str(model), "time", "peak_memory", time_limit=10.0)
    (axes,) = front.plot().axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time (seconds)", "peak_memory (bytes)")
    assert front.units == {"time": "seconds", "peak_memory": "bytes"}


def test_a_front_of_no_term_is_refused(model, capsys):
    assert run("pareto", model, "-x", "speed") == 2
    assert "no term 'speed'\n  expected one of time, flops" in capsys.readouterr().err
    assert run("pareto", model, "-x", "time", "-y", "time") == 2
    assert "a front of 'time' against itself" in capsys.readouterr().err
    assert run("pareto", model, "--terms", "time,speed") == 2
    assert "no term 'speed'" in capsys.readouterr().err
    assert run("pareto", model, "--terms", "time") == 2
    assert "--terms time\n  expected two terms, as in --terms time,error" in capsys.readouterr().err
    assert run("pareto", model, "--terms", "time,error", "-x", "time") == 2
    assert "--terms beside -x or -y" in capsys.readouterr().err


def test_the_graphs_of_a_front_compute_the_same():
    g = Builder("pair")
    x = g.input("x", (4, 8))
    w = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    g.output("y", x @ g.constant(w[0]) + x @ g.constant(w[1]))
    graph = g.build()
    found = eqsat.pareto(graph, "time", "weight_memory", time_limit=20.0)
    feeds = {"x": np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)}
    expected = feeds["x"] @ w[0] + feeds["x"] @ w[1]
    made = list(found.graphs())
    assert len(made) == len(found.points) >= 1
    for each in made:
        np.testing.assert_allclose(eqsat.optimize(each, rules=[], measure=False).run(**feeds)["y"], expected, rtol=1e-4)
