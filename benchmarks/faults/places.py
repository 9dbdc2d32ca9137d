"""Where files go: a full disk, a home that can only be read, no home at all."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.faults.commands import (
    EQSAT,
    can_mount,
    environment,
    is_broken,
    is_one_error,
    on_read_only,
    on_small_disk,
    run,
    small_files,
    words,
    write_model,
)
from benchmarks.faults.watch import Bounds, Found

BOUNDS = Bounds(seconds=240.0)
_OLD = b"what was there before"
_OPTIMISE = ("optimize", "model.onnx", "-o", "out.onnx", "--json", "report.json", "--no-measure")
#: The command line of a user whom the system does not know: no permission is enough to take root's place, whose
#: Python others may not be able to run.
_UNKNOWN = """
import pwd, sys
def unknown(who):
    raise KeyError(who)
pwd.getpwuid = pwd.getpwnam = unknown
from eqsat.cli import run
sys.exit(run(sys.argv[1:]))
"""

Case = Callable[[random.Random, Path], Found]


def disk(number: int, seed: int, folder: Path) -> Found:
    """A disk that has room for some of what is written; how much is drawn."""
    cases = (_target_on_full_disk, _table_on_full_disk, _cache_on_full_disk)
    return cases[number % len(cases)](random.Random(f"{seed} {number}"), folder)


def _on_disk(
    kibibytes: int, place: Path, arguments: Sequence[str], **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [*EQSAT, *arguments]
    if can_mount():
        return run(on_small_disk(kibibytes, place, command), place.parent, environment(**variables))
    return run(command, place.parent, environment(**variables), preexec_fn=small_files(max(kibibytes - 24, 1) * 1024))


def _target_on_full_disk(rng: random.Random, folder: Path) -> Found:
    """The old target stays whole, or the new one is; nothing else is left behind."""
    place = folder / "disk"
    place.mkdir()
    write_model(folder / "model.onnx")
    (place / "out.onnx").write_bytes(_OLD)
    arguments = ("optimize", "model.onnx", "-o", "disk/out.onnx", "--json", "disk/report.json", "--no-measure")
    done = _on_disk(rng.choice((4, 8, 12, 16, 20, 24, 28, 32, 64)), place, arguments, EQSAT_COST_TABLE=":memory:")
    names = {p.name for p in place.iterdir()}
    after = (place / "out.onnx").read_bytes()
    if done.returncode == 0:
        return ("written", None) if names == {"out.onnx", "report.json"} and _reads(after) else ("torn", words(done))
    if not is_one_error(done):
        return "unclear", words(done)
    if after != _OLD and not _reads(after):
        return "torn", f"the target holds {len(after)} bytes; {words(done)}"
    if names - {"out.onnx", "report.json"}:
        return "left behind", f"{sorted(names)}; {words(done)}"
    return ("old file kept" if after == _OLD else "no room for the report"), None


def _reads(data: bytes) -> bool:
    import onnx

    onnx.checker.check_model(onnx.ModelProto.FromString(data), full_check=True)
    return True


def _table_on_full_disk(rng: random.Random, folder: Path) -> Found:
    """Entries that were there stay; a table nobody asked for by name is done without."""
    home = folder / "home"
    table = home / ".cache" / "eqsat" / "costs.sqlite3"
    table.parent.mkdir(parents=True)
    write_model(folder / "model.onnx")
    entries = rng.choice((0, 0, 30, 300))
    if entries:
        _fill(table, entries)
    used = sum(p.stat().st_size for p in home.rglob("*") if p.is_file()) // 1024
    room = used + rng.choice((8, 16, 24, 36, 60, 120))
    arguments = rng.choice((_OPTIMISE, ("measure", "--no-wholes", "model.onnx")))
    done = _on_disk(room, home, arguments, HOME=str(home))
    if is_broken(done) or done.returncode not in (0, 2):
        return "unclear", words(done)
    if arguments is _OPTIMISE and done.returncode:
        return "not optimised", words(done)
    if table.exists() and entries:
        connection = sqlite3.connect(table)
        state = connection.execute("PRAGMA integrity_check").fetchone()[0]
        held = connection.execute("SELECT COUNT(*) FROM entries").fetchone()[0]
        connection.close()
        if state != "ok" or held < entries:
            return "lost", f"{held} of {entries} entries, {state}; {words(done)}"
    elif entries:
        return "lost", f"the table is gone; {words(done)}"
    return ("done" if done.returncode == 0 else "refused"), None


def _fill(table: Path, entries: int) -> None:
    from eqsat.costs.kernels.key import OpKey
    from eqsat.costs.table.entry import Entry
    from eqsat.costs.table.environment import Environment
    from eqsat.costs.table.table import CostTable

    here = Environment("onnxruntime-cpu", "a processor", "onnxruntime 1", 1)
    with CostTable(table, shipped=False) as held:
        for n in range(entries):
            held.put(here, OpKey.parse(f"relu {{}} float32[{n + 1}]"), Entry(1e-6, 1e-6, 1e-6, 1))


_STORE = """
import sys, warnings
from pathlib import Path
from eqsat.runtime.cuda.compiler.store import Store
warnings.simplefilter("ignore")
store = Store(Path(sys.argv[1]))
kept = [i for i in range(12) if not store.put(f"k{i}", bytes([i]) * 4000) and store.get(f"k{i}") is not None]
wrong = [i for i in range(12) if store.get(f"k{i}") not in (None, bytes([i]) * 4000)]
left = [p.name for p in Path(sys.argv[1]).glob(".*")]
print(len(kept), wrong, left)
"""


def _cache_on_full_disk(rng: random.Random, folder: Path) -> Found:
    """Entries of the cache are whole or missing, and no part of one stays behind."""
    place = folder / "kernels"
    place.mkdir()
    command = [sys.executable, "-c", _STORE, place]
    size = rng.choice((4, 12, 24, 40, 100))
    if can_mount():
        done = run(on_small_disk(size, place, command), folder, environment())
    else:
        done = run(command, folder, environment(), preexec_fn=small_files(rng.choice((100, 2000, 5000))))
    if done.returncode or not done.stdout.endswith("[] []\n"):
        return "torn", done.stdout + words(done)
    return "entries whole or missing", None


def read_only(number: int, _seed: int, folder: Path) -> Found:
    """A home that nobody can write to, root neither: commands work, with a warning, and keep nothing."""
    home = folder / "home"
    table = home / ".cache" / "eqsat" / "costs.sqlite3"
    home.mkdir()
    write_model(folder / "model.onnx")
    if number & 1:
        table.parent.mkdir(parents=True)
        _fill(table, 30)
    arguments = (_OPTIMISE, ("measure", "--no-wholes", "model.onnx"), ("costs", "show"))[number // 2 % 3]
    command = [*EQSAT, *arguments]
    if number // 6 % 2 == 0 and can_mount():
        done = run(on_read_only(home, command), folder, environment(HOME=str(home)))
    else:  # a file in the place of the folder, in which nobody can make one
        (folder / "file").write_text("")
        done = run(command, folder, environment(HOME=str(folder / "file")))
    if done.returncode or is_broken(done):
        return "failed", words(done)
    if "kept in memory" not in done.stderr:
        return "silent", f"no warning; {words(done)}"
    return "done in memory", None


#: Ways to have no home: what HOME and XDG_CACHE_HOME say, and whether the user is one that the system knows.
NO_HOMES: tuple[tuple[dict[str, str], bool], ...] = (
    ({}, True),
    ({}, False),
    ({"HOME": "/nonexistent"}, False),
    ({"HOME": ""}, False),
    ({"HOME": "relative/home"}, False),
    ({"HOME": "/dev/null"}, True),
    ({"HOME": "/proc"}, True),
    ({"HOME": "/nonexistent", "XDG_CACHE_HOME": "/dev/null"}, True),
    ({"XDG_CACHE_HOME": ""}, False),
    ({"XDG_CACHE_HOME": "relative"}, False),
)


def no_home(number: int, _seed: int, folder: Path) -> Found:
    """No home: commands work all the same, and write nothing but what they were asked for."""
    variables, known = NO_HOMES[number % len(NO_HOMES)]
    write_model(folder / "model.onnx")
    arguments = (_OPTIMISE, ("measure", "--no-wholes", "model.onnx"))[number // len(NO_HOMES) % 2]
    if known and "HOME" not in variables:
        # The home of a user whom the system knows is looked up there; it must not be ours.
        variables = {**variables, "XDG_CACHE_HOME": str(folder / "cache")}
    command = EQSAT if known else (sys.executable, "-c", _UNKNOWN)
    done = run([*command, *arguments], folder, environment(**variables))
    if done.returncode or is_broken(done):
        return "failed", f"{variables}; {words(done)}"
    made = {p.name for p in folder.iterdir()}
    if made - {"model.onnx", "out.onnx", "report.json", "cache"}:
        return "strewn", f"{variables}: {sorted(made)}"
    return "done", None
