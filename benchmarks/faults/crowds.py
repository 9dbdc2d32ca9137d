"""Several processes on one cost table and on one cache of kernels, some of them killed."""

from __future__ import annotations

import json
import multiprocessing
import random
import sys
import time
import warnings
from multiprocessing.connection import Connection, wait
from pathlib import Path

from benchmarks.faults.commands import EQSAT, ROOT, environment, run, words, write_model
from benchmarks.faults.watch import Bounds, Found

BOUNDS = Bounds(seconds=240.0)
_SPAWN = multiprocessing.get_context("spawn")
_TABLE_KILLS, _CACHE_KILLS = 20, 6
_WRITERS, _KEYS, _BYTES, _LIMIT = 4, 20, 4000, 60_000


def attempt(number: int, seed: int, folder: Path) -> Found:
    """One crowd: on a table, on a cache, or of whole commands on one table."""
    kinds = (table, cache, measures)
    return kinds[number % len(kinds)](number, seed, folder)


def table(number: int, seed: int, folder: Path) -> Found:
    """Three writers of one table, killed at random, and two readers: nothing acknowledged is lost or torn."""
    script = ROOT / "tests" / "backend" / "table_stress.py"
    command = [sys.executable, script, folder / "costs.sqlite3", _TABLE_KILLS, seed * 1000 + number]
    done = run(command, ROOT, environment())
    if done.returncode:
        return "failed", words(done)
    found = json.loads(done.stdout)
    if (found["missing"], found["torn"], found["failed"], found["integrity"]) != ([], [], [], "ok"):
        return "lost or torn", done.stdout[:2000]
    if not found["entries"] >= found["acknowledged"] > 0 or not found["reads"]:
        return "idle", done.stdout[:2000]
    return "table whole", None


def cache(number: int, seed: int, folder: Path) -> Found:
    """Writers of one cache, which drop entries as well, some killed: what is read is whole or missing."""
    rng = random.Random(f"{seed} {number}")
    place, begun = folder / "kernels", 0
    living = []
    for _ in range(_WRITERS):
        living.append(_begun(place, begun))
        begun += 1
    for _ in range(_CACHE_KILLS):
        time.sleep(rng.uniform(0, 0.15))
        process, connection = living.pop(rng.randrange(len(living)))
        process.kill()
        process.join()
        connection.close()
        living.append(_begun(place, begun))
        begun += 1
    for _, connection in living:
        connection.send("end")
    said = []
    for process, connection in living:
        said.append(connection.recv() if wait([connection], 60) else "no answer within 60 s")
        process.join(10)
        process.kill()
    wrong = [text for text in said if isinstance(text, str)]
    if wrong:
        return "failed", "; ".join(wrong)
    total = sum(p.stat().st_size for p in place.iterdir() if not p.name.startswith("."))
    if total > _LIMIT:
        return "grown", f"{total} bytes of at most {_LIMIT}"
    return ("cache whole" if sum(said) else "nothing read"), None


def _begun(place: Path, writer: int) -> tuple[multiprocessing.process.BaseProcess, Connection]:
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_write_and_read, args=(place, writer, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _write_and_read(place: Path, writer: int, connection: Connection) -> None:
    """Writes and reads what others write as well until told to end; says how often an entry was there."""
    from eqsat.runtime.cuda.compiler.store import Store

    store, found, turn = Store(place, limit=_LIMIT), 0, 0
    warnings.simplefilter("error")
    try:
        while turn < 30 or not connection.poll(0):
            key = f"k{(turn * 7 + writer) % _KEYS}"
            held = store.get(key)
            if held is not None and (len(held) != _BYTES or len(set(held)) != 1):
                raise ValueError(f"{key} is torn")
            found += held is not None
            store.put(key, bytes([writer % 256]) * _BYTES)
            turn += 1
    except (OSError, ValueError, Warning) as error:
        connection.send(f"{type(error).__name__}: {error}")
        return
    connection.send(found)


def measures(_number: int, _seed: int, folder: Path) -> Found:
    """Whole commands that measure one model into one table and optimise with it, all at once."""
    import subprocess

    write_model(folder / "model.onnx")
    variables = environment(EQSAT_COST_TABLE=str(folder / "costs.sqlite3"))
    commands = [["measure", "--no-wholes", "model.onnx"]] * 2
    commands += [["optimize", "model.onnx", "-o", f"out{i}.onnx", "--no-measure"] for i in range(2)]
    running = [
        subprocess.Popen([*EQSAT, *c], cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for c in commands
    ]
    ends = [(p.communicate(timeout=120), p.returncode) for p in running]
    failed = [f"exit code {code}: {told[1].decode()[-500:]}" for told, code in ends if code]
    if failed:
        return "failed", "; ".join(failed)
    again = run([*EQSAT, "measure", "--no-wholes", "model.onnx"], folder, variables)
    if again.returncode or "0 operators measured" not in again.stdout:
        return "lost", again.stdout + words(again)
    return "table whole", None
