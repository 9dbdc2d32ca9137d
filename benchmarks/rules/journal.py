"""Records that are kept line by line until all have been made, so that an interrupted run goes on where it stood."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import track

from benchmarks.rules.mutation import Mutant

T = TypeVar("T")


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
    with ProcessPoolExecutor(jobs) if jobs > 1 else nullcontext() as pool:
        if pool is None:
            yield from map(judge, pending)
        else:
            yield from (f.result() for f in as_completed([pool.submit(judge, mutant) for mutant in pending]))


def _read(journal: Path) -> Iterator[dict[str, Any]]:
    if journal.exists():
        yield from map(json.loads, journal.read_text(encoding="utf-8").splitlines())
