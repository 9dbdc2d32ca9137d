"""The two steps of a row, each in a process of its own: models made ready, then all timed in one interleaved run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from benchmarks.precision.contenders import (
    HINTS,
    OURS,
    QUANTISERS,
    Program,
    errors_of,
    optimise,
    own_float32,
    path_of,
    quantise,
    ready,
    weight_bytes,
)
from benchmarks.precision.inputs import Subject, subject_of

if TYPE_CHECKING:
    from eqsat.runtime.measure import Timings

#: Seconds of the interleaved run, and of the one that tells which quantiser is faster.
SECONDS, FIRST_SECONDS = 40.0, 8.0
#: Rounds of the first, and the seconds of a model below which it is run in several sessions, of so many rounds each,
#: whose medians count: two sessions of one model differ by more than their rounds tell, by 1 to 7 % at a millisecond.
ROUNDS, SHORT, SESSIONS = 60, 5e-3, 60
#: The largest error that eqsat is given as a budget, where a quantiser loses more, and the one where none is faster.
MOST, WITHOUT_PEER = 0.5, 0.05

Row = dict[str, Any]


def quantised(name: str, folder: Path) -> None:
    """Make the files of a model that do not depend on eqsat: as it is, and by ONNX Runtime's quantisers.

    The budget of eqsat is the error of the faster of the two, of those not slower than float32; of trained models it is
    told none, so that answers count.
    """
    subject = subject_of(name)
    if subject is None or (folder / "notes.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(subject.model, folder / "model.onnx", save_as_external_data=True, location="model.data")
    notes: Row = {}
    for kind in QUANTISERS:
        _told(notes, kind, partial(quantise, kind, folder, subject.calibration))
    notes |= _budget(subject, folder)
    notes["budget"] = None if subject.task is not None else notes["budget"]
    (folder / "notes.json").write_text(json.dumps(notes), encoding="utf-8")


def optimised(name: str, folder: Path, kind: str) -> None:
    """Make the files of one of eqsat's columns."""
    subject = subject_of(name)
    if subject is None or path_of(kind, folder).with_suffix(".json").exists():
        return
    notes: Row = {}
    _told(notes, kind, partial(optimise, kind, folder, subject.calibration, _read(folder / "notes.json")["budget"]))
    if notes:
        path_of(kind, folder).with_suffix(".json").write_text(json.dumps({"said": notes[kind]}), encoding="utf-8")


def measured(name: str, folder: Path) -> Row:
    """The figures of a model: every contender's time over float32 on ONNX Runtime, and its errors on data held back."""
    subject = subject_of(name)
    if subject is None:
        return {"model": name, "failed": "its inputs cannot be made here"}
    notes = _read(folder / "notes.json")
    row: Row = {"model": name, "peer": notes["peer"], "budget": notes["budget"]}

    def said(kind: str) -> Row:
        return _read(path_of(kind, folder).with_suffix(".json"))

    programs: dict[str, Program] = {}
    for kind in ("float32", *QUANTISERS, *HINTS, *OURS):
        try:
            programs[kind] = ready(kind, folder)
            programs[kind].run(subject.batches[0])
        except Exception as error:  # noqa: BLE001 - a contender that fails is a cell of the table
            programs.pop(kind, None)
            row[kind] = {"said": notes.get(kind) or said(kind).get("said") or _first_line(error)}
    held = subject.held_back
    expected = [programs["float32"].run(batch) for batch in held]
    timings = _timed(programs, held[0], folder)
    before = weight_bytes(folder / "model.onnx")
    for kind, program in programs.items():
        row[kind] = said(kind) if kind in OURS else {}
        if kind != "float32":
            errors = errors_of(program, expected, held)
            row[kind] |= {"ratio": timings.ratio(kind, "float32"), "bound": timings.ratio_bound(kind, "float32")}
            row[kind] |= {"error": errors["worst"], "errors": errors}
        if subject.task is not None:
            places = range(subject.count, len(subject.batches))
            row[kind]["right"] = subject.task.right(places, [program.run(batch) for batch in held])
        if kind in OURS:
            row[kind]["size"] = row[kind].pop("bytes") / before
            for against, other in (("against", notes["peer"]), ("own", own_float32(kind))):
                if other in programs:
                    row[kind][against] = {
                        "ratio": timings.ratio(kind, other),
                        "bound": timings.ratio_bound(kind, other),
                    }
    return row | {"seconds": timings.median("float32"), "rounds": timings.rounds}


def _timed(programs: Mapping[str, Program], batch: Any, folder: Path) -> Timings:
    """The times of programs in one interleaved run; those of short ones in sessions made anew for each part of it."""
    from eqsat.runtime.measure import Timings, interleaved

    def timed(made: Mapping[str, Program], rounds: int) -> Timings:
        calls = {kind: _bound(program, batch) for kind, program in made.items()}
        return interleaved(calls, rounds, time_limit=SECONDS, clock="process")

    timings = timed(programs, ROUNDS)
    if timings.median("float32") >= SHORT:
        return timings
    parts = [timed({kind: ready(kind, folder) for kind in programs}, ROUNDS) for _ in range(SESSIONS)]
    return Timings({kind: tuple(part.median(kind) for part in parts) for kind in programs}, timings.clock)


def _budget(subject: Subject, folder: Path) -> Row:
    """The error that eqsat is given, and the quantiser whose it is."""
    from eqsat.runtime.measure import interleaved

    programs: dict[str, Program] = {"float32": ready("float32", folder)}
    for kind in QUANTISERS:
        try:
            programs[kind] = ready(kind, folder)
            programs[kind].run(subject.batches[0])
        except Exception:  # noqa: BLE001 - a quantiser that fails is no peer
            programs.pop(kind, None)
    held = subject.held_back
    expected = [programs["float32"].run(batch) for batch in held]
    calls = {k: _bound(p, held[0]) for k, p in programs.items()}
    timings = interleaved(calls, 20, time_limit=FIRST_SECONDS, clock="process")
    ratios = {k: timings.ratio(k, "float32") for k in programs if k != "float32"}
    best = min((k for k in ratios if ratios[k] < 1), key=lambda k: ratios[k], default=None)
    if best is None:
        return {"peer": None, "budget": WITHOUT_PEER}
    return {"peer": best, "budget": min(errors_of(programs[best], expected, held)["worst"], MOST)}


def _told(notes: Row, kind: str, make: Callable[[], None]) -> None:
    """Make the files of a contender; what it fails by is noted."""
    try:
        make()
    except Exception as error:  # noqa: BLE001 - a contender that fails is a cell of the table
        notes[kind] = _first_line(error)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _bound(program: Program, batch: Any) -> Callable[[], object]:
    return lambda: program.run(batch)


def _read(path: Path) -> Row:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
