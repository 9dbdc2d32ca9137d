"""Clocks that go back: entries stay, limits of time hold, files from the future are no trouble."""

from __future__ import annotations

import os
import random
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.faults.commands import EQSAT, environment, run, words, write_model
from benchmarks.faults.watch import Bounds, Found

BOUNDS = Bounds(seconds=240.0)
#: The file of libfaketime where it is none of the system's, whose clock is then set for a whole process.
VARIABLE = "EQSAT_LIBFAKETIME"
_PLACES = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")

#: Where libfaketime is not there: Python's own clock, as the modules that are loaded later see it.
_BACKWARDS = """
import sys, time
real, step, calls = time.time, {step}, [0]
def backwards():
    calls[0] += 1
    return real() - step * calls[0]
time.time = backwards
time.time_ns = lambda: int(backwards() * 1e9)
from eqsat.cli import run
sys.exit(run(sys.argv[1:]))
"""


@cache
def library() -> str | None:
    """The file of libfaketime, or None."""
    named = os.environ.get(VARIABLE)
    if named:
        return named
    root = Path("/")
    return next((str(p) for place in _PLACES for p in root.glob(place[1:])), None)


def mechanism() -> str:
    """How clocks are set here."""
    return "libfaketime" if library() else "time.time replaced in the process"


def attempt(number: int, seed: int, folder: Path) -> Found:
    """A command under a clock that goes back, or a cache whose files are of the future."""
    rng = random.Random(f"{seed} {number}")
    if number % 3 == 2:
        return _cache(rng, folder)
    return _command(rng, folder, number % 3 == 1)


def _command(rng: random.Random, folder: Path, limited: bool) -> Found:
    """Measures now, and optimises and measures again in the past: what was measured counts, and the command ends."""
    write_model(folder / "model.onnx")
    variables = environment(EQSAT_COST_TABLE=str(folder / "costs.sqlite3"))
    if limited:
        arguments = ["optimize", "model.onnx", "-o", "out.onnx", "--time-limit", "2s", "--no-measure"]
    else:
        arguments = ["measure", "--no-wholes", "model.onnx", "--time-limit", "20s"]
        first = run([*EQSAT, *arguments], folder, variables)
        if first.returncode:
            return "failed", words(first)
    start = time.monotonic()
    done = _past(rng, arguments, folder, variables)
    if done.returncode:
        return "failed", words(done)
    if time.monotonic() - start > 60:
        return "endless", f"{time.monotonic() - start:.0f} s with a limit of 2 s"
    if not limited and "0 operators measured" not in done.stdout:
        return "forgotten", done.stdout
    return "in time" if limited else "entries kept", None


def _past(rng: random.Random, arguments: list[str], folder: Path, variables: dict[str, str]) -> Any:
    """The command under a clock of long ago that loses time, or one that goes back at every look."""
    preload = library()
    if preload is None:
        command = [sys.executable, "-c", _BACKWARDS.format(step=rng.choice((1, 3600, 86_400)))]
        return run([*command, *arguments], folder, variables)
    clock = rng.choice(("-1d", "-10y", "@1970-01-02 00:00:00", "-1h x0.5"))
    set_back = {"LD_PRELOAD": preload, "FAKETIME": clock, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    return run([*EQSAT, *arguments], folder, {**variables, **set_back})


def _cache(rng: random.Random, folder: Path) -> Found:
    """Entries whose files are of the future are found, count towards the limit, and are dropped in their order."""
    from eqsat.runtime.cuda.compiler.store import Store

    store = Store(folder, limit=20_000)
    ahead = time.time() + rng.choice((60, 86_400, 10**9))
    for i in range(8):
        store.put(f"k{i}", bytes(1000))
        os.utime(store.path(f"k{i}"), (ahead + i, ahead + i))
    (folder / ".abandoned.kernel").write_bytes(bytes(2000))
    os.utime(folder / ".abandoned.kernel", (ahead, ahead))
    for i in range(8, 40):
        store.put(f"k{i}", bytes(1000))
        if store.get(f"k{i}") is None:
            return "dropped too early", f"k{i} is gone as soon as it was put, behind files of the future"
    total = sum(p.stat().st_size for p in folder.glob("k*.kernel"))
    return ("limit kept", None) if total <= 20_000 else ("grown", f"{total} bytes")
