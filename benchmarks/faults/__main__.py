"""Tries every kind of fault: ``python -m benchmarks.faults --jobs 2``, some hours of one core.

Each try is noted as it ends until all of them have, so that an interrupted run goes on where it stood. A random graph
that fails is made small and kept in ``tests/regressions``.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from benchmarks.faults import clocks
from benchmarks.faults.commands import ROOT, can_mount
from benchmarks.faults.kinds import KINDS, Kind
from benchmarks.faults.page import PAGE, RESULT, rewritten
from benchmarks.faults.watch import Attempt, Bounds, Outcome, Watch
from eqsat.rewrites.discovery.journal import Journal, subject_of

_NOTED = 20
#: What a try comes to that its process did not live to tell.
_ENDED = ("crashed", "hung")


@click.command()
@click.option(
    "--count", type=click.IntRange(min=1), help="Tries of each kind that is drawn; its own number if left out."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of everything that is drawn.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Tries at once.")
@click.option("--only", "kinds", type=click.Choice(list(KINDS)), multiple=True, help="A kind; may be repeated.")
@click.option("--note", default="", help="What else there is to know of the machine.")
@click.option("--page", is_flag=True, help="Rewrite the table of docs/faults.md from the results, and try nothing.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, show_default=True)
def main(count: int | None, seed: int, jobs: int, kinds: tuple[str, ...], note: str, page: bool, output: Path) -> None:
    """Tries faults on purpose and writes what came of them; fails where one shows. Other kinds' results stay."""
    if page:
        PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8"), json.loads(output.read_text(encoding="utf-8"))))
        return
    console = Console(stderr=True)
    chosen = kinds or tuple(KINDS)
    tries = {name: count if count and KINDS[name].drawn else KINDS[name].tries for name in chosen}
    console.print(f"seed {seed}: " + ", ".join(f"{n} of {name}" for name, n in tries.items()))
    failed = 0
    for name in chosen:
        with _progress(console) as bar:
            outcomes, seconds = _tried(name, tries[name], seed, jobs, bar, output)
        found = _summary(KINDS[name], outcomes, seconds, seed, jobs)
        keep = KINDS[name].kept
        if keep is not None:
            failed_ones = [o for o in outcomes if o.fault is not None][:_NOTED]
            found["kept"] = [_kept(name, keep, o, seed, console) for o in failed_ones]
        _write(output, name, found, note)
        failed += len(found["failures"])
        console.print(_shown(name, found))
    raise SystemExit(1 if failed else 0)


def _tried(name: str, tries: int, seed: int, jobs: int, bar: Progress, output: Path) -> tuple[list[Outcome], float]:
    """Every try of one kind, and the seconds they took together, what was noted before included."""
    kind = KINDS[name]
    task = bar.add_task(name, total=tries)
    subject = subject_of([name, str(seed), _sources()])
    with Journal(output.with_name(f"faults-{name.replace(' ', '-')}.jsonl"), subject) as noted:
        pending = [n for n in range(tries) if str(n) not in noted]
        bar.update(task, completed=tries - len(pending))
        for outcome in tried_outcomes(kind, pending, seed, jobs):
            noted[str(outcome.number)] = asdict(outcome)
            bar.advance(task)
            if outcome.fault is not None:
                bar.console.print(f"{name} {outcome.number}: {outcome.came_to}: {outcome.fault[:2000]}", markup=False)
        done = [Outcome(**noted[str(n)]) for n in range(tries)]
    return done, sum(o.seconds for o in done)


def tried_outcomes(kind: Kind, numbers: list[int], seed: int, jobs: int) -> Iterator[Outcome]:
    """Tries in any order, each thread with a process of its own; none is begun once the caller has gone."""
    stopped, watches = Event(), SimpleQueue[Watch]()
    for _ in range(jobs):
        watches.put(Watch(kind.bounds))

    def one(number: int) -> Outcome | None:
        if stopped.is_set():
            return None
        watch = watches.get()
        try:
            outcome = watch.call(kind.attempt, number, seed)
            if kind.alone is not None and outcome.came_to in _ENDED:
                alone = watch.call(kind.alone, number, seed)
                if alone.fault is not None:
                    return Outcome(number, f"{alone.came_to} without eqsat", None, outcome.seconds, 0.0)
            return outcome
        finally:
            watches.put(watch)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for done in as_completed([pool.submit(one, n) for n in numbers]):
                outcome = done.result()
                if outcome is not None:
                    yield outcome
        finally:
            stopped.set()
            pool.shutdown(cancel_futures=True)
            for _ in range(jobs):
                watches.get().close()


def _kept(name: str, keep: Attempt, outcome: Outcome, seed: int, console: Console) -> str:
    """Makes what failed small, in a process that has not optimised anything yet."""
    with Watch(Bounds(seconds=300.0), cold=True) as watch:
        # A function of this module would be one of __main__, which the process does not have.
        kept = watch.call(keep, outcome.number, seed)
    console.print(f"{name} {outcome.number}: {kept.came_to} {kept.fault or ''}", markup=False)
    return f"graph_{seed + outcome.number}.onnx" if kept.came_to == "kept" else kept.came_to


def _summary(kind: Kind, outcomes: list[Outcome], seconds: float, seed: int, jobs: int) -> dict[str, Any]:
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.came_to] = counts.get(outcome.came_to, 0) + 1
    failures = [o for o in outcomes if o.fault is not None]
    longest = max(outcomes, key=lambda o: o.seconds)
    largest = max(outcomes, key=lambda o: o.memory)
    return {
        "tries": len(outcomes),
        "seed": seed,
        "jobs": jobs,
        "seconds": round(seconds, 1),
        "failed": len(failures),
        "failures": [{"number": o.number, "came_to": o.came_to, "fault": o.fault} for o in failures[:_NOTED]],
        "came_to": dict(sorted(counts.items(), key=lambda c: -c[1])),
        "longest": {"seconds": longest.seconds, "number": longest.number},
        "memory": {"mebibytes": largest.memory, "number": largest.number},
        "tried": kind.tried,
        "holds": kind.holds,
    }


def _write(output: Path, name: str, found: dict[str, Any], note: str) -> None:
    document = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    kinds = document.get("kinds", {}) | {name: found | {"machine": _machine(note)}}
    document = {"kinds": {k: kinds[k] for k in KINDS if k in kinds}}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _machine(note: str) -> dict[str, Any]:
    """Where the tries were made, and by what."""
    from importlib.metadata import version

    from eqsat.costs.table.environment import cpu_model

    return {
        "day": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "note": note,
        "system": platform.platform(),
        "python": platform.python_version(),
        "root": os.geteuid() == 0,
        "mounts": can_mount(),
        "clock": clocks.mechanism(),
        "sources": _sources(),
        "versions": {p: version(p) for p in ("egglog", "onnx", "onnxruntime", "numpy", "highspy", "protobuf")},
    }


def _sources() -> str:
    """A digest of what is tried and of what tries it."""
    paths = sorted([*(ROOT / "eqsat").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")])
    return subject_of(p.read_text(encoding="utf-8") for p in paths)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)


def _shown(name: str, found: dict[str, Any]) -> Table:
    shown = Table(title=f"{name}: {found['tries']} tried, {found['failed']} failed")
    shown.add_column("came to")
    shown.add_column("tries", justify="right")
    for came_to, count in found["came_to"].items():
        shown.add_row(came_to, str(count))
    shown.add_row("longest, s", f"{found['longest']['seconds']:.1f}")
    shown.add_row("most memory, MiB", f"{found['memory']['mebibytes']:.0f}")
    return shown


if __name__ == "__main__":
    main()
