"""Parts optimised one after another, or by an executor, whatever becomes of its workers."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field

from eqsat.steps.failures import is_for_the_caller, released, told
from eqsat.steps.parts.tasks import MakeTask, PartOutcome, PartTask, Work
from eqsat.system.deadline import Deadline

#: How often a part is tried.
TRIES = 2
#: A worker may be late by this factor, and by so many seconds, in which processes start.
_LATE, _STARTING = 2.0, 20.0
#: Seconds between two looks at the clock and at what the caller asks for.
_TICK = 0.2


@dataclass
class Attempted:
    """A part that was tried: its outcome, None where it stays, how often it was tried, and why it stays.

    `before` is why an earlier try came to nothing.
    """

    outcome: PartOutcome | None = None
    tries: int = 0
    why: str = ""
    before: str = ""


@dataclass
class PartsInTurn:
    """Parts optimised in this process, each in an equal share of the time that is left."""

    work: Work
    deadline: Deadline

    def attempts(self, tasks: Sequence[MakeTask], follow: Callable[[int], None]) -> list[Attempted]:
        """The outcome of each task; `follow` is told how many are done."""
        found: list[Attempted] = []
        for number, task in enumerate(tasks):
            follow(number)
            one = Attempted()
            found.append(one)
            if self.deadline.over:
                one.why = self.deadline.reason
                continue
            one.tries = 1
            left = len(tasks) - (0 if self.deadline.counts_steps else number)
            try:
                one.outcome = self.work(task().within(self.deadline.left / left))
            except Exception as error:
                if is_for_the_caller(error, False):
                    raise
                one.why = told(released(error))
        return found


@dataclass
class PartsAtOnce:
    """Parts optimised by an executor: one that crashes or hangs its worker is tried again, by itself, and else stays.

    An executor that breaks, or all of whose workers hang, gives way to processes of this machine, of which `warnings`
    tell; those are ended with the work. A worker that takes longer than `late` times its time, and `starting` seconds,
    hangs.
    """

    work: Work
    deadline: Deadline
    executor: Executor | int
    late: float = _LATE
    starting: float = _STARTING
    warnings: list[str] = field(default_factory=list)
    _own: _Processes | None = None
    _running: dict[Future[PartOutcome], tuple[int, float]] = field(default_factory=dict)
    _pending: deque[int] = field(default_factory=deque)
    _suspects: deque[int] = field(default_factory=deque)
    _is_alone: bool = False
    _lost: int = 0

    @property
    def workers(self) -> int:
        """The number of parts at once: as many as the executor says, else as this machine has cores."""
        if isinstance(self.executor, int):
            return self.executor
        return int(getattr(self.executor, "_max_workers", 0)) or os.cpu_count() or 1

    def attempts(self, tasks: Sequence[MakeTask], follow: Callable[[int], None]) -> list[Attempted]:
        """The outcome of each task; `follow` is told how many are done."""
        found = [Attempted() for _ in tasks]
        gc.collect()  # a thread of the executor may not drop e-graphs of this one
        self._pending.extend(range(len(tasks)))
        try:
            while (self._pending or self._suspects or self._running) and not self.deadline.over:
                while (number := self._next()) is not None:
                    left = len(self._pending) + len(self._suspects) + len(self._running) + 1
                    # Steps are counted where they are taken: each part has its share of all of them.
                    share = 1 / len(tasks) if self.deadline.counts_steps else min(1.0, self.workers / left)
                    self._start(number, tasks[number]().within(share * self.deadline.left), found[number])
                done, _ = wait(self._running, timeout=_TICK, return_when=FIRST_COMPLETED)
                self._end(done, found)
                self._end_hanging(found)
                follow(sum(one.outcome is not None or bool(one.why) for one in found))
        finally:
            for future in self._running:
                future.cancel()
            if self._own is not None:
                self._own.end()
        for one in found:
            if one.outcome is None and not one.why:
                one.why = self.deadline.reason
        return found

    def _next(self) -> int | None:
        """The next part to be started, if one is: a part that may have ended a process has no company."""
        if self._is_alone and self._running:
            return None
        self._is_alone = bool(self._suspects)
        if self._suspects:
            return None if self._running else self._suspects.popleft()
        return self._pending.popleft() if self._pending and len(self._running) < self.workers else None

    def _start(self, number: int, task: PartTask, one: Attempted) -> None:
        one.tries += 1
        one.before, one.why = one.why, ""
        end = time.monotonic() + self.late * task.seconds + self.starting
        try:
            future = self._pool().submit(self.work, task)
        except RuntimeError as error:  # it broke, or was shut down, since it was last used
            self._break(told(error))
            future = self._pool().submit(self.work, task)
        self._running[future] = number, end

    def _end(self, done: set[Future[PartOutcome]], found: Sequence[Attempted]) -> None:
        """Take the outcomes of futures; parts whose worker ended without one are tried again."""
        broken = False
        for future in done:
            number, _ = self._running.pop(future)
            one = found[number]
            try:
                one.outcome = future.result()
            except BrokenExecutor:
                broken = True
                self._suspect(number, one, "a process ended at work on it")
            except Exception as error:
                if is_for_the_caller(error, False):
                    raise
                one.why = told(released(error))
                if one.tries < TRIES:
                    self._pending.append(number)
        if broken:
            self._drop(found)
            self._break("a process ended")

    def _end_hanging(self, found: Sequence[Attempted]) -> None:
        """Give up workers that have been at work for too long; their parts are tried again."""
        now = time.monotonic()
        late = [future for future, (_, end) in self._running.items() if now > end]
        for future in late:
            number, _ = self._running.pop(future)
            future.cancel()
            self._suspect(number, found[number], "its worker came to no end")
        self._lost += len(late)
        if late and self._own is not None:
            self._drop(found)
        if late and (self._own is not None or self._lost >= self.workers):
            self._break("its workers came to no end")

    def _drop(self, found: Sequence[Attempted]) -> None:
        """Have the parts that end with the executor, through no fault that is known to be theirs, tried again."""
        for number, _ in self._running.values():
            self._suspect(number, found[number], "a process ended beside it")
        self._running.clear()

    def _suspect(self, number: int, one: Attempted, why: str) -> None:
        """Have a part tried again by itself, where it has a try left."""
        one.why = why
        if one.tries < TRIES:
            self._suspects.append(number)

    def _pool(self) -> Executor:
        if self._own is None and isinstance(self.executor, Executor):
            return self.executor
        if self._own is None:
            self._own = _Processes(self.workers)
        return self._own.pool

    def _break(self, why: str) -> None:
        """Go on with new processes of this machine."""
        if self._own is not None:
            self._own.end()
        elif isinstance(self.executor, Executor):
            self.warnings.append(f"parts go on in processes of this machine, since the executor failed: {why}")
        self._own = _Processes(self.workers)


class _Processes:
    """Processes of this machine, which `end` ends whatever they do."""

    def __init__(self, count: int) -> None:
        self._others = set(multiprocessing.active_children())
        # Forked ones would hold locks of threads that they do not have.
        self.pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))

    def end(self) -> None:
        """End the processes."""
        self.pool.shutdown(wait=False, cancel_futures=True)
        for process in set(multiprocessing.active_children()) - self._others:
            process.kill()
            process.join()
