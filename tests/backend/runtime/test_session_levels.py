"""The level of ONNX Runtime's graph optimisation: measured beside "all", and kept where the user gets the result."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.report.parts import SessionLevel
from eqsat.report.timing.levels import LevelTrial
from eqsat.runtime.examples import SizePoint
from eqsat.runtime.onnxruntime import levels
from eqsat.runtime.onnxruntime.session import SessionBackend

BASIC = SessionLevel(
    "basic", 0.9, 0.93, 0.7, 0.75, 8, True, 'measured at 0.900 of the time at "all", at most 0.930 (95 %)'
)
SLOWER = SessionLevel("extended", 1.2, why='it is no faster than "all"')


def model() -> eqsat.Graph:
    g = eqsat.Graph("model")
    x = g.input("x", (2, 8))
    w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    g.output("y", eqsat.relu(x @ g.constant(w)))
    return g.build()


def level_of(model: object, monkeypatch: pytest.MonkeyPatch) -> str:
    """The level of a session that ONNX Runtime makes of a model, reading what that states."""
    monkeypatch.setenv(levels.VARIABLE, "1")
    given = model if isinstance(model, bytes | str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
    return str(session.get_session_options().graph_optimization_level).rpartition("_")[2].lower()


@pytest.fixture
def basic(monkeypatch):
    """Trials of levels of which "basic" comes out fastest."""
    monkeypatch.setattr("eqsat.steps.trials.LEAST_SECONDS", 0.0)
    monkeypatch.setattr(LevelTrial, "measured", lambda trial: [SLOWER, BASIC])


def test_the_result_runs_at_the_level_that_is_kept_and_a_written_model_states_it(basic, monkeypatch, tmp_path):
    result = eqsat.optimize(model(), cache=False)
    assert result.level == result.report.level == "basic"
    assert str(result.compile().session.get_session_options().graph_optimization_level).endswith("BASIC")
    assert result.run(x=np.ones((2, 8), np.float32))["y"].shape == (2, 8)
    assert level_of(result.to_onnx(), monkeypatch) == "basic"
    result.save(tmp_path / "result.onnx")
    assert level_of(str(tmp_path / "result.onnx"), monkeypatch) == "basic"
    monkeypatch.delenv(levels.VARIABLE)
    plain = onnxruntime.InferenceSession(tmp_path / "result.onnx", providers=["CPUExecutionProvider"])
    assert str(plain.get_session_options().graph_optimization_level).endswith("ALL")


def test_the_report_says_which_level_is_kept_and_what_other_sessions_need(basic):
    report = eqsat.optimize(model(), cache=False).report
    assert [one["name"] for one in report.to_json()["levels"] if one["kept"]] == ["basic"]
    text = " ".join(str(report).split())
    assert (
        'ONNX Runtime\'s level: basic, measured at 0.900 of the time at "all", at most 0.930 (95 %), over 8 pairs of '
        'sessions; 0.700 of the original\'s at "all", at most 0.750; extended at 1.200 of its time, it is no faster '
        'than "all"; other sessions need graph_optimization_level = ORT_ENABLE_BASIC, or ORT_LOAD_CONFIG_FROM_MODEL=1'
    ) in text


def test_a_model_that_is_kept_as_it_was_states_the_level_besides_its_own_options(basic, monkeypatch, tmp_path, run):
    given = eqsat.optimize(model(), measure=False).to_onnx()
    given.metadata_props.add(key=levels.PROPERTY, value=json.dumps({"session_options": {"intra_op_num_threads": 1}}))
    given.metadata_props.add(key="author", value="somebody")
    onnx.save(given, tmp_path / "given.onnx")
    code, out, err = run("optimize", f"{tmp_path}/given.onnx", "-o", f"{tmp_path}/result.onnx", "--no-cache")
    assert code == 0, err
    assert "ONNX Runtime's level: basic" in out
    written = onnx.load(tmp_path / "result.onnx")
    stated = {one.key: one.value for one in written.metadata_props}
    assert json.loads(stated[levels.PROPERTY]) == {
        "session_options": {"intra_op_num_threads": 1, "graph_optimization_level": 1}
    }
    assert stated["author"] == "somebody"
    assert level_of(str(tmp_path / "result.onnx"), monkeypatch) == "basic"
    del written.metadata_props[:], given.metadata_props[:]
    assert written == given


def test_a_result_that_is_found_again_has_its_level(basic, monkeypatch, tmp_path):
    monkeypatch.setenv("EQSAT_RESULTS", str(tmp_path))
    first, again = (eqsat.optimize(model()) for _ in range(2))
    assert again.report.found_again
    assert (first.level, again.level) == ("basic", "basic")


@pytest.mark.parametrize(
    "options", [{"measure": False}, {"objective": {"flops": 1.0}}, {"buckets": {"rows": [2, 4]}}], ids=str
)
def test_no_level_is_tried_where_its_time_would_not_count(basic, options):
    g = eqsat.Graph("rows")
    g.output("y", eqsat.relu(g.input("x", ("rows", 8)) + 1.0))
    result = eqsat.optimize(g, cache=False, **options)
    assert (result.level, result.report.levels) == ("all", ())


def test_levels_are_timed_beside_all_and_only_one_that_is_faster_in_new_sessions_is_kept(monkeypatch):
    monkeypatch.setattr("eqsat.report.timing.levels.LEAST_SECONDS", 0.0)
    graph = model()
    rows = LevelTrial(graph, graph, True, None, (SizePoint({}),), 0, 1, 1e-4).measured()
    assert sorted(row.name for row in rows) == ["basic", "extended"]
    for row in rows:
        assert row.ratio > 0
        assert row.why
        assert row.kept is (row.bound is not None and row.bound < 1 and row.ratio <= 0.98)


def test_a_level_at_which_outputs_differ_is_refused(monkeypatch):
    """What ONNX Runtime computes at a level is compared with the original at "all"."""
    monkeypatch.setattr("eqsat.report.timing.levels.LEAST_SECONDS", 0.0)
    graph = model()
    wrong = replace(graph, constants={k: c.of(c.array * 2) for k, c in graph.constants.items()})
    compiled = LevelTrial.new_session

    def new(trial, level, **more):
        return compiled(replace(trial, original=wrong) if level == "basic" else trial, level, **more)

    monkeypatch.setattr(LevelTrial, "new_session", new)
    rows = LevelTrial(graph, graph, True, None, (SizePoint({}),), 0, 1, 1e-4).measured()
    refused = next(row for row in rows if row.name == "basic")
    assert refused.ratio is None
    assert refused.why.startswith("rounding moves its output 'y' by ")


def test_a_level_that_is_none_is_refused_with_the_names_of_those_there_are():
    with pytest.raises(BackendError, match=r"no level 'alll'\n  expected one of all, extended, basic\n  did you mean"):
        SessionBackend().compile(model(), level="alll")
