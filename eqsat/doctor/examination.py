"""An examination of a machine: each step in a process of its own, kept in a file, and gone on with where it stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eqsat.doctor.observation import Examined, Observation
from eqsat.doctor.steps import INSTALLATION, STEPS, WORK, ExaminationStep
from eqsat.errors import UsageError
from eqsat.system.files import unreadable, write_text

#: The seconds that a step may take; with a tool of NVIDIA's beside it, which slows a GPU down.
SECONDS, TOOL_SECONDS = 60.0, 180.0
#: NVIDIA's tool that watches kernels, the checks that it makes, and the steps that are watched.
SANITIZER = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck")
WATCHED = ("kernels in float32", "products in float16", "norms in float16")
#: The exit code that the tool is told to end with where it finds something.
_FOUND = 99


@dataclass
class Examination:
    """The steps of one machine, as far as they were examined.

    `file`, where there is one, is read at first: what passed with the same packages, driver and GPU is not examined
    again, unless `again` says so. It is written after each step.
    """

    file: Path | None = None
    again: bool = False
    done: dict[str, Examined] = field(default_factory=dict)
    machine: list[str] = field(default_factory=list)
    #: Steps of the file that are not examined this time, which it keeps.
    left: dict[str, Examined] = field(default_factory=dict)

    def run(self, only: Sequence[str] = (), *, dry: bool = False, tools: bool = True) -> Iterator[Examined]:
        """Each step as it ends: the installation first, then those whose names contain one of the words.

        Without a GPU, or where it is asked for, steps are dry: they go as far as they go on a processor.
        """
        chosen = [step for step in WORK if not only or any(word.lower() in step.name.lower() for word in only)]
        if not chosen:
            known_names = ", ".join(step.name for step in WORK)
            raise UsageError(
                f"no step has {' or '.join(map(repr, only))} in its name", expected=f"some of {known_names}"
            )
        kept = self._read()
        if self.file is not None and not self.file.exists():
            write_text(self.file, "{}\n")  # before anything takes long
        for step in INSTALLATION:
            yield self._keep(run_step(step.name, []))
        self.machine = [f"{one.part} {one.text}" for step in INSTALLATION for one in self.done[step.name].observations]
        dry = dry or self.done["GPU"].status != "passed"
        before = _steps_of(kept) if kept.get("machine") == self.machine else {}
        self.left = {name: one for name, one in before.items() if name not in self.done}
        enough = ("passed", "dry") if dry else ("passed",)
        known = {} if self.again else {name: one for name, one in before.items() if one.status in enough}
        for step in chosen:
            yield self._keep(known[step.name] if step.name in known else _examined(step, dry))
        if tools and not only:
            for tool in TOOLS:
                yield self._keep(known[tool] if tool in known else watched(tool, dry))

    @property
    def failed(self) -> list[Observation]:
        """The parts that failed."""
        return [one for step in self.done.values() for one in step.observations if one.status == "failed"]

    @property
    def remedies(self) -> list[str]:
        """The remedies of all faults, each once."""
        return list(dict.fromkeys(one.remedy for step in self.done.values() for one in step.faults if one.remedy))

    def as_dict(self) -> dict[str, Any]:
        """The examination as JSON has it."""
        steps = self.left | self.done
        order = {name: place for place, name in enumerate((*STEPS, *TOOLS))}
        ordered = sorted(steps.values(), key=lambda one: order.get(one.step, len(order)))
        return {"machine": self.machine, "steps": [one.as_dict() for one in ordered]}

    def _keep(self, one: Examined) -> Examined:
        self.done[one.step] = one
        if self.file is not None and self.machine:
            write_text(self.file, json.dumps(self.as_dict(), indent=1) + "\n")
        return one

    def _read(self) -> Mapping[str, Any]:
        """The content of the file; empty where it is no examination. UsageError for one that cannot be read."""
        if self.file is None or not self.file.exists():
            return {}
        reason = unreadable(self.file)
        if reason is not None:
            raise UsageError(f"{self.file}: {reason}", expected="a file that an examination is kept in")
        try:
            read = json.loads(self.file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            return {}
        return read if isinstance(read, dict) else {}


def _steps_of(kept: Mapping[str, Any]) -> dict[str, Examined]:
    """The steps of a file by name; none where they are not what an examination writes."""
    try:
        steps = [Examined.of(one) for one in kept.get("steps", ())]
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}
    return {one.step: one for one in steps}


def _examined(step: ExaminationStep, dry: bool) -> Examined:
    if dry and step.gpu_only:
        return Examined(step.name, (Observation(step.name, "skipped", "needs a GPU"),), 0.0)
    return run_step(step.name, ["--dry"] if dry else [])


def watched(tool: str, dry: bool) -> Examined:
    """Some steps under a tool of NVIDIA's that sees accesses beyond memory, or races."""
    path = shutil.which(SANITIZER)
    if dry or path is None:
        reason = "needs a GPU" if dry else f"{SANITIZER} is not on the path: it comes with the CUDA toolkit"
        return Examined(tool, (Observation(tool, "skipped", reason),), 0.0)
    before = [path, "--tool", tool, "--error-exitcode", str(_FOUND)]
    parts = [run_step(name, [], before=before, seconds=TOOL_SECONDS) for name in WATCHED]
    observations = [
        Observation(f"{one.step}, {f.part}", f.status, f.text, f.remedy) for one in parts for f in one.observations
    ]
    return Examined(tool, tuple(observations), sum(one.seconds for one in parts))


def run_step(
    name: str,
    options: Sequence[str],
    *,
    before: Sequence[str] = (),
    seconds: float = SECONDS,
    command: Callable[[str], Sequence[str]] = lambda name: [sys.executable, "-P", "-m", "eqsat.doctor.child", name],
) -> Examined:
    """A step in a process of its own; that it crashed, hung, or was found out by a tool is a observation as well."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [*before, *command(name), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    hung = False
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        hung = True
        _kill(process)
        out, error = process.communicate()
    except BaseException:
        _kill(process)
        process.wait()
        raise
    observations, open_part = _read_lines(out, name)
    fault = _fault(process.returncode, hung, seconds, error)
    if fault is not None:
        observations.append(Observation(open_part, "failed", fault, "report it with the file of this examination"))
    return Examined(name, tuple(observations), time.monotonic() - begin)


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process and those that it began."""
    if not hasattr(os, "killpg"):
        process.kill()
        return
    with suppress(ProcessLookupError):  # it has ended by itself
        os.killpg(process.pid, signal.SIGKILL)


def _read_lines(out: str, name: str) -> tuple[list[Observation], str]:
    """The observations that a process told, and the part that it had begun last."""
    observations, part = list[Observation](), name
    for line in out.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue  # of a library, or of a tool beside it
        if not isinstance(told, dict):
            continue
        part = str(told.get("begun", part))
        with suppress(KeyError, TypeError, ValueError):  # what a library prints may be JSON too
            observations += [Observation.of(told["found"])] if "found" in told else []
    return observations, part


def _fault(code: int, hung: bool, seconds: float, error: str) -> str | None:
    """The fault of a process as a whole, with the last line that it wrote to its errors; None where there is none."""
    last = next((line.strip() for line in reversed(error.splitlines()) if line.strip()), "")
    said = f": {last}" if last else ""
    if hung:
        return f"did not end in {seconds:g} s{said}"
    if code == _FOUND:
        return f"{SANITIZER} found errors{said}"
    if code < 0:
        known = {one.value: one.name for one in signal.Signals}
        return f"ended by {known.get(-code, f'signal {-code}')}{said}"
    return f"ended with code {code}{said}" if code else None
