"""The examination of a machine: its steps on a GPU that stands in and on this processor, its file, and its faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from eqsat.doctor import examination as examination_module
from eqsat.doctor.examination import Examination, run_step, watched
from eqsat.doctor.observation import Examined, Observation
from eqsat.doctor.runners import GpuRunner
from eqsat.doctor.steps import INSTALLATION, STEPS, WORK, examine
from eqsat.errors import EqsatError, UsageError
from eqsat.runtime.backend import BACKENDS
from eqsat.runtime.cuda import backend
from eqsat.runtime.cuda.device import toolkit as toolkit_module
from tests.support.cuda_standin import StandIn, Toolkit


@pytest.fixture
def standing(monkeypatch):
    """A GPU that stands in, with its toolkit."""
    cuda = StandIn()
    cuda.cupy.cuda.runtime.getDevice = lambda: 0
    made = Toolkit(cuda)
    monkeypatch.setitem(sys.modules, "cupy", cuda.cupy)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(backend, "fault", lambda: None)
    monkeypatch.setattr(toolkit_module, "Toolkit", lambda number: made)
    monkeypatch.setitem(BACKENDS, "cupy", backend.CupyBackend())
    return made


@pytest.mark.parametrize("step", WORK, ids=lambda step: step.name)
def test_each_step_passes_on_a_gpu_that_stands_in(step, standing):
    """All launches are captured, on streams that it orders at random, and its libraries compute."""
    runner = GpuRunner()
    found = [observation for name, part in step.parts for observation in examine(name, part, runner)]
    assert {one.status for one in found} <= {"passed", "skipped"}, found
    assert [one.part for one in found if one.status == "skipped"] in ([], ["PyTorch"])
    assert standing.cuda.graphs
    assert standing.cuda.taken == 0


def test_numbers_that_are_wrong_are_seen(standing, monkeypatch):
    """A library that leaves out a bias."""
    library = standing.libraries["cublaslt"]
    prepare = library.prepare

    def wrong(call, address, plan=None):
        bare = replace(call, bias=None, epilogue=call.epilogue.replace("bias", "").strip("_") or "none")
        return prepare(bare if call.bias is not None else call, address, plan)

    monkeypatch.setattr(library, "prepare", wrong)
    found = {
        observation.part: observation
        for name, part in STEPS["products in float32"].parts
        for observation in examine(name, part, GpuRunner())
    }
    assert found["plain"].status == found["relu"].status == "passed"
    assert found["bias"].status == found["bias relu"].status == "failed"
    assert found["bias"].text.startswith("differs from NumPy by ")
    assert found["bias"].text.endswith(" of the norm, at most 1e-05 is expected")


def test_errors_of_packages_are_told(standing):
    def fails(runner):
        raise RuntimeError("CUDNN_STATUS_INTERNAL_ERROR")
        yield

    (found,) = examine("a part", fails, GpuRunner())
    assert found == Observation("a part", "failed", "RuntimeError: CUDNN_STATUS_INTERNAL_ERROR")


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV: about to"),
        ("time.sleep(60)", "did not end in 2 s: about to"),
        ("sys.exit(5)", "ended with code 5: about to"),
        ("sys.exit(99)", "compute-sanitizer found errors: about to"),
        ("raise MemoryError('none left')", "ended with code 1: MemoryError: none left"),
        ("os.kill(os.getpid(), 40)", "ended by signal 40: about to"),
        ("sys.stderr.buffer.write(b'\\xff\\n'); sys.exit(1)", "ended with code 1: \N{REPLACEMENT CHARACTER}"),
    ],
    ids=["crash", "hang", "code", "tool", "exception", "another signal", "no text"],
)
def test_a_process_that_goes_wrong_is_told_at_the_part_it_was_at(code, text):
    done = {"part": "first", "status": "passed", "text": "fine"}
    program = f"""
import json, os, signal, sys, time
print("what a library says")
print(json.dumps({{"found": 5}}), json.dumps([1]), sep="\\n")
print(json.dumps({{"found": {{"part": "x", "status": []}}}}))
print(json.dumps({{"begun": "first"}}))
print(json.dumps({{"found": {done!r}}}))
print(json.dumps({{"begun": "second"}}), flush=True)
print("about to", file=sys.stderr, flush=True)
{code}
"""
    made = run_step("a step", [], seconds=2.0, command=lambda name: [sys.executable, "-c", program])
    assert made.step == "a step" and made.status == "failed"
    first, second = made.observations
    assert (first.part, first.status, first.text) == ("first", "passed", "fine")
    assert (second.part, second.text) == ("second", text)


def doctor(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "eqsat", "doctor", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "COLUMNS": "200"},
    )


def test_on_this_machine_steps_are_dry_and_kept_in_a_file(tmp_path):
    """Without a GPU: kernels are compiled and run here, and what is missing is said, with what to install."""
    file = tmp_path / "doctor.json"
    done = doctor("--json", str(file), "--dry", "--only", "float16", "--only", "streams")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "dry      norms in float16" in done.stdout and "norms in float32" not in done.stdout
    kept = json.loads(file.read_text())
    steps = {one["step"]: one for one in kept["steps"]}
    assert steps["compiler"]["status"] == "passed"
    wanted = {step.name for step in WORK if "float16" in step.name and "bfloat16" not in step.name}
    assert wanted | {"streams"} <= {name for name, one in steps.items() if one["status"] == "dry"}
    assert [one["part"] for one in steps["products in float16"]["observations"]][:2] == ["plain", "bias"]
    if steps["GPU"]["status"] == "absent":
        assert "\ndo: pip install 'eqsat[cuda13]'" in done.stdout

    times = {name: one["seconds"] for name, one in steps.items() if one["status"] == "dry"}
    again = doctor("--json", str(file), "--dry", "--only", "streams")
    kept = json.loads(file.read_text())
    assert again.returncode == 0
    assert {one["step"]: one["seconds"] for one in kept["steps"]}["streams"] == times["streams"]


def steps_of(monkeypatch, statuses):
    """The steps that are examined, where each has the status that is given, or passes."""
    asked = []

    def run(name, options, **_):
        asked.append((name, *options))
        status = statuses.get(name, "dry" if "--dry" in options else "passed")
        return Examined(
            name, (Observation(name, status, f"{name} text", "do this" if status == "failed" else ""),), 0.5
        )

    monkeypatch.setattr(examination_module, "run_step", run)
    return asked


def test_what_passed_is_not_examined_again_and_what_failed_is(tmp_path, monkeypatch):
    file = tmp_path / "doctor.json"
    asked = steps_of(monkeypatch, {"norms in float32": "failed"})
    first = Examination(file)
    assert [one.step for one in first.run(tools=False)] == list(STEPS)
    assert [one.part for one in first.failed] == ["norms in float32"] and first.remedies == ["do this"]
    assert all("--dry" not in options for options in asked)

    asked = steps_of(monkeypatch, {})
    assert [one.step for one in Examination(file).run(tools=False)] == list(STEPS)
    assert [name for name, *_ in asked] == [*(step.name for step in INSTALLATION), "norms in float32"]

    asked = steps_of(monkeypatch, {})
    list(Examination(file, again=True).run(tools=False))
    assert len(asked) == len(STEPS)


@pytest.mark.parametrize(
    "text",
    ["{broken", "[1]", "[" * 100_000, '{"machine": MACHINE, "steps": [{"step": "streams", "status": []}]}',
     '{"machine": MACHINE, "steps": [{"step": "streams", "seconds": 1, "observations": [{"part": 1, "status": []}]}]}'],
    ids=["broken", "a list", "deep", "a step", "an observation"],
)  # fmt: skip
def test_a_file_that_is_no_examination_is_written_anew(tmp_path, monkeypatch, text):
    file = tmp_path / "doctor.json"
    steps_of(monkeypatch, {})
    made = Examination(file)
    list(made.run(tools=False))
    file.write_text(text.replace("MACHINE", json.dumps(made.machine)))
    asked = steps_of(monkeypatch, {})
    list(Examination(file).run(tools=False))
    assert len(asked) == len(STEPS) and json.loads(file.read_text())["steps"]


def test_a_file_that_cannot_be_read_or_written_is_an_error_at_once(tmp_path, monkeypatch):
    asked = steps_of(monkeypatch, {})
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EqsatError, match="pipe: "):
        next(Examination(tmp_path / "pipe").run())
    with pytest.raises((EqsatError, OSError)):
        next(Examination(tmp_path / "absent" / "doctor.json").run())
    assert not asked


def test_some_steps_are_examined_and_the_others_of_the_file_stay(tmp_path, monkeypatch):
    file = tmp_path / "doctor.json"
    steps_of(monkeypatch, {"norms in float32": "failed"})
    list(Examination(file).run(tools=False))
    asked = steps_of(monkeypatch, {})
    list(Examination(file, again=True).run(["Streams"], tools=False))
    assert [name for name, *_ in asked] == [*(step.name for step in INSTALLATION), "streams"]
    kept = {one["step"]: one["status"] for one in json.loads(file.read_text())["steps"]}
    assert list(kept) == list(STEPS) and kept["norms in float32"] == "failed"
    with pytest.raises(UsageError, match="no step has 'nothing' in its name"):
        next(Examination(file).run(["nothing"]))


def test_json_goes_to_standard_output_too():
    done = doctor("--json", "-", "--dry", "--only", "streams")
    assert done.returncode == 0, done.stderr
    assert [one["step"] for one in json.loads(done.stdout)["steps"]] == ["packages", "GPU", "compiler", "streams"]


def test_another_machine_is_examined_whole_and_one_without_a_gpu_dry(tmp_path, monkeypatch):
    file = tmp_path / "doctor.json"
    steps_of(monkeypatch, {})
    list(Examination(file).run(tools=False))
    asked = steps_of(monkeypatch, {"GPU": "absent"})
    made = {one.step: one.status for one in Examination(file).run(tools=False)}
    # The machine is the same by its texts, and what has passed on a GPU says more than a dry step.
    assert made["arrays of other packages"] == "passed"
    assert [name for name, *_ in asked] == [step.name for step in INSTALLATION]
    monkeypatch.setattr(
        examination_module,
        "run_step",
        lambda name, options, **_: Examined(name, (Observation(name, "passed", "new"),), 0.1),
    )
    assert all(one.seconds == 0.1 for one in Examination(file).run(tools=False))


def test_an_examination_that_is_interrupted_goes_on_where_it_was(tmp_path, monkeypatch):
    file = tmp_path / "doctor.json"
    steps_of(monkeypatch, {})
    running = Examination(file).run(tools=False)
    for _ in range(8):
        next(running)
    running.close()
    asked = steps_of(monkeypatch, {})
    list(Examination(file).run(tools=False))
    assert len(asked) == len(STEPS) - (8 - len(INSTALLATION))


def test_ctrl_c_ends_the_process_of_a_step(tmp_path):
    mark = tmp_path / "pid"
    program = f"import os, pathlib, time; pathlib.Path({str(mark)!r}).write_text(str(os.getpid())); time.sleep(60)"

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 1.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_step("a step", [], command=lambda name: [sys.executable, "-c", program])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    number = int(mark.read_text())
    state = Path(f"/proc/{number}/stat")  # gone, or there until whoever began it has asked for its end
    assert not state.exists() or state.read_text().split()[2] == "Z"


def test_steps_are_watched_by_nvidias_tool_where_it_is(tmp_path, monkeypatch):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text('#!/bin/sh\necho "tool $2" >&2\nshift 4\nexec "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    asked = []

    def run(name, options, *, before, **_):
        asked.append((name, before))
        return Examined(name, (Observation("part", "passed"),), 1.0)

    monkeypatch.setattr(examination_module, "run_step", run)
    made = watched("racecheck", dry=False)
    assert made.status == "passed" and made.seconds == len(asked) == 3
    assert asked[0][1] == [str(tool), "--tool", "racecheck", "--error-exitcode", "99"]
    assert watched("memcheck", dry=True).observations[0].text == "needs a GPU"
    monkeypatch.setenv("PATH", "")
    assert watched("memcheck", dry=False).observations[0].text.startswith("compute-sanitizer is not on the path")


def test_numbers_of_inputs_are_held_by_every_type():
    from eqsat.doctor.graphs import inputs, layer

    halves, floats = inputs(layer("bfloat16")), inputs(layer("float32"))
    for name, array in floats.items():
        np.testing.assert_array_equal(halves[name].astype(np.float32), array)
