"""Records that are kept line by line until all have been made, so that an interrupted run goes on where it stood."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from benchmarks.rules.mutation import Mutant

T = TypeVar("T")

#: Mutants that a process judges before another one takes its place: after thousands of proofs Z3 5.4 ran out of
#: vectors ("Overflow encountered when expanding vector") or ended the process, and answered in new ones.
AGE = 60


def journalled(
    chosen: Sequence[Mutant], judge: Callable[[Mutant], dict[str, Any]], journal: Path, jobs: int
) -> list[dict[str, Any]]:
    """What is said of each mutant, which has its text: read from a journal, or made and written there at once."""
    known = {record["text"]: record for record in _read(journal)}
    pending = [mutant for mutant in chosen if mutant.rule.text not in known]
    with journal.open("a", encoding="utf-8") as lines:
        made = _all(pending, judge, jobs)
        for record in track(made, "judging mutants", len(pending), console=Console(stderr=True)):
            known[record["text"]] = record
            lines.write(json.dumps(record, ensure_ascii=False) + "\n")
            lines.flush()
    return [known[mutant.rule.text] for mutant in chosen]


def _all(pending: Sequence[Mutant], judge: Callable[[Mutant], T], jobs: int) -> Iterator[T]:
    """All that is said: in this process for one job, else in processes that are left before Z3 fails of its own age."""
    if jobs == 1:
        yield from map(judge, pending)
        return
    for first in range(0, len(pending), AGE * jobs):
        yield from _together(pending[first : first + AGE * jobs], judge, jobs)


def _together(chosen: Sequence[Mutant], judge: Callable[[Mutant], T], jobs: int) -> Iterator[T]:
    """Mutants in new processes; where one of these ends, each that is left in one of its own."""
    left = list(chosen)
    with ProcessPoolExecutor(jobs) as pool:
        submitted = {pool.submit(judge, mutant): mutant for mutant in chosen}
        for future in as_completed(submitted):
            if isinstance(future.exception(), BrokenProcessPool):
                break
            left.remove(submitted[future])
            yield future.result()
    for mutant in left:
        with ProcessPoolExecutor(1) as alone:
            yield alone.submit(judge, mutant).result()


def _read(journal: Path) -> Iterator[dict[str, Any]]:
    if journal.exists():
        yield from map(json.loads, journal.read_text(encoding="utf-8").splitlines())
