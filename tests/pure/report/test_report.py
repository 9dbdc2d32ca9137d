"""The report as people and programs read it, against golden files, and the progress of a run."""

import io
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from eqsat.certify.record import CheckedRegion
from eqsat.report.explanation import Change, Step
from eqsat.report.parts import (
    Baseline,
    BodyCertificate,
    CertificateSummary,
    ControlChange,
    Finalist,
    InputModel,
    OpaqueNode,
    RunMachine,
    StepCost,
)
from eqsat.report.report import PHASES, Progress, Report
from eqsat.report.units import count, duration, percent, quantity

GOLDEN = Path(__file__).parents[2] / "golden"

LOST = "no finalist was measured to be faster with 95 % confidence"
CHANGED = Report(
    name="sru_text_classifier",
    device="onnxruntime-cpu",
    nodes_before=343,
    nodes_after=286,
    cost_before=9.12e-3,
    cost_after=4.81e-3,
    lower_bound=4.81e-3,
    gap=0.0,
    objective={"time": 1.0},
    stopped_by="saturated",
    extraction="optimal",
    enodes=1840,
    eclasses=912,
    rounds=60,
    growth=[("simplify", 350, 350, 0.01), ("merge", 1840, 912, 0.11)],
    estimated_share=0.034,
    borrowed_share=0.9,
    borrowed_from="a processor, onnxruntime 1.31.1, times conv 1.7, launch 1.3",
    rules_fired={"matmul-concat-rows": 3, "slices-join": 20},
    rules_refused={"conv-merge": {"a dim is known by name only": 2}},
    certificate=CertificateSummary(
        "exact",
        3e-15,
        [CheckedRegion(("h",), "exact", 0.0, (60, 3))],
        folded=0,
        draws=3,
        sizes=[{"batch": 1}],
        text="3 regions: 3 exact mod 1048343; 3 draws each",
        bodies=[BodyCertificate("loop", CertificateSummary("identical", 0.0, text="nothing changed"))],
    ),
    seconds={
        "read": 0.32,
        "calibrate": 2.5,
        "saturate": 0.11,
        "extract": 0.06,
        "certify": 0.05,
        "measure": 1.4,
        "write": 0.02,
    },
    measured_before=9.77e-3,
    measured_after=5.08e-3,
    measured_ratio=0.522,
    measured_bound=0.531,
    finalists=[
        Finalist("original", 343, 9.12e-3, 9.77e-3, None, None, False, "ilp is faster with 95 % confidence"),
        Finalist(
            "ilp",
            286,
            4.81e-3,
            5.08e-3,
            0.522,
            0.531,
            True,
            "measured at 0.522 of the original's time, at most 0.531 (95 %)",
        ),
        Finalist("greedy", 300, 5.2e-3, 5.6e-3, 0.574, 0.581, False, "ilp is faster in the median"),
        Finalist("portable", 301, 5.4e-3, None, None, None, False, "output 'y' differs by 1.0e-01"),
    ],
    input=InputModel("sru.onnx", "file", "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"),
    arguments={"time_limit": 60.0, "progress": "app.follow", "sizes": {"batch": {8: 1.0}}},
    versions={"python": "3.11.7", "eqsat": "0.1.0", "onnxruntime": "1.31.1"},
    machine=RunMachine("a processor, stepping 1", 2, 1, "Linux 6.1 x86_64"),
    kept="ilp",
    kept_because="measured at 0.522 of the original's time, at most 0.531 (95 %)",
    opaque=[OpaqueNode("loop", "Loop", "control flow")],
    operators_before={"matmul": 60},
    operators_after={"matmul": 3},
    warnings=["weight 'w' holds NaN"],
    changes=[
        Change(
            values=("h",),
            before={"matmul": 60},
            after={"split": 1},
            rules=("matmul-concat-rows",),
            steps=(Step("matmul-concat-rows", "h", "matmul(x, w)", "split(y)"),),
            nodes=-57,
            predicted=4.2e-3,
            measured=4.5e-3,
        ),
        ControlChange("20 × concat -> input", rules=("slices-join", "slice-whole")),
    ],
    amounts={"launches": 5.0, "peak_memory": 8192.0},
    limits={"launches": 6.0},
    steps=[
        StepCost(op, value, operands, result, arithmetic, seconds, flops=2048, bytes=1024, estimated=estimated)
        for op, value, operands, result, arithmetic, seconds, estimated in (
            ("matmul + add", "h", ["row float16"], "row float16", "", 3e-3, False),
            ("matmul", "g", ["row", "column"], "row", "tf32", 1.5e-3, True),
            ("convert (cast)", "h", ["row float16"], "row", "", 2e-4, False),
            ("convert (cast)", "x", ["row"], "row float16", "", 1.1e-4, False),
        )
    ],
    baselines=[
        Baseline("greedy", 5.2e-3, 0.01, "heuristic"),
        Baseline("backtracking", 4.9e-3, 1.0, "time_limit"),
    ],
)
UNCHANGED = replace(
    CHANGED,
    kept="original",
    kept_because=LOST,
    changes=[],
    stopped_by="node_limit",
    extraction="time_limit",
    gap=math.inf,
    borrowed_share=0.0,
    borrowed_from="",
    seconds={name: seconds for name, seconds in CHANGED.seconds.items() if name != "calibrate"},
    rules_fired={},
    opaque=[],
    warnings=[],
    measured_before=9.77e-3,
    measured_after=9.77e-3,
    measured_ratio=1.0,
    measured_bound=1.0,
    finalists=[
        Finalist("original", 343, 9.12e-3, 9.77e-3, None, None, True, LOST),
        Finalist(
            "ilp",
            286,
            4.81e-3,
            9.71e-3,
            0.994,
            1.013,
            False,
            "it is faster in the median, but not with 95 % confidence",
        ),
        Finalist(
            "greedy", 300, 5.2e-3, 9.9e-3, 1.013, 1.02, False, "it was measured to be no faster than the original"
        ),
    ],
    amounts={},
    steps=[],
    baselines=[],
)


@pytest.mark.parametrize(("report", "file"), [(CHANGED, "report_changed.txt"), (UNCHANGED, "report_unchanged.txt")])
def test_the_text_of_a_report(report, file):
    assert str(report) + "\n" == (GOLDEN / file).read_text(encoding="utf-8")


def test_what_runs_is_shown_by_kind_the_dearest_first_and_the_rest_together():
    kinds = [replace(CHANGED.steps[1], op=f"op{i}", seconds=1e-3 / (i + 1)) for i in range(15)]
    text = str(replace(CHANGED, steps=kinds))
    assert "op0 " in text
    assert "op11" in text
    assert "op12" not in text
    assert "3 kinds more" in text


def test_every_reason_to_stop_has_words():
    for reason, words in (("radius_limit", "saturated to its radius"), ("time_limit", "stopped by the time limit")):
        assert words in str(replace(UNCHANGED, stopped_by=reason))


def test_the_json_of_a_report():
    assert CHANGED.json() == (GOLDEN / "report.json").read_text(encoding="utf-8")
    assert CHANGED.to_json() == json.loads(CHANGED.json())


def test_parts_are_still_read_as_the_dicts_that_they_were():
    row, certificate = CHANGED.changes[0], CHANGED.certificate
    with pytest.warns(DeprecationWarning, match=r"Change\['what'\] is Change\.what now"):
        assert row["what"] == row.what == "60 matmul -> split"
    with pytest.warns(DeprecationWarning):
        assert row["rules"] == ["matmul-concat-rows"]
    with pytest.warns(DeprecationWarning, match=r"CertificateSummary\['kind'\] is CertificateSummary\.kind now"):
        assert certificate["kind"] == "exact"
    with pytest.warns(DeprecationWarning):
        assert dict(CHANGED.baselines[0]) == CHANGED.to_json()["baselines"][0]
    with pytest.raises(KeyError, match="regions"):
        BodyCertificate("loop", CertificateSummary("identical", 0.0))["regions"]
    assert CHANGED.changes[1].get("nodes", "unknown") == "unknown"
    assert "nodes" in row and "nodes" not in CHANGED.changes[1]


def test_json_has_the_fields_that_readers_rely_on():
    needed = {"nodes_before", "nodes_after", "cost_before", "cost_after", "lower_bound", "stopped_by", "seconds"}
    needed |= {"estimated_share", "rules_fired", "certificate", "measured_before", "measured_after", "opaque"}
    assert needed <= set(CHANGED.to_json())
    assert {"kind", "error"} <= set(CHANGED.to_json()["certificate"])


def test_numbers_that_are_not_finite_and_those_of_numpy_survive_json():
    odd = replace(CHANGED, gap=math.nan, enodes=np.int64(7), cost_after=np.float32(0.5), lower_bound=-math.inf)
    found = json.loads(odd.json(), parse_constant=pytest.fail)
    assert (found["gap"], found["enodes"], found["cost_after"], found["lower_bound"]) == (None, 7, 0.5, None)


def test_text_has_no_escapes_and_a_terminal_gets_them():
    assert "\x1b" not in str(CHANGED)
    screen = io.StringIO()
    Console(file=screen, force_terminal=True, width=100).print(CHANGED)
    assert "\x1b[1m" in screen.getvalue()
    assert "matmul-concat-rows" in screen.getvalue()


def test_markup_in_names_is_shown_as_it_is():
    named = replace(CHANGED, warnings=["value '[bold]x[/bold]'"], changes=[ControlChange("[red]a", rules=["[b]"])])
    assert "value '[bold]x[/bold]'" in str(named)
    assert "[red]a" in str(named)


def test_the_gap_of_a_moment():
    assert Progress("extract", best=2.0, bound=1.5).gap == 0.25
    assert Progress("extract", best=2.0, bound=2.5).gap == 0.0
    assert Progress("extract", best=0.0, bound=0.0).gap == 0.0
    assert Progress("extract", best=math.inf, bound=1.0).gap is None
    assert Progress("saturate", nodes=4).gap is None
    assert PHASES.index("saturate") < PHASES.index("write")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (2.5e-10, "0.25 ns"), (3e-6, "3 µs"), (0.0312, "31.2 ms"), (12.0, "12 s"), (math.inf, "unknown")],
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_counts_and_quantities():
    assert [count(1, "class", "classes"), count(2, "class", "classes")] == ["1 class", "2 classes"]
    assert [quantity(0, "B"), quantity(999, "B"), quantity(1.5e9, "B")] == ["0 B", "999 B", "1.5 GB"]
    assert [percent(1.0), percent(0.004), percent(math.nan)] == ["100 %", "0.4 %", "unknown"]
