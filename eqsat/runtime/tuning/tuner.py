"""The tuner: candidates compiled by several threads and measured by one, until time is up or the search is over."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Generic

from eqsat.errors import EqsatError, first_line
from eqsat.runtime.threads import check_threads
from eqsat.runtime.tuning.candidate import CandidateError, TuningCandidate
from eqsat.runtime.tuning.config import check_seconds
from eqsat.runtime.tuning.pool import Compiled, CompilePool, CompileResult
from eqsat.runtime.tuning.progress import TuningProgress
from eqsat.runtime.tuning.search import TuningSearch
from eqsat.runtime.tuning.space import OptionSpace
from eqsat.system.deadline import Deadline, TimeUp, current
from eqsat.system.interrupts import interruptible

#: The fastest candidates, which are measured again before one of them is named.
FINALISTS = 3
#: Rounds in which each finalist is measured once.
FINAL_ROUNDS = 9
#: The largest share of the time budget that is kept for the finalists.
_FINAL_SHARE = 0.2
#: Seconds between two looks at the clock, and for Ctrl-C, while nothing is compiled yet.
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Trial:
    """A candidate with the seconds that it took, or None and the reason why it is invalid."""

    candidate: TuningCandidate
    seconds: float | None
    failure: str = ""


@dataclass(frozen=True)
class Tuned(Generic[Compiled]):
    """The result of a search: the fastest candidate, as compiled, and everything that was measured.

    `seconds` is the median of the rounds in `finals`, where each finalist has one sample a round; where an interruption
    left no whole round, `finals` is empty and `seconds` is the first measurement. `reference_seconds` is the same of
    the reference, None if there was none or it is invalid. `history` has the trials in the order of their measurement.
    """

    candidate: TuningCandidate
    compiled: Compiled
    seconds: float
    reference_seconds: float | None
    history: tuple[Trial, ...]
    finals: Mapping[TuningCandidate, tuple[float, ...]]
    is_interrupted: bool = False
    is_out_of_time: bool = False


def tune(
    space: OptionSpace,
    search: TuningSearch,
    compile: Callable[[TuningCandidate], Compiled],
    measure: Callable[[Compiled], float],
    *,
    seconds: float = math.inf,
    threads: int = 1,
    reference: TuningCandidate | None = None,
    progress: Callable[[TuningProgress], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Tuned[Compiled]:
    """Search a space for the candidate whose compiled form takes the least time.

    `threads` threads call `compile`; `measure` returns seconds and is called in the calling thread alone, one candidate
    at a time, while others are compiled. A candidate for which either raises an EqsatError, or whose time is not a
    finite number above 0, is invalid and dropped; other exceptions end the search. The fastest FINALISTS and the
    `reference`, which is tried first, are measured again in FINAL_ROUNDS interleaved rounds with nothing left to
    compile, and the least median wins: the minimum of many noisy measurements says more of the noise than of the
    candidate. With the best known candidate as the reference, the result is never slower than it in these rounds.

    The search ends after `seconds`, of which at most a fifth is kept for the finalists, or at the deadline of the call
    around it. Ctrl-C, or `should_stop()` being true, ends it with the best so far, without further rounds; a compiler
    that still runs is not waited for. CandidateError where no candidate was measured, KeyboardInterrupt where Ctrl-C
    came before one was, and UsageError for arguments outside their domain.
    """
    check_threads(threads)
    check_seconds(seconds)
    if reference is not None:
        space.check(reference)
    end = Deadline(min(seconds, current().seconds))
    with end, CompilePool(compile, threads) as pool:
        run = _TuningRun(space, search, measure, pool, end, progress, should_stop)
        with interruptible(begun=run.has_best) as asked:
            run.asked = asked
            run.go(reference)
    return run.result(reference)


class _TuningRun(Generic[Compiled]):
    """A search while it runs."""

    def __init__(
        self,
        space: OptionSpace,
        search: TuningSearch,
        measure: Callable[[Compiled], float],
        pool: CompilePool[Compiled],
        end: Deadline,
        progress: Callable[[TuningProgress], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        self.space, self.search, self.measure, self.pool, self.end = space, search, measure, pool, end
        self.progress, self.should_stop = progress, should_stop
        self.asked: Callable[[], bool] = lambda: False
        self.trials: dict[TuningCandidate, Trial] = {}
        self.known = 0
        #: The fastest and the reference, as compiled, with their first times.
        self.finalists: list[_Finalist[Compiled]] = []
        self.rounds = 0
        self.longest = 0.0
        self.budget = end.seconds
        self.is_interrupted = self.is_out_of_time = False

    def has_best(self) -> bool:
        """True if a result could be named now."""
        return bool(self.finalists)

    def go(self, reference: TuningCandidate | None) -> None:
        """Search, then measure the finalists; an interruption or the end of the time keeps the finalists so far."""
        try:
            self._search(reference)
            self.pool.cancel()
            if not self.is_interrupted:
                self._measure_again()
        except TimeUp:
            self.is_out_of_time = True
        except KeyboardInterrupt:
            self.is_interrupted = True
            if not self.finalists:
                raise

    def result(self, reference: TuningCandidate | None) -> Tuned[Compiled]:
        """The fastest finalist; CandidateError where there is none."""
        if not self.finalists:
            raise self._failure()
        best = min(self.finalists, key=lambda one: one.time(self.rounds))
        finals = {one.candidate: tuple(one.samples[: self.rounds]) for one in self.finalists} if self.rounds else {}
        return Tuned(
            best.candidate,
            best.compiled,
            best.time(self.rounds),
            next((one.time(self.rounds) for one in self.finalists if one.candidate == reference), None),
            tuple(self.trials.values()),
            finals,
            self.is_interrupted,
            self.is_out_of_time,
        )

    def _search(self, reference: TuningCandidate | None) -> None:
        first = [] if reference is None else [reference]
        while batch := [*first, *self.search.propose()]:
            if not self._try(batch, reference):
                return
            first = []

    def _try(self, batch: Sequence[TuningCandidate], reference: TuningCandidate | None) -> bool:
        """Compile and measure a generation; False where the search is to end before it is through."""
        fresh = [one for one in dict.fromkeys(batch) if one not in self.trials]
        for one in batch:
            if one in self.trials:
                self.search.tell(one, self.trials[one].seconds)
        self.known += len(fresh)
        for one in fresh:
            self.space.check(one)
            self.pool.submit(one)
        for _ in fresh:
            result = self._next()
            if result is None:
                return False
            self._judge(result, reference)
        return True

    def _next(self) -> CompileResult[Compiled] | None:
        """The next compiled candidate, None where the search is to end."""
        while not self._is_ended(self._reserve()):
            if result := self.pool.next(min(_POLL_SECONDS, self.end.left)):
                return result
        return None

    def _judge(self, result: CompileResult[Compiled], reference: TuningCandidate | None) -> None:
        """Measure a compiled candidate, and tell the search."""
        candidate, seconds = result.candidate, None
        try:
            compiled = result.get()
        except EqsatError as error:
            failure = first_line(error)
        else:
            seconds, failure = self._measured(compiled)
            if seconds is not None:
                self.finalists.append(_Finalist(candidate, compiled, seconds, []))
                self._drop_slow(reference)
        self.trials[candidate] = Trial(candidate, seconds, failure)
        self.search.tell(candidate, seconds)
        self._report()

    def _drop_slow(self, reference: TuningCandidate | None) -> None:
        """Keep the fastest and the reference alone: what is compiled may hold memory of a device."""
        self.finalists.sort(key=lambda one: one.first)
        self.finalists = [
            one for place, one in enumerate(self.finalists) if place < FINALISTS or one.candidate == reference
        ]

    def _measured(self, compiled: Compiled) -> tuple[float | None, str]:
        """The seconds of one measurement, or None and the reason why there are none."""
        begun = self.end.left
        try:
            seconds = float(self.measure(compiled))
        except EqsatError as error:
            return None, first_line(error)
        self.longest = max(self.longest, begun - self.end.left) if math.isfinite(begun) else 0.0
        return (seconds, "") if 0 < seconds < math.inf else (None, f"a time of {seconds} s")

    def _measure_again(self) -> None:
        """Measure the finalists in interleaved rounds; one that fails is none."""
        for number in range(FINAL_ROUNDS):
            # Every other round runs backwards, so that no candidate always follows the same one.
            for one in self.finalists[:: -1 if number % 2 else 1]:
                if self._is_ended(0.0):
                    return
                seconds, failure = self._measured(one.compiled)
                if seconds is None:
                    self.trials[one.candidate] = Trial(one.candidate, None, f"when measured again: {failure}")
                    self.finalists.remove(one)
                else:
                    one.samples.append(seconds)
            self.rounds = number + 1

    def _reserve(self) -> float:
        """Seconds that the finalists will take, at most a share of the budget."""
        return min(FINAL_ROUNDS * (FINALISTS + 1) * self.longest, _FINAL_SHARE * self.budget) if self.longest else 0.0

    def _is_ended(self, reserve: float) -> bool:
        if self.asked() or (self.should_stop is not None and self.should_stop()):
            self.is_interrupted = True
        elif self.end.left <= reserve:
            self.is_out_of_time = True
        else:
            return False
        return True

    def _report(self) -> None:
        if self.progress is None:
            return
        failed = sum(trial.seconds is None for trial in self.trials.values())
        best = self.finalists[0] if self.finalists else None
        self.progress(
            TuningProgress(
                len(self.trials),
                failed,
                self.known,
                best.candidate if best else None,
                best.first if best else None,
                self.end.left,
            )
        )

    def _failure(self) -> CandidateError:
        tried = list(self.trials.values())
        if self.is_interrupted or self.is_out_of_time:
            reason = "interrupted" if self.is_interrupted else self.end.reason
            return CandidateError(
                f"no candidate was measured of {self.known}: {reason}",
                expected="one measured candidate or more",
                remedy="" if self.is_interrupted else "give the search more seconds",
            )
        last = next((trial for trial in reversed(tried) if trial.failure), None)
        return CandidateError(
            f"none of {len(tried)} candidates could be compiled and measured" + (f": {last.failure}" if last else ""),
            where=last.candidate.text if last else "",
            expected="one valid candidate or more",
            remedy="change the options of the space, or the condition on them",
        )


@dataclass(eq=False)
class _Finalist(Generic[Compiled]):
    """A candidate that may be the result, with its first time and one sample for each round."""

    candidate: TuningCandidate
    compiled: Compiled
    first: float
    samples: list[float]

    def time(self, rounds: int) -> float:
        """The median of so many rounds; before there is one, the first time."""
        return median(self.samples[:rounds]) if rounds else self.first
