"""Judgements in a process of their own: in time or unknown, and unknown without isl."""

from __future__ import annotations

import sys
import time

import pytest

from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.polyhedral.child import ScheduleJudgement, judge_schedule, judge_tree, judged
from tests.support.polyhedral.analyses import NoIslpy
from tests.support.polyhedral.planted_trees import PAIR, computed, nest

ANALYSES = "tests.support.polyhedral.analyses"


def test_schedules_are_judged_in_a_process_of_their_own() -> None:
    given = computed(PAIR, M=5, N=9)
    assert judge_schedule(given, MappingOptions()).is_legal
    first, second = map(nest, given.statements)
    made = judge_tree(given, [second, first])
    assert made.answer == "illegal"
    assert "t is read before it is written" in made.reason
    assert not made.is_legal


def test_an_analysis_past_its_time_is_ended_and_unknown() -> None:
    start = time.monotonic()
    made = judged(f"{ANALYSES}:sleep", (300.0,), 0.5)
    assert time.monotonic() - start < 60
    assert (made.answer, made.is_legal) == ("unknown", False)
    assert made.reason == "not decided in 0.5 s"
    assert "seconds" in made.remedy


@pytest.mark.parametrize(
    ("name", "arguments", "answer", "reason"),
    [
        ("crash", (), "unknown", "ZeroDivisionError: 1 / 0"),
        ("end", (), "unknown", "ended with status 3"),
        ("refuse", (), "illegal", "c is read before it is written"),
        ("answer", (True,), "legal", ""),
        ("answer", (False,), "illegal", "an order breaks a dependence"),
        ("answer", ("yes",), "unknown", "the analysis returned 'yes'"),
    ],
)
def test_nothing_but_a_proof_is_legal(name: str, arguments: tuple[object, ...], answer: str, reason: str) -> None:
    made = judged(f"{ANALYSES}:{name}", arguments, 60.0)
    assert (made.answer, made.is_legal) == (answer, answer == "legal")
    assert reason in made.reason


def test_without_islpy_a_schedule_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = ScheduleJudgement("unknown", "islpy is not installed", "pip install 'eqsat[poly]'")
    assert judged(f"{ANALYSES}:import_without_islpy", (), 60.0) == unknown
    for name in [name for name in sys.modules if name.split(".")[0] == "islpy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NoIslpy(), *sys.meta_path])
    assert judge_schedule(computed(PAIR, M=5, N=9), MappingOptions()) == unknown


def test_a_judgement_is_no_truth_value() -> None:
    with pytest.raises(TypeError, match="is_legal"):
        bool(ScheduleJudgement("unknown"))
