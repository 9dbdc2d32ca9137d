"""Many kernels measured one after the other into a table: in windows between two looks at a product that is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from eqsat.costs.kernels.fusion import Key
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.protocol import Stopwatch, Subject, drifted, measure, settled, steady
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import CostError, EqsatError, UsageError

#: Operators between two measurements of the sentinel, and how often a window that drifts is measured again.
WINDOW, TRIES = 50, 3
#: The product whose time says whether the device still runs as it did.
SENTINEL = OpKey.parse("matmul {} float16[2048, 2048] =float16[2048, 2048]")


@dataclass(frozen=True)
class Campaign:
    """The result of measuring many kernels: entries that are new, that were there, kernels that failed and why, that
    are left, and windows that were discarded because the device drifted.
    """

    measured: int
    known: int
    failed: tuple[tuple[Key, str], ...] = ()
    left: int = 0
    discarded: int = 0


@dataclass
class Measuring:
    """A device, a table, and where its entries hold. `subject` makes a kernel ready, or raises EqsatError.

    Each entry is in the table as soon as it is measured, and counts from the end of its window on; a run that is
    stopped ends its window early, and one that is killed leaves entries that the next run confirms, if the device is as
    it was.
    """

    subject: Callable[[Key], Subject]
    stopwatch: Stopwatch
    table: CostTable
    environment: Environment
    sentinel: Key
    discarded: int = 0
    failed: list[tuple[Key, str]] = field(default_factory=list)

    def run(
        self,
        keys: Iterable[Key],
        progress: Callable[[int, int, Key], None] | None = None,
        time_limit: float | None = None,
        should_stop: Callable[[], bool] | None = None,
        *,
        seed: int = 0,
    ) -> Campaign:
        """Measure the kernels that the table lacks; begin none after `time_limit` seconds, or when told to stop.

        `progress` is called before each kernel with how many are done, how many there are, and the kernel.
        """
        if time_limit is not None and not time_limit > 0:
            raise UsageError(f"time_limit = {time_limit}", expected="a number of seconds above 0")
        deadline = None if time_limit is None else time.monotonic() + time_limit
        ended = self._ended(deadline, should_stop)
        wanted = list(dict.fromkeys(keys))
        measured = 0
        with closing(self.subject(self.sentinel)) as sentinel:
            before = self._begin(sentinel)
            known = self.table.own(self.environment)
            todo = [key for key in wanted if key.text not in known]
            total, skipped = len(todo), len(wanted) - len(todo)
            tries = 0
            while todo and not ended():
                failures = len(self.failed)
                done = self._window(todo[:WINDOW], total - len(todo), total, progress, ended, seed)
                after = self._again(sentinel, todo[done - 1] if done else todo[0])
                if not drifted(before, after):
                    measured += done - (len(self.failed) - failures)
                    self.table.confirm(self.environment)
                    todo, tries = todo[done:], 0
                else:
                    self.table.drop(self.environment.unconfirmed)
                    del self.failed[failures:]
                    self.discarded, tries = self.discarded + 1, tries + 1
                    if tries == TRIES:
                        reason = f"the device drifted: its sentinel took {before:.4g} s before it, {after:.4g} s after"
                        self.failed += [(key, reason) for key in todo[:done]]
                        todo, tries = todo[done:], 0
                before = self._mark(after)
            self.table.drop(self._marks)
        return Campaign(measured, skipped, tuple(self.failed), len(todo), self.discarded)

    def _begin(self, sentinel: Subject) -> float:
        """The sentinel's time on a steady device; it confirms the entries that a killed run left, or drops them."""
        now = settled(sentinel)
        left = self.table.own(self._marks).get(self.sentinel.text)
        if left is not None and not drifted(left.seconds, now):
            self.table.confirm(self.environment)
        self.table.drop(self.environment.unconfirmed)
        return self._mark(now)

    def _mark(self, seconds: float) -> float:
        """Keep the sentinel's time, beside the entries of the window that begins."""
        self.table.put(self._marks, self.sentinel, Entry(seconds, seconds, seconds, 1))
        return seconds

    @property
    def _marks(self) -> Environment:
        """The environment under which the sentinel's time is kept, which is no cost."""
        return self.environment.unconfirmed.unconfirmed

    def _window(
        self,
        keys: Sequence[Key],
        done: int,
        total: int,
        progress: Callable[[int, int, Key], None] | None,
        ended: Callable[[], bool],
        seed: int,
    ) -> int:
        """Measure some kernels and say how many were begun."""
        for index, key in enumerate(keys):
            if ended():
                return index
            if progress is not None:
                progress(done + index, total, key)
            try:
                with closing(self.subject(key)) as subject:
                    entry = measure(subject, self.stopwatch, seed=seed)
            except EqsatError as error:
                self.failed.append((key, error.what))
                continue
            self.table.put(self.environment.unconfirmed, key, entry)
        return len(keys)

    def _again(self, sentinel: Subject, last: Key) -> float:
        """The sentinel's time at the end of a window; where it no longer runs, the device was lost on the way."""
        try:
            return steady(sentinel).seconds
        except EqsatError as error:
            raise CostError(
                f"the device fails since it was measured: {error.what}",
                where=last.text,
                expected="a kernel that leaves the device usable",
                remedy="run it again without this kernel; what was measured before it is kept",
            ) from error

    def _ended(self, deadline: float | None, should_stop: Callable[[], bool] | None) -> Callable[[], bool]:
        def ended() -> bool:
            late = deadline is not None and time.monotonic() > deadline
            return late or (should_stop is not None and should_stop())

        return ended
