"""The kinds of fault that are tried: how often, by what, and what must hold."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.faults import clocks, crowds, files, graphs, hostile_paths, hostile_sizes, kills, places
from benchmarks.faults.watch import Attempt, Bounds
from benchmarks.onnx_models import shrinking, trying


@dataclass(frozen=True)
class Kind:
    """One kind of fault: how many tries, one try, its bounds, and in words what is tried and what must hold.

    `test` is the file of the ordinary suite that tries some as well; `drawn` says that any number can be tried. `alone`
    tries again what ended the process, without eqsat: what fails so is a fault of others. `kept` makes what failed
    small, and keeps it.
    """

    tries: int
    attempt: Attempt
    bounds: Bounds
    tried: str
    holds: str
    test: str
    drawn: bool = True
    alone: Attempt | None = None
    kept: Attempt | None = None


KINDS: dict[str, Kind] = {
    "graphs": Kind(
        10_000,
        graphs.attempt,
        Bounds(seconds=120.0),
        "random graphs, under random costs for three of four, optimised",
        "every output is the same at several sizes, on NumPy in float64 and its own width, and on ONNX Runtime; types, "
        "names and bounds hold; a graph that fails is made small and kept in `tests/regressions`",
        "tests/property/run/test_optimize_random.py",
        kept=graphs.kept,
    ),
    "models": Kind(
        20_000,
        trying.attempt,
        trying.BOUNDS,
        "random ONNX models written as messages, of every opset that ONNX Runtime runs, half of them under random "
        "costs, some by the command line or written at another opset",
        "what ONNX Runtime runs is read, optimised and written, and the result runs at every size at which the "
        "original did and gives the same: integers exactly, floats within what rounding of the original explains",
        "tests/backend/run/test_random_models.py",
        alone=trying.alone,
        kept=shrinking.kept,
    ),
    "files": Kind(
        6000,
        files.attempt,
        files.BOUNDS,
        "ONNX files with one to four bytes, fields or statements changed, read, and optimised where they read",
        "a result that reads again, or one error of eqsat; no crash, none over 10 s, no process over 1 GB",
        "tests/property/language/test_onnx_fuzz.py",
    ),
    "paths": Kind(
        len(hostile_paths.NAMES),
        hostile_paths.attempt,
        hostile_paths.BOUNDS,
        "absolute paths, `..`, links, pipes, devices, NUL, line ends, long names as the place of data or of a model",
        "nothing outside the folder of the model is read, nothing is waited for; as for files",
        "tests/backend/benchmarks/test_faults_hostile.py",
        drawn=False,
    ),
    "sizes": Kind(
        len(hostile_sizes.NAMES),
        hostile_sizes.attempt,
        hostile_sizes.BOUNDS,
        "4 TB declared in 200 bytes, overflowing dims, operators with giant results, nests, functions that multiply, "
        "a million nodes",
        "as for files",
        "tests/backend/benchmarks/test_faults_hostile.py",
        drawn=False,
    ),
    "kills": Kind(
        40,
        kills.attempt,
        kills.BOUNDS,
        "`eqsat optimize`, `measure` and `rules generate` killed at random moments, some as they write",
        "a target is the old file or the new one, whole; tables pass SQLite's check and lose no entry; the same "
        "command then goes on where it stood",
        "tests/backend/benchmarks/test_faults_processes.py",
    ),
    "crowds": Kind(
        18,
        crowds.attempt,
        crowds.BOUNDS,
        "several processes on one cost table and on one cache of kernels, some killed; whole commands on one table",
        "nothing acknowledged is missing, nothing is torn, no process fails, the cache keeps its limit",
        "tests/backend/benchmarks/test_faults_processes.py",
    ),
    "disk": Kind(
        30,
        places.disk,
        places.BOUNDS,
        "a file system of a few kB, full while a model, a report, a table or a kernel is written",
        "the old file or the new one, whole; nothing left behind; no entry lost; one error that says so, none where "
        "the file was not asked for",
        "tests/backend/benchmarks/test_faults_places.py",
    ),
    "read-only home": Kind(
        12,
        places.read_only,
        places.BOUNDS,
        "a home on a file system that is mounted to be read only, or a file in its place",
        "commands work, and warn that costs are kept in memory",
        "tests/backend/benchmarks/test_faults_places.py",
        drawn=False,
    ),
    "no home": Kind(
        2 * len(places.NO_HOMES),
        places.no_home,
        places.BOUNDS,
        "`HOME` and `XDG_CACHE_HOME` unset, empty, relative, missing or a device; a user that the system does not know",
        "commands work, and make no file but those asked for",
        "tests/backend/benchmarks/test_faults_places.py",
        drawn=False,
    ),
    "clocks": Kind(
        12,
        clocks.attempt,
        clocks.BOUNDS,
        "the clock an hour to decades back, or slow, between two commands and in one; cached files of the future",
        "entries stay known, limits of time end a run, the cache keeps its limit and what was just put",
        "tests/backend/benchmarks/test_faults_places.py",
    ),
}
