"""Where the time goes: medians over runs, the table, the trace and the picture."""

import itertools
import json
import re

import numpy as np
import pytest

import eqsat
from eqsat.errors import MissingExtraError, UsageError
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.programs import profile as module
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.compiled import CompiledProgram
from eqsat.runtime.programs.profile import KINDS, Profile, Span
from eqsat.testing.cuda.host import HostMachine


def runs():
    """Two launches, the second on another stream, in three runs of different speed."""
    return [
        [
            Span("matmul + relu", "matmul", 0.0, 4e-6 * factor, 4000, ("a", "b")),
            Span("", "generated", 2e-6 * factor, 1e-6, 1000, ("c",), stream=1),
        ]
        for factor in (1, 9, 2)
    ]


def test_times_are_medians_over_the_runs_and_the_longest_come_first():
    profile = Profile("m", runs()[::-1])
    assert [(s.start, s.seconds) for s in profile.spans] == [(0.0, 8e-6), (4e-6, 1e-6)]
    assert profile.seconds == pytest.approx(9e-6)
    assert str(profile).splitlines() == [
        "m: 2 launches, 9.0 us in 3 runs",
        "   share       us   GB/s  kind       launch",
        "   88.9%      8.0      0  matmul     matmul + relu",
        "   11.1%      1.0      1  generated  c",
    ]


def test_a_trace_has_every_launch_of_every_run_in_microseconds(tmp_path):
    path = tmp_path / "trace.json"
    Profile("m", runs()).chrome_trace(path)
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    names = [e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"]
    assert names == ["m, run 1", "m, run 2", "m, run 3"]
    launches = [e for e in events if e["ph"] == "X"]
    assert len(launches) == 6
    assert launches[1] == {
        "name": "c",
        "cat": "generated",
        "ph": "X",
        "ts": 2.0,
        "dur": 1.0,
        "pid": 0,
        "tid": 1,
        "args": {"values": ["c"], "bytes": 1000},
    }
    assert all(isinstance(e[key], int | float) for e in launches for key in ("ts", "dur", "pid", "tid"))


def test_the_picture_shows_every_launch_and_kind(tmp_path):
    pytest.importorskip("matplotlib", reason="pip install eqsat[plot]")
    path = tmp_path / "timeline.svg"
    Profile("m", runs()).picture(path)
    text = path.read_text()
    for kind, shown in (("matmul", True), ("generated", True), ("attention", False)):
        assert (KINDS[kind] in text) is shown
    assert len(re.findall(f"fill: {KINDS['generated']}", text)) == 2  # its bar and its mark in the legend
    png = tmp_path / "timeline.png"
    Profile("m", runs()).picture(png)
    assert png.read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"needs matplotlib\n.*\n  pip install 'eqsat\[plot\]'"):
        Profile("m", runs()).picture(tmp_path / "x.png")


def test_a_profile_without_a_run_says_how_to_make_one():
    with pytest.raises(UsageError, match="no run of 'm' was profiled") as caught:
        str(Profile("m"))
    assert "with program.profile() as p:" in caught.value.remedy


def test_runs_of_several_sizes_have_no_medians():
    one, two, _ = runs()
    with pytest.raises(UsageError, match="runs of 'm' of several sizes were profiled together"):
        str(Profile("m", [one, two[:1]]))


def test_runs_within_the_context_are_profiled_and_others_are_not():
    g = eqsat.Graph("m")
    x = g.input("x", (4, 8))
    w = g.constant(np.eye(8, dtype=np.float32))
    g.output("y", eqsat.softmax(eqsat.matmul(x, w), axis=-1))
    graph = g.build()

    def build(sizes):
        program = program_of(graph, sizes)
        return HostMachine(program, arrange(program))

    program = CompiledProgram(graph, build)
    inputs = {"x": np.ones((4, 8), np.float32)}
    program.run(inputs)
    with program.profile() as outer:
        program.run(inputs)
        with program.profile() as inner:
            program.run(inputs)
    program.run(inputs)
    assert (len(outer.runs), len(inner.runs)) == (2, 1)
    kinds = [span.kind for span in outer.spans]
    assert kinds[0] == "matmul" and set(kinds) <= set(KINDS)
    first, *rest = outer.spans
    assert first.nbytes == 4 * (4 * 8 + 8 * 8 + 4 * 8)
    assert all(a.start + a.seconds <= b.start for run in outer.runs for a, b in itertools.pairwise(run))
    assert rest
