"""A process that tries one thing after another, watched from outside for crashes, hangs and memory."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

MEBIBYTE = 1 << 20
#: A process is replaced after this many tries, so that what it keeps does not count against a later one.
_RECYCLED = 250
#: Seconds that a process may take beyond its limit before it is stopped, and for writing where it stood.
_GRACE, _TRACE_SECONDS = 0.5, 2.0
#: Lines of a traceback that are kept.
_TRACE_LINES = 12

#: What one try came to, in a word, and what is wrong with it, None where nothing is.
Found = tuple[str, str | None]
#: Tries one thing: its number, the seed of the campaign, and an empty folder.
Attempt = Callable[[int, int, Path], Found]


@dataclass(frozen=True)
class Outcome:
    """One try: what it came to, what is wrong with it, its seconds, and the peak memory of its process in MiB."""

    number: int
    came_to: str
    fault: str | None
    seconds: float
    memory: float


@dataclass(frozen=True)
class Bounds:
    """Seconds and MiB that one try may take; the memory of a process counts whole, its libraries included."""

    seconds: float = 120.0
    memory: int | None = None


class Watch:
    """Runs tries in a process of its own, which is started again after one that crashed or hung.

    The process optimises something first, so that no try is charged for what is loaded then; one that is `cold` does
    not, and can fork processes that optimise.
    """

    def __init__(self, bounds: Bounds, *, cold: bool = False) -> None:
        self.bounds, self.cold = bounds, cold
        self._notes = tempfile.NamedTemporaryFile("w+", suffix=".trace")  # noqa: SIM115 - closed with the watch
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._done = 0

    def call(self, attempt: Attempt, number: int, seed: int) -> Outcome:
        """One try, whatever becomes of it."""
        connection = self._started()
        start = time.monotonic()
        try:
            connection.send((attempt, number, seed))
            if not connection.poll(self.bounds.seconds + _GRACE):
                return self._lost(number, "hung", f"no end within {self.bounds.seconds:g} s", start)
            outcome: Outcome = connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            if self._process is not None:
                self._process.join(_TRACE_SECONDS)  # its own end says more than that it is ended
            self._stop()
            code = self._process.exitcode if self._process is not None else None
            how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
            return self._lost(number, "crashed", f"the process ended by {how}", start)
        self._done += 1
        if outcome.fault is None and outcome.seconds > self.bounds.seconds:
            return Outcome(number, "hung", f"{outcome.seconds:.1f} s", outcome.seconds, outcome.memory)
        return outcome

    def close(self) -> None:
        """Ends the process."""
        self._stop()
        self._notes.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _started(self) -> Connection:
        if self._done >= _RECYCLED:
            self._stop()
        if self._connection is None or self._process is None or not self._process.is_alive():
            context = multiprocessing.get_context("spawn")
            self._connection, theirs = context.Pipe()
            self._notes.truncate(0)
            self._process = context.Process(target=_serve, args=(theirs, self.bounds, self.cold, self._notes.name))
            self._process.start()
            theirs.close()
            self._done = 0
            self._connection.recv()  # ready; what is loaded first is no part of a try
        return self._connection

    def _lost(self, number: int, came_to: str, words: str, start: float) -> Outcome:
        if self._process is not None and self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, signal.SIGABRT)  # which writes where it stood
            self._process.join(_TRACE_SECONDS)
        self._stop()
        trace = Path(self._notes.name).read_text(errors="replace").splitlines()[:_TRACE_LINES]
        return Outcome(number, came_to, "\n".join([words, *trace]), round(time.monotonic() - start, 3), 0.0)

    def _stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.join()
        self._connection = None


def _serve(connection: Connection, bounds: Bounds, cold: bool, notes: str) -> None:
    """Works until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that watches
    os.environ["EQSAT_COST_TABLE"] = ":memory:"
    with Path(notes).open("w") as trace, Path(os.devnull).open("w") as nothing:
        faulthandler.enable(trace)
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        _load(cold)
        connection.send(None)
        while True:
            try:
                attempt, number, seed = connection.recv()
            except EOFError:
                return
            connection.send(_tried(attempt, number, seed, bounds))


def _load(cold: bool) -> None:
    """Loads what every try needs."""
    import eqsat
    import eqsat.run

    if not cold:
        g = eqsat.Graph("first")
        g.output("y", eqsat.relu(g.input("x", (2, 2)) @ np.eye(2, dtype=np.float32)))
        eqsat.optimize(g, measure=False)


def _tried(attempt: Attempt, number: int, seed: int, bounds: Bounds) -> Outcome:
    forget_peak()
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="eqsat-fault-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _limit(bounds.memory)
            came_to, fault = attempt(number, seed, Path(folder))
        except MemoryError:
            came_to, fault = "memory", f"more than {bounds.memory} MiB asked for\n{traceback.format_exc(limit=-3)}"
        except Exception as error:  # noqa: BLE001 - whatever is raised is the finding
            came_to, fault = "raised", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-3)}"
        finally:
            _limit(None)
    memory = peak()
    if fault is None and bounds.memory is not None and memory > bounds.memory:
        came_to, fault = "memory", f"{memory:.0f} MiB"
    return Outcome(number, came_to, fault, round(time.monotonic() - start, 3), round(memory, 1))


def _limit(mebibytes: int | None) -> None:
    """Bounds what the process may map from now on, besides what it has mapped."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if mebibytes is None:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    else:
        resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + mebibytes * MEBIBYTE, hard))


def _status(field: str) -> int:
    """A field of the state of this process, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def forget_peak() -> None:
    """Begins the peak of memory anew; where the system does not, that of earlier tries counts too."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak() -> float:
    """The most memory in MiB that this process held since it was last forgotten, or one that it ended did."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return max(_status("VmHWM"), children) / MEBIBYTE
