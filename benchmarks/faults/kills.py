"""Processes killed at random moments: files are whole, tables are readable, and work goes on where it stood."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from benchmarks.faults.commands import EQSAT, environment, run, words, write_model
from benchmarks.faults.watch import Bounds, Found

BOUNDS = Bounds(seconds=240.0)
_OLD = b"what was there before"
_GENERATE = ("rules", "generate", "--ops", "add,concat,split", "--domain", "3x3*3", "--seed", "3", "-o")


def attempt(number: int, seed: int, folder: Path) -> Found:
    """One of the commands that write files, killed and looked at."""
    rng = random.Random(f"{seed} {number}")
    kinds = (optimise, optimise_as_it_writes, measure, generate)
    return kinds[number % len(kinds)](rng, folder)


def optimise(rng: random.Random, folder: Path) -> Found:
    """A target that was there is the old one or the new one, wherever in its run the command is killed."""
    return _killed_optimise(folder, lambda process, took: _wait(process, rng.uniform(0, 1.05 * took)))


def optimise_as_it_writes(rng: random.Random, folder: Path) -> Found:
    """The same, killed once the new file has appeared beside its place."""
    delay = rng.choice((0.0, 0.0, 0.0005, 0.002))

    def wait(process: subprocess.Popen[bytes], _took: float) -> None:
        while process.poll() is None and not list(folder.glob(".out.onnx.*")):
            pass
        time.sleep(delay)

    return _killed_optimise(folder, wait)


def _killed_optimise(folder: Path, wait: Callable[[subprocess.Popen[bytes], float], None]) -> Found:
    new, took = _optimised()
    write_model(folder / "model.onnx")
    (folder / "out.onnx").write_bytes(_OLD)
    arguments = ("optimize", "model.onnx", "-o", "out.onnx", "--no-measure")
    with _started(folder, *arguments) as process:
        wait(process, took)
    after = (folder / "out.onnx").read_bytes()
    if after not in (_OLD, new):
        return "torn", f"the target holds {len(after)} bytes, neither the old ones nor the new ones"
    again = run([*EQSAT, *arguments], folder, environment(EQSAT_COST_TABLE=":memory:"))
    if again.returncode or (folder / "out.onnx").read_bytes() != new:
        return "not repeated", words(again)
    return ("old file kept" if after == _OLD else "new file whole"), None


def measure(rng: random.Random, folder: Path) -> Found:
    """The table has every entry that was written, and the command goes on where it stood."""
    write_model(folder / "model.onnx")
    table = folder / "costs.sqlite3"
    with _started(folder, "measure", "--no-wholes", "model.onnx", EQSAT_COST_TABLE=str(table)) as process:
        # Most of the run is loading, so wait for what it writes: the table, and entries of some 4 kB in its log.
        _wait_for(process, table.with_name("costs.sqlite3-wal"), rng.choice((0, 12_000, 16_000, 20_000, 24_000)))
        _wait(process, rng.uniform(0, 0.2))
    held = 0
    if table.exists():
        held, state = _entries(table)
        if state != "ok":
            return "damaged", state
    done = run([*EQSAT, "measure", "--no-wholes", "model.onnx"], folder, environment(EQSAT_COST_TABLE=str(table)))
    if done.returncode or f" {held} known before, 0 left" not in done.stdout:
        return "not gone on", f"{held} entries were there; {done.stdout} {words(done)}"
    return ("table kept" if held else "nothing written yet"), None


def _entries(table: Path) -> tuple[int, str]:
    """How many entries a table has, and what SQLite says of its state."""
    connection = sqlite3.connect(table)
    try:
        state = str(connection.execute("PRAGMA integrity_check").fetchone()[0])
        made = connection.execute("SELECT name FROM sqlite_master WHERE name = 'entries'").fetchone()
        return (connection.execute("SELECT COUNT(*) FROM entries").fetchone()[0] if made else 0), state
    finally:
        connection.close()


def generate(rng: random.Random, folder: Path) -> Found:
    """A command with a journal writes, after a kill and a second run, what it writes without one."""
    expected, took = _generated()
    with _started(folder, *_GENERATE, "out.jsonl") as process:
        _wait(process, rng.uniform(0, 1.05 * took))
    if (folder / "out.jsonl").exists() and (folder / "out.jsonl").read_bytes() != expected:
        return "torn", "the file of candidates is neither missing nor whole"
    again = run([*EQSAT, *_GENERATE, "out.jsonl"], folder, environment())
    if again.returncode or (folder / "out.jsonl").read_bytes() != expected:
        return "not gone on", words(again)
    return "journal went on", None


@contextmanager
def _started(folder: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that runs beside us and is killed at the end."""
    known = {"EQSAT_COST_TABLE": ":memory:", **variables}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*EQSAT, *arguments], cwd=folder, env=environment(**known), **quiet)  # type: ignore[call-overload]
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def _wait_for(process: subprocess.Popen[bytes], path: Path, size: int) -> None:
    while process.poll() is None and not (path.exists() and path.stat().st_size > size):
        time.sleep(0.001)


@cache
def _optimised() -> tuple[bytes, float]:
    """What the command writes when nothing happens to it, and how long it takes."""
    return _undisturbed("out.onnx", "optimize", "model.onnx", "-o", "out.onnx", "--no-measure")


@cache
def _generated() -> tuple[bytes, float]:
    return _undisturbed("out.jsonl", *_GENERATE, "out.jsonl")


def _undisturbed(made: str, *arguments: str) -> tuple[bytes, float]:
    folder = Path(tempfile.mkdtemp(prefix="eqsat-fault-"))
    try:
        write_model(folder / "model.onnx")
        start = time.monotonic()
        done = run([*EQSAT, *arguments], folder, environment(EQSAT_COST_TABLE=":memory:"))
        if done.returncode:
            raise RuntimeError(words(done))
        return (folder / made).read_bytes(), time.monotonic() - start
    finally:
        shutil.rmtree(folder)
