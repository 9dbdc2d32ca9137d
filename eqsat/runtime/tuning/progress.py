"""The state of a search while it runs, and a bar that shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.system.terminal import standard_error


@dataclass(frozen=True)
class TuningProgress:
    """Candidates that were tried so far, those of them that were invalid, and the fastest one with its seconds.

    `known` counts the candidates that were proposed so far, tried or not; `left` are the seconds to the end of the
    time budget.
    """

    tried: int
    failed: int
    known: int
    best: TuningCandidate | None
    seconds: float | None
    left: float = math.inf


def describe_progress(progress: TuningProgress) -> str:
    """The progress at a moment in one line.

    >>> describe_progress(TuningProgress(12, 3, 20, TuningCandidate({"tile": 4}), 1.25e-5, left=61.0))
    '12 of 20 tried, 3 invalid, best 12.5 µs, 61 s left'
    """
    parts = [f"{progress.tried} of {progress.known} tried"]
    parts += [f"{progress.failed} invalid"] if progress.failed else []
    parts += [] if progress.seconds is None else [f"best {1e6 * progress.seconds:.1f} µs"]
    parts += [f"{progress.left:.0f} s left"] if math.isfinite(progress.left) else []
    return ", ".join(parts)


@contextmanager
def tuning_bar() -> Iterator[Callable[[TuningProgress], None]]:
    """A bar on standard error that follows a search; nothing where no one watches.

    It is drawn when it is told of progress and at no other time: a thread that draws it would take part in what is
    measured.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = standard_error()
    columns = (TextColumn("tune"), BarColumn(bar_width=24), TextColumn("{task.fields[state]}", markup=False))
    watched = console.is_terminal
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, auto_refresh=False, disable=not watched
    ) as bar:
        task = bar.add_task("tune", total=None, state="")

        def follow(progress: TuningProgress) -> None:
            bar.update(task, completed=progress.tried, total=progress.known, state=describe_progress(progress))
            bar.refresh()

        yield follow
