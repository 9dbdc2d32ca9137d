"""Finalists are compared where they would be kept, and the time that takes is not spent on choosing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.certify.outputs import Judge, Verdict
from eqsat.extract import solve
from eqsat.report.timing.compiling import Compiling
from eqsat.steps.candidates import Finalists
from eqsat.steps.choosing import Chooser
from eqsat.system.deadline import Deadline, TimeUp

ON_CPU: dict[str, Any] = {"device": "onnxruntime-cpu", "cache": False}


def model(*ops: str) -> onnx.ModelProto:
    """A product and a sum, then operators of one operand; two transposes in a row cancel."""
    rng = np.random.default_rng(0)
    held = [numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), "w")]
    nodes, value = [helper.make_node("MatMul", ["x", "w"], ["p"])], "p"
    for index, op in enumerate(ops):
        nodes.append(helper.make_node(op, [value], [f"v{index}"]))
        value = f"v{index}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 8]) for name in ("x", value)]
    graph = helper.make_graph(nodes, "lazy", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of programs that are made ready, in order."""
    made: list[str] = []
    program = Compiling.program

    def counting(self: Compiling, name: str, graph: Any) -> Any:
        made.append(name)
        return program(self, name, graph)

    monkeypatch.setattr(Compiling, "program", counting)
    return made


@pytest.fixture
def twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """One more finalist, "second", which is the first found once more and costs a little more."""
    of = Finalists.of

    def doubled(self: Finalists, solutions: Any) -> Any:
        candidates = of(self, solutions)
        for one in candidates[1:2]:
            cost = replace(one.cost, price=one.cost.price * 1.0001)
            candidates.append(replace(one, name="second", cost=cost))
        return candidates

    monkeypatch.setattr(Finalists, "of", doubled)


@pytest.mark.usefixtures("twice")
def test_without_times_only_the_finalist_that_is_kept_is_made_ready(ready: list[str]) -> None:
    result = eqsat.optimize(model("Transpose", "Transpose", "Relu"), measure=False, **ON_CPU)
    assert result.report.kept == "ilp" and ready == ["original", "ilp"]
    assert [one.name for one in result.report.finalists] == ["original", "ilp", "second"]
    assert result.report.finalists[2].why == "it costs no less than ilp by the model"


def test_nothing_is_run_where_the_original_is_kept(ready: list[str]) -> None:
    result = eqsat.optimize(model("Relu"), measure=False, **ON_CPU)
    assert result.report.kept == "original" and ready == []


@pytest.mark.usefixtures("twice")
def test_where_one_is_refused_the_next_is_compared(ready: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = iter([Verdict("its outputs are others")])
    verdict = Judge.verdict
    monkeypatch.setattr(Judge, "verdict", lambda self, *given: next(verdicts, None) or verdict(self, *given))
    certified: list[str] = []
    monkeypatch.setattr(
        "eqsat.steps.trials.Trials.certify", lambda self, a, b, candidate, *rest: certified.append(candidate.name)
    )
    result = eqsat.optimize(model("Transpose", "Transpose", "Relu"), measure=False, **ON_CPU)
    assert ready == ["original", "ilp", "second"] and result.report.kept == "second"
    # The one that differs is looked at for what is wrong with it.
    assert certified == ["ilp", "second"]
    assert [w for w in result.report.warnings if "left out" in w] == ["ilp was left out: its outputs are others"]


def test_the_original_is_run_once_on_each_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that show where it can be run are those that finalists are compared with."""
    from eqsat.runtime.onnxruntime.session import SessionProgram

    runs: list[str] = []
    run = SessionProgram.run

    def counting(self: SessionProgram, inputs: Any) -> Any:
        runs.append("original" if any(n.op == "transpose" for n in self.graph.nodes) else "ilp")
        return run(self, inputs)

    monkeypatch.setattr(SessionProgram, "run", counting)
    eqsat.optimize(model("Transpose", "Transpose", "Relu"), measure=False, **ON_CPU)
    assert runs.count("original") == runs.count("ilp") == 8  # four draws, and four inputs of unusual size


def test_choosing_ends_before_the_time_that_trials_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat.steps.trials.seconds_of_trials", lambda given, settings: 20.0)
    ends: list[float] = []

    def timed(*given: Any, **more: Any) -> Any:
        limit = more.get("time_limit")
        ends.append(limit.left if isinstance(limit, Deadline) else 0.0)
        return solve(*given, **more)

    monkeypatch.setattr("eqsat.steps.choosing.solve", timed)
    eqsat.optimize(model("Transpose", "Transpose", "Relu"), measure=False, time_limit=100.0, **ON_CPU)
    assert 35.0 < ends[-1] <= 40.0  # half of what is left but for 20 s


def test_a_choice_is_kept_though_there_is_no_time_for_a_portable_one(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Chooser.problem
    asked: list[bool] = []

    def late(self: Chooser, *given: Any) -> Any:
        asked.append(self.settings.contrib)
        if not self.settings.contrib:
            raise TimeUp("the time limit of 30 s is over")
        return problem(self, *given)

    monkeypatch.setattr("eqsat.steps.fused.may_be_written", lambda graph: True)
    monkeypatch.setattr(Chooser, "problem", late)
    report = eqsat.optimize(model("Transpose", "Transpose", "Relu"), measure=False, **ON_CPU).report
    assert asked == [True] and not report.skipped, "by its cost a portable choice is never kept"
    assert report.kept == "ilp" and report.certificate.kind != "identical"
    asked.clear()
    report = eqsat.optimize(model("Transpose", "Transpose", "Relu"), **ON_CPU).report
    assert asked == [True, False]
    assert "ilp" in {finalist.name for finalist in report.finalists}
    told = "nothing was chosen without ONNX Runtime's own operators: the time limit of 30 s is over"
    assert report.skipped == (told,)
