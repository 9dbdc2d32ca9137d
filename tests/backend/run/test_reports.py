"""Reports of runs: the finalists and why each was kept or lost, and all it takes to come to the same result again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import eqsat
from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.precision import PrecisionPolicy
from eqsat.language.terms.state import State
from eqsat.options.options import Options
from eqsat.quantisation.data import read_calibration
from eqsat.report.finalists import Measured
from eqsat.runtime.measure import Timings
from eqsat.steps import certifying, trials
from eqsat.steps.provenance import arguments

FAST: dict[str, Any] = {"measure": False, "steps": 200_000}


def two_products(size: int = 8) -> eqsat.Graph:
    g = eqsat.Graph("two products")
    x = g.input("x", (4, size))
    w = np.arange(size * size, dtype=np.float32).reshape(size, size) / size**2
    g.output("y", (x @ w) + (x @ (2 * w)))
    return g


def follow(progress: object) -> None:
    pass


def timed(monkeypatch: pytest.MonkeyPatch, **factors: float) -> None:
    """Have finalists take so much of the original's time, noisily where that is near 1."""

    def measure(graphs: Any, *args: Any, **kwargs: Any) -> Measured:
        rng = np.random.default_rng(0)
        drift = rng.lognormal(0, 0.2, 40)
        samples = {name: tuple(drift * factors.get(name, 1.0) * rng.lognormal(0, 0.02, 40)) for name in graphs}
        return Measured(Timings(samples, "wall"), {})

    monkeypatch.setattr(trials, "measure_finalists", measure)


def test_a_result_that_is_no_faster_says_what_was_predicted_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, ilp=1.1)
    report = eqsat.optimize(two_products()).report
    original, ilp = report.finalists
    assert (original.kept, ilp.kept, report.kept) == (True, False, "original")
    assert ilp.predicted < original.predicted == report.cost_before
    assert ilp.measured is not None and original.measured == report.measured_before
    assert ilp.ratio == pytest.approx(1.1, abs=0.02) and ilp.bound is not None and ilp.bound >= ilp.ratio
    assert ilp.why == "it was measured to be no faster than the original"
    assert original.why == report.kept_because
    assert ilp.why in " ".join(str(report).split())


def test_one_statistic_is_printed_with_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    timed(monkeypatch, ilp=0.5)
    report = eqsat.optimize(two_products()).report
    kept = report.finalists[1]
    assert kept.kept
    assert (kept.ratio, kept.bound) == (report.measured_ratio, report.measured_bound)
    assert report.measured_ratio is not None and report.measured_bound is not None
    assert report.measured_ratio <= report.measured_bound < 1
    # The medians of old and new are of different rounds: their quotient is another statistic.
    assert report.measured_after is not None and report.measured_before is not None
    assert report.measured_after / report.measured_before != report.measured_ratio
    said = f"{report.measured_ratio:.3f} of the original's time, at most {report.measured_bound:.3f} (95 %)"
    assert report.kept_because == f"measured at {said}"
    assert f"new/old {report.measured_ratio:.3f}, at most {report.measured_bound:.3f} (95 %)" in str(report)


def test_a_finalist_that_no_certificate_holds_for_has_that_as_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    certify = trials.Trials.certify

    def refuse(self: trials.Trials, original: Any, encoding: Any, candidate: Any, *more: Any) -> str | None:
        if candidate.assembled is not None:
            return "it could not be checked"
        return certify(self, original, encoding, candidate, *more)

    monkeypatch.setattr(certifying.Trials, "certify", refuse)
    report = eqsat.optimize(two_products(), **FAST).report
    assert [one.why for one in report.finalists[1:]] == ["it could not be checked"] * (len(report.finalists) - 1)
    assert report.finalists[0].why == report.kept_because == "every other finalist was left out"


def test_times_of_a_lower_precision_are_not_those_of_the_choice_that_is_made_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    g, rng = eqsat.Graph("overflows in float16"), np.random.default_rng(0)
    h = g.input("x", (512, 1024))
    for _ in range(6):
        h = eqsat.relu(h @ g.constant(rng.uniform(30.0, 50.0, (1024, 1024)).astype(np.float32)))
    g.output("y", h)
    timed(monkeypatch, ilp=0.5, greedy=0.5)
    monkeypatch.setattr(Device, "is_here", True)
    report = eqsat.optimize(g, device="nvidia-h200", precision="mixed").report
    assert "chosen anew in the precision of the model" in report.warnings
    assert report.kept == "ilp"
    assert report.measured_after is None
    assert {one.measured for one in report.finalists} == {None}


def test_a_report_tells_the_model_and_its_hash(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }'
    onnx.save(parser.parse_model(text), path)
    given = eqsat.optimize(path, **FAST).report.input
    assert given is not None
    assert (given.name, given.hashed) == ("m.onnx", "file")
    assert given.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    graph = eqsat.optimize(two_products(), **FAST).report.input
    assert graph is not None and (graph.name, graph.hashed) == ("two products", "graph")
    assert eqsat.optimize(two_products(), **FAST).report.input == graph


def test_a_model_that_changes_while_it_is_optimised_has_the_hash_it_had(tmp_path: Path) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float[2, 2] x) => (float[2, 2] y) { y = MatMul (x, w) }'
    )
    model.graph.initializer.append(numpy_helper.from_array(np.eye(2, dtype=np.float32), "w"))
    before = hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()
    report = eqsat.optimize(model, **FAST).report

    def change(progress: eqsat.Progress) -> None:
        if progress.phase != "read":
            model.graph.doc_string = "changed"

    changed = eqsat.optimize(model, progress=change, **FAST).report
    assert model.graph.doc_string == "changed"
    assert report.input is not None and changed.input is not None
    assert report.input.sha256 == changed.input.sha256 == before


def test_a_run_that_fails_tells_the_model_too() -> None:
    report = eqsat.optimize(two_products(), time_limit=1e-6, measure=False).report
    assert report.input is not None and report.versions and report.machine
    assert report.arguments == {"time_limit": 1e-6, "measure": False}


def test_each_bucket_tells_the_model() -> None:
    g = eqsat.Graph("b")
    g.output("y", eqsat.relu(g.input("x", ("batch", 4))))
    result = eqsat.optimize(g, buckets={"batch": [1, 4]}, **FAST)
    rows = json.loads(result.json())  # type: ignore[attr-defined]
    assert len({row["report"]["input"]["sha256"] for row in rows}) == 1
    assert rows[0]["report"]["arguments"]["buckets"] == {"ends": {"batch": [1, 4]}}


def test_a_report_tells_versions_and_the_machine() -> None:
    report = eqsat.optimize(two_products(), threads=2, **FAST).report
    for package in ("eqsat", "egglog", "onnx", "onnxruntime", "numpy", "highspy"):
        assert report.versions[package] == metadata.version(package)
    assert report.versions["python"].count(".") >= 1
    assert report.machine is not None
    assert report.machine.threads == 2 and report.machine.cores >= 1
    assert report.machine.processor and report.machine.system


def test_arguments_are_those_that_are_not_defaults() -> None:
    assert arguments(Options()) == {}
    assert arguments(Options(measure=True, time_limit=60)) == {"time_limit": 60}
    given = arguments(
        Options(
            objective={"time": 1.0, "peak_memory": 1e-9},
            boundary={"x": State("column", "float16")},
            precision=PrecisionPolicy(precisions=("float16",), keep=frozenset({"softmax", "exp"})),
            outputs=["y"],
            sizes={"batch": [1, 8]},
            rules=Path("my.rules"),
            progress=follow,
            limits={"peak_memory": "1 kB"},
        )
    )
    assert json.loads(json.dumps(given)) == given
    assert given["progress"] == f"{__name__}.follow"
    assert given["rules"] == "my.rules"
    assert given["boundary"] == {"x": "column float16"}
    assert given["precision"]["keep"] == ["exp", "softmax"]
    assert given["sizes"] == {"batch": {"1": 0.5, "8": 0.5}}
    assert given["objective"] == {"time": 1.0, "peak_memory": 1e-9}


def test_calibration_data_are_named_and_not_shown(tmp_path: Path) -> None:
    x = {"x": np.ones((4, 8), np.float32)}
    assert arguments(Options(calibration=tmp_path)) == {"calibration": str(tmp_path)}
    assert arguments(Options(calibration=x)) == {"calibration": "calibration"}
    assert arguments(Options(calibration=iter([x]))) == {"calibration": "calibration"}
    read = read_calibration([x], two_products().build())
    assert arguments(Options(calibration=read)) == {"calibration": "calibration"}


class Follower:
    def __call__(self, progress: object) -> None:
        pass


def test_functions_are_named_and_those_of_eqsat_left_out() -> None:
    assert arguments(Options(progress=Follower())) == {"progress": f"{__name__}.Follower"}
    assert arguments(Options(progress=lambda _: None))["progress"].endswith("<lambda>")
    explorer = eqsat.explore(two_products(), steps=100_000)
    explorer.grow()
    assert explorer.optimize(measure=False).report.arguments == {"steps": 100_000, "measure": False}


def test_rules_are_named() -> None:
    from eqsat.rewrites.rules.parser import parse_rules

    rules = parse_rules("twice: relu(relu(x)) => relu(x)")
    assert arguments(Options(rules=rules))["rules"] == ["twice"]


def test_old_reports_without_the_new_fields_are_still_shown() -> None:
    report = eqsat.optimize(two_products(), **FAST).report
    bare = replace(report, finalists=(), input=None, arguments={}, versions={}, machine=None, measured_ratio=None)
    assert str(bare).splitlines()[0] == str(report).splitlines()[0]
