"""The end of a call: after so many seconds, or after so many counted steps."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn, TypeVar

Item = TypeVar("Item")

#: Seconds that are left of a call that was asked to end early.
ASKED_SECONDS = 3.0
#: Seconds of a processor that say something of the machine.
_LEAST_WORK = 0.2
#: Number of items of `watched` between two looks at the deadline.
_SELDOM = 1024


class TimeUp(Exception):  # noqa: N818 - a limit that is met is no error
    """Leaves work whose deadline is over; its text says which limit that was."""


class Deadline:
    """The end of a call, in seconds of a clock or in steps that the work counts itself; without either, never.

    The clock starts when the deadline is made, and anew with `begin`. `part` is an earlier end of the same call, so
    there is one clock however many parts there are. Inside `with deadline:` the function `check` is a place at which
    work ends with TimeUp once the deadline is over. Once `asked()` is true, at most three seconds are left of the call,
    or a tenth of its steps: enough to check the results for most models.

    >>> whole = Deadline(steps=100)
    >>> with whole.part(0.5):
    ...     check(49)
    >>> whole.left, whole.part(0.5).over
    (51.0, False)
    """

    def __init__(
        self,
        seconds: float = math.inf,
        *,
        steps: int | None = None,
        now: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.process_time,
        asked: Callable[[], bool] | None = None,
    ) -> None:
        self._seconds, self._now, self._worked = seconds, now, worked
        self._request = None if asked is None else _Request(asked)
        self._steps = None if steps is None else _Steps()
        self._length = float(seconds if steps is None else steps)
        self._started = self._now(), self._worked()
        self._end = self._reading() + self._length
        self._before: list[Deadline] = []
        self._is_paused = False
        self._whole: Deadline | None = None

    @property
    def counts_steps(self) -> bool:
        """True if steps are counted, and no clock is looked at."""
        return self._steps is not None

    @property
    def over(self) -> bool:
        """True if the end has come."""
        reading = self._reading()
        return reading >= self._last(reading)

    @property
    def left(self) -> float:
        """Seconds or steps to the end."""
        reading = self._reading()
        return max(self._last(reading) - reading, 0.0)

    @property
    def slowness(self) -> float:
        """The seconds that pass for each in which this process is given a processor, so far; at least 1."""
        passed, worked = self._now() - self._started[0], self._worked() - self._started[1]
        return max(passed / worked, 1.0) if worked > _LEAST_WORK else 1.0

    @property
    def is_asked(self) -> bool:
        """True if the end comes earlier because somebody asked for it."""
        return self._request is not None and self._request.end < self._end

    @property
    def seconds(self) -> float:
        """Seconds to the end; without end where steps are counted."""
        return math.inf if self.counts_steps else self.left

    @property
    def steps(self) -> int | None:
        """Steps to the end, None where seconds count."""
        return int(self.left) if self.counts_steps else None

    @property
    def reason(self) -> str:
        """The reason to tell of work that was left out because the end had come."""
        if self.is_asked:
            return "the run was interrupted"
        if self.counts_steps:
            return f"the limit of {int(self._length):,} steps is reached".replace(",", " ")
        return f"the time limit of {self._length:g} s is over"

    def begin(self) -> None:
        """Start anew: earlier steps do not count."""
        self._started = self._now(), self._worked()
        self._end = self._reading() + self._length

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A block whose time or steps do not count, for this and what it is a part of; one inside is a part of it."""
        if self._is_paused:
            yield
            return
        self._is_paused, begun, before = True, self._reading(), (self._now(), self._worked())
        try:
            yield
        finally:
            self._is_paused = False
            passed, worked = self._now() - before[0], self._worked() - before[1]
            one: Deadline | None = self
            while one is not None and not one._is_paused:
                one._end += self._reading() - begun
                one._started = one._started[0] + passed, one._started[1] + worked
                one = one._whole

    def spend(self, steps: int = 1) -> None:
        """Count steps, if the deadline counts steps."""
        if self._steps is not None:
            self._steps.taken += steps

    def check(self, steps: int = 1) -> None:
        """Count steps of work that is about to be done; TimeUp where the end has come."""
        if self._steps is not None:
            self._steps.taken += steps
        if self.over:
            raise TimeUp(self.reason)

    def expect(self, seconds: float) -> None:
        """TimeUp where work that cannot look at the clock, and may take so many seconds, would end too late."""
        if self.over or self.seconds < seconds:
            self.stop()

    def stop(self) -> NoReturn:
        """TimeUp, for work that would not be done before the end."""
        raise TimeUp(self.reason)

    def part(self, share: float = 1.0, most: float = math.inf) -> Deadline:
        """An end after a share of the remaining time, and after at most `seconds` where seconds count."""
        length = share * self.left
        return self._until(self._reading() + (length if self.counts_steps else min(length, most)))

    def before(self, seconds: float) -> Deadline:
        """An end so many seconds earlier, for work that other work is to follow; where steps are counted, the same."""
        return self._until(self._end - (0.0 if self.counts_steps else seconds))

    def unlimited(self) -> Deadline:
        """No end but where a call is asked to end, for work that looks at its deadline in a block that is paused.

        >>> with (call := Deadline(0.0)).paused(), call.unlimited():
        ...     check()
        """
        return self._until(math.inf)

    def grace(self) -> Deadline:
        """A later end, for what ends a call that is over: by a tenth or half a second, whichever is more.

        Where steps are counted, what is done after the end is as long as it is.
        """
        last = self._last(self._reading())
        late = math.inf if self.counts_steps else max(0.1 * self._length, 0.5)
        other = self._until(last + (min(late, 0.5) if last < self._end else late))
        other._request = None
        return other

    @contextmanager
    def ending(self, call: Callable[[], object]) -> Iterator[None]:
        """Call a function in a thread of its own once the end has come, if the work inside still goes on then.

        For work that cannot look at the deadline itself, but that can be asked to end. Where steps are counted, it is
        left to its own end.
        """
        if not math.isfinite(self.seconds):
            yield
            return
        timer = threading.Timer(self.seconds, call)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.function = _nothing  # its thread ends some time later, and would hold what the call holds till then

    def _until(self, end: float) -> Deadline:
        other = Deadline.__new__(Deadline)
        other._seconds, other._now, other._steps, other._length = self._seconds, self._now, self._steps, self._length
        other._worked, other._started = self._worked, self._started
        other._end, other._before, other._request, other._is_paused = end, [], self._request, False
        other._whole = self
        return other

    def _last(self, reading: float) -> float:
        """The end, which comes earlier where that was asked for."""
        request = self._request
        if request is None:
            return self._end
        if request.end == math.inf and request.asked():
            request.end = reading + (0.1 * self._length if self.counts_steps else ASKED_SECONDS)
        return min(self._end, request.end)

    def __enter__(self) -> Deadline:
        self._before.append(_CURRENT.get())
        _CURRENT.set(self)
        return self

    def __exit__(self, *_raised: object) -> None:
        _CURRENT.set(self._before.pop())

    def _reading(self) -> float:
        return self._now() if self._steps is None else float(self._steps.taken)


def _nothing() -> None:
    """Do nothing."""


class _Request:
    """A request that a call end early, and the time of that end; the parts of a call share it."""

    __slots__ = ("asked", "end")

    def __init__(self, asked: Callable[[], bool]) -> None:
        self.asked, self.end = asked, math.inf


class _Steps:
    """The number of steps taken."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        self.taken = 0


#: No end.
NEVER = Deadline()
_CURRENT: ContextVar[Deadline] = ContextVar("deadline", default=NEVER)


def current() -> Deadline:
    """The deadline that work here is done under."""
    return _CURRENT.get()


def check(steps: int = 1) -> None:
    """Count steps of work that is about to be done; TimeUp where the deadline that it is done under is over."""
    _CURRENT.get().check(steps)


def expect(seconds: float) -> None:
    """TimeUp where work that may take so many seconds would end after the deadline that it is done under."""
    _CURRENT.get().expect(seconds)


def spend(steps: int) -> None:
    """Count steps of work that looks at its deadline itself, or that has a bound of its own."""
    _CURRENT.get().spend(steps)


def watched(items: Iterable[Item]) -> Iterator[Item]:
    """The items, with a look at the deadline now and then; no steps are counted.

    For loops whose single steps are too short for a look at a clock each, over all nodes of a model or an e-graph.

    >>> sum(watched(range(5)))
    10
    """
    for count, item in enumerate(items):
        if not count % _SELDOM:
            _CURRENT.get().check(0)
        yield item
