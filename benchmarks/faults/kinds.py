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
        "random graphs are optimised, three of four under random costs",
        "every output is the same at several sizes, on NumPy in float64 and at its own precision, and on ONNX "
        "Runtime; types, names and bounds hold; a graph that fails is minimised and kept in `tests/regressions`",
        "tests/property/run/test_optimize_random.py",
        kept=graphs.kept,
    ),
    "models": Kind(
        20_000,
        trying.attempt,
        trying.BOUNDS,
        "random ONNX models, written as messages, of every opset that ONNX Runtime runs, are optimised, half of them "
        "under random costs, some by the command line or with another opset for the output",
        "every model that ONNX Runtime runs is read, optimised and written; the result runs at every size at which "
        "the original runs and gives the same values: integers exactly, floats within the rounding errors of the "
        "original",
        "tests/backend/run/test_random_models.py",
        alone=trying.alone,
        kept=shrinking.kept,
    ),
    "files": Kind(
        6000,
        files.attempt,
        files.BOUNDS,
        "ONNX files with one to four bytes, fields or statements changed are read, and optimised if they can be read",
        "a result that can be read again, or one error of eqsat; no crash, no try over 10 s, no process over 1 GB",
        "tests/property/language/test_onnx_fuzz.py",
    ),
    "paths": Kind(
        len(hostile_paths.NAMES),
        hostile_paths.attempt,
        hostile_paths.BOUNDS,
        "absolute paths, `..`, links, pipes, devices, NUL, line ends and long names as paths of data or of a model",
        "no file outside the folder of the model is read, and no read blocks; otherwise as for files",
        "tests/backend/benchmarks/test_faults_hostile.py",
        drawn=False,
    ),
    "sizes": Kind(
        len(hostile_sizes.NAMES),
        hostile_sizes.attempt,
        hostile_sizes.BOUNDS,
        "4 TB declared in 200 bytes, overflowing dims, operators with giant results, deep nesting, functions that "
        "multiply, a million nodes",
        "as for files",
        "tests/backend/benchmarks/test_faults_hostile.py",
        drawn=False,
    ),
    "kills": Kind(
        40,
        kills.attempt,
        kills.BOUNDS,
        "`eqsat optimize`, `measure` and `rules generate` are killed at random moments, some while they write",
        "an output is the complete old file or the complete new one; tables pass SQLite's check and lose no entry; "
        "the same command then continues where it stopped",
        "tests/backend/benchmarks/test_faults_processes.py",
    ),
    "crowds": Kind(
        18,
        crowds.attempt,
        crowds.BOUNDS,
        "several processes use one cost table and one cache of kernels, some are killed; complete commands use one "
        "table",
        "no acknowledged entry is missing, no entry is incomplete, no process fails, the cache stays within its limit",
        "tests/backend/benchmarks/test_faults_processes.py",
    ),
    "disk": Kind(
        30,
        places.disk,
        places.BOUNDS,
        "a file system of a few kB is full while a model, a report, a table or a kernel is written",
        "the complete old file or the complete new one; no temporary files remain; no entry is lost; one error that "
        "gives the cause, and none if the user did not request the file",
        "tests/backend/benchmarks/test_faults_places.py",
    ),
    "read-only home": Kind(
        12,
        places.read_only,
        places.BOUNDS,
        "a home on a read-only file system, or a file in its place",
        "commands work, and warn that costs are kept in memory",
        "tests/backend/benchmarks/test_faults_places.py",
        drawn=False,
    ),
    "no home": Kind(
        2 * len(places.NO_HOMES),
        places.no_home,
        places.BOUNDS,
        "`HOME` and `XDG_CACHE_HOME` unset, empty, relative, missing or a device; a user that the system does not know",
        "commands work, and create no file but those requested",
        "tests/backend/benchmarks/test_faults_places.py",
        drawn=False,
    ),
    "clocks": Kind(
        12,
        clocks.attempt,
        clocks.BOUNDS,
        "the clock is set back by an hour to decades, or runs slowly, between two commands and within one; cached "
        "files with times in the future",
        "entries stay valid, time limits end a run, the cache stays within its limit and keeps the newest entries",
        "tests/backend/benchmarks/test_faults_places.py",
    ),
}
