"""Progress of a command on a terminal, and its end by Ctrl-C."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar

from eqsat.commands.output import PhaseLog, current_state
from eqsat.report.progress import PHASES, Progress
from eqsat.report.units import duration, integer, percent
from eqsat.system import interrupts
from eqsat.system.terminal import standard_error

Item = TypeVar("Item")

_STOPPING = b"\nstopping: writing the best so far; press Ctrl-C again to abort\n"


def _is_watched(console: Console) -> bool:
    return console.is_terminal and current_state().verbosity >= 0


@contextmanager
def count_bar() -> Iterator[Bar]:
    """A bar on standard error for work that can be counted; nothing where no one watches, but for --verbose."""
    err = standard_error()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with _LoggedBar(*columns, *times, console=err, transient=True, disable=not _is_watched(err)) as bar:
        yield bar
    bar.phases.end()


class _LoggedBar(Bar):
    """A bar whose descriptions are phases to the log of a command."""

    def __init__(self, *columns: ProgressColumn, console: Console, transient: bool, disable: bool) -> None:
        super().__init__(*columns, console=console, transient=transient, disable=disable)
        self.phases = PhaseLog(lambda line: console.print(line, soft_wrap=True))

    def add_task(self, description: str, *given: Any, **more: Any) -> TaskID:
        """Show another task."""
        self.phases.tell(description)
        return super().add_task(description, *given, **more)

    def update(self, task_id: TaskID, *, description: str | None = None, **more: Any) -> None:
        """Show how far a task is."""
        if description is not None:
            self.phases.tell(description)
        super().update(task_id, description=description, **more)


@contextmanager
def stages() -> Iterator[Callable[[str, int, int], None]]:
    """A function that is told of each stage how much of it is done, and shows a bar for each."""
    with count_bar() as bar:
        tasks: dict[str, TaskID] = {}

        def follow(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done, total=total)

        yield follow


def followed(items: Iterable[Item], stage: str, total: int) -> Iterator[Item]:
    """Items as they come, with a bar of how many of them have."""
    with stages() as follow:
        follow(stage, 0, total)
        for number, item in enumerate(items, start=1):
            follow(stage, number, total)
            yield item


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[Progress], None]]:
    """A bar that follows an optimisation: its phase, e-nodes, best cost and gap; nothing where no one watches.

    With --verbose, phases are told as they end.
    """
    bar = Bar(
        SpinnerColumn(),
        TextColumn("{task.description:<8}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[state]}", markup=False),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not _is_watched(console),
    )
    log = PhaseLog(lambda line: console.print(line, soft_wrap=True))
    with bar:
        task = bar.add_task(PHASES[0], total=len(PHASES), state="")
        known = Progress(PHASES[0])
        begun: set[str] = set()

        def follow(progress: Progress) -> None:
            nonlocal known
            known = _joined(known, progress)
            begun.add(known.phase)
            log.tell(known.phase, "" if known == Progress(known.phase, nodes=known.nodes) else describe(known))
            bar.update(task, description=known.phase, completed=len(begun) - 1, state=describe(known))

        yield follow
        log.end()


def _joined(known: Progress, news: Progress) -> Progress:
    """The news, with what they leave out as it was known before."""
    fresh = news.best is not None
    return Progress(
        news.phase,
        nodes=news.nodes or known.nodes,
        best=news.best if fresh else known.best,
        bound=news.bound if fresh else known.bound,
        detail=news.detail,
    )


def describe(progress: Progress) -> str:
    """The progress at a moment in one line.

    >>> describe(Progress("extract", nodes=1840, best=1.6e-3, bound=1.2e-3))
    '1 840 e-nodes  best 1.6 ms  gap 25 %'
    """
    parts = [f"{integer(progress.nodes)} e-nodes"] if progress.nodes else []
    if progress.best is not None:
        parts.append(f"best {duration(progress.best)}")
    if progress.gap is not None:
        parts.append(f"gap {percent(progress.gap)}")
    if progress.detail:
        parts.append(progress.detail)
    return "  ".join(parts)


class Begun:
    """Tells if a run has read its model, by its progress; until then nothing is lost if it ends at once."""

    def __init__(self) -> None:
        self._is_so = False

    def __call__(self) -> bool:
        """True once the model is read."""
        return self._is_so

    def following(self, follow: Callable[[Progress], None]) -> Callable[[Progress], None]:
        """A follower of the progress of a run that also notices when its model is read."""

        def noticing(progress: Progress) -> None:
            self._is_so = self._is_so or progress.phase != PHASES[0]
            follow(progress)

        return noticing


@contextmanager
def interruptible(begun: Callable[[], bool] | None = None) -> Iterator[Callable[[], bool]]:
    """Turns the first Ctrl-C into a request that the work ends early, and says so; the second is KeyboardInterrupt.

    Yield a function that tells whether the request was made. Until `begun` says so, the first is KeyboardInterrupt.
    """
    with interrupts.interruptible(_say_stopping, begun) as asked:
        yield asked


def _say_stopping() -> None:
    # A handler may run in the middle of a write to sys.stderr, so it writes past it.
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _STOPPING)
