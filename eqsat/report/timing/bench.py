"""Finalists made ready and timed beside the original: all at once, or one by one where their weights are large."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.terms import Graph
from eqsat.report.timing.comparison import OutputComparison
from eqsat.report.timing.compiling import IN_SESSIONS, Compiling
from eqsat.report.timing.sets import WORTH, sets_in_time
from eqsat.runtime.backend import Program
from eqsat.runtime.measure import LEAST_ROUNDS, WARM_UP, Timings, clock_for, combined, interleaved
from eqsat.system.deadline import TimeUp, check, current
from eqsat.system.heap import return_freed

#: The most rounds of a comparison.
ROUNDS = 60
#: The seconds of a model below which its finalists are timed in several sets of sessions, of so many rounds each: two
#: sessions of one model differ for good, by up to 7 % where it takes a millisecond, whatever the number of rounds.
SHORT, SET_ROUNDS = 5e-3, 15
#: The share of the time left that sets of sessions may take.
_SHARE = 0.5
#: The factor by which the seconds that it takes to make a finalist ready and to time it may be too few.
_DOUBT = 1.5

_UNREADY = "the time left was too short to make it ready beside the others"
_UNTIMED = "the time left was too short to time it beside the others"


@dataclass
class Bench:
    """The original and its finalists, the most promising first; `refused` says which were not timed, and why."""

    graphs: Mapping[str, Graph]
    compiling: Compiling
    comparison: OutputComparison
    seed: int
    seconds: float
    should_stop: Callable[[], bool] | None = None
    follow: Callable[[str], None] | None = None
    refused: dict[str, str] = field(default_factory=dict)

    def timings(self) -> list[Timings]:
        """Timings of all finalists and the original in one run, or in one run of the original for each of them.

        Samples have the names of `part_of`. What there is no time for after the first run is `refused`.
        """
        others = [name for name in self.graphs if name != "original"]
        groups = [[name] for name in others] if self._is_large and len(others) > 1 else [others]
        # As many rounds as of all beside each other, though the original takes part in more of them.
        seconds = self.seconds * (len(groups[0]) + 1) / (len(others) + 1)
        found = self._in_first_sessions(groups, seconds)
        self._trim()
        found = [self._in_new_sessions(timings, seconds) for timings in found]
        self._trim()
        return found

    def whole(self, timings: Timings) -> Timings:
        """The timings of programs, over all points together."""
        names = (name for name in self.graphs if part_of(name, 0) in timings.samples)
        return combined(timings, {name: self._parts(name) for name in names})

    @property
    def _is_large(self) -> bool:
        return self.compiling.copies_weights(self.graphs["original"])

    def _parts(self, name: str) -> list[tuple[str, float]]:
        """The parts of the times of a program, and the weight of each."""
        return [(part_of(name, index), point.weight) for index, point in enumerate(self.comparison.points)]

    def _in_first_sessions(self, groups: Sequence[Sequence[str]], seconds: float) -> list[Timings]:
        """The timings of each group beside the original, in the sessions that outputs were compared in."""
        original = self.comparison.take_original()
        found: list[Timings] = []
        for number, group in enumerate(groups):
            seconds = min(seconds, max(current().seconds / (len(groups) - number), 1e-3))
            try:
                programs = self._ready(original, group, is_first=not found)
                if len(programs) > 1:
                    found.append(self._timed(programs, ROUNDS, seconds, is_one_of_many=len(groups) > 1))
            except (TimeUp, BackendError) as error:
                if not found:
                    raise
                self.refused[group[0]] = error.what if isinstance(error, BackendError) else _UNTIMED
            programs = {}
            self._trim()
        return found or [self._timed({"original": original}, ROUNDS, seconds)]

    def _ready(self, original: Program, group: Sequence[str], is_first: bool) -> dict[str, Program]:
        """The programs of the original and of finalists that may stand for it, as far as time lasts."""
        programs = {"original": original}
        for name in group:
            if self.should_stop is not None and self.should_stop():
                raise BackendError("interrupted before anything was measured")
            needed = _seconds_for(len(programs) + 1, self.comparison)
            if not (is_first and len(programs) == 1) and current().seconds < needed:
                self.refused[name] = _UNREADY
                continue
            self._say(f"compiling {name}")
            program = self.comparison.program(name, self.graphs[name])
            if program is not None:
                programs[name] = program
        self._say("timing")
        with current().ending(lambda: _end(programs.values())):
            calls = self._calls(programs)
            late = _untimed({name: [calls[part] for part, _ in self._parts(name)] for name in programs})
        self.refused |= dict.fromkeys(late, _UNTIMED)
        return {name: program for name, program in programs.items() if name not in late}

    def _timed(
        self, programs: Mapping[str, Program], rounds: int, seconds: float, *, is_one_of_many: bool = False
    ) -> Timings:
        """The timings of programs; of one finalist of many, no more rounds where the least show that it is no gain."""
        with current().ending(lambda: _end(programs.values())):
            timings = interleaved(
                self._calls(programs),
                rounds,
                self.seed,
                clock=clock_for(self.compiling.threads, self.compiling.backend),
                time_limit=seconds,
                should_stop=self.should_stop,
                is_settled=self._is_no_gain if is_one_of_many else None,
            )
        if rounds == ROUNDS:
            timings.check_rounds()
        return timings

    def _is_no_gain(self, timings: Timings) -> bool:
        """True if no finalist saves what is worth keeping, with 95 % confidence."""
        whole = self.whole(timings)
        others = (name for name in whole.samples if name != "original")
        return all(whole.ratio_bound("original", name) < 1 / WORTH for name in others)

    def _calls(self, programs: Mapping[str, Program]) -> dict[str, Callable[[], object]]:
        """A call for each part of the times of programs: on the inputs at one of the points."""
        bound = ((name, zip(self._parts(name), self.comparison.feeds, strict=True)) for name in programs)
        return {part: programs[name].bind(feed) for name, pairs in bound for (part, _), feed in pairs}

    def _in_new_sessions(self, timings: Timings, seconds: float) -> Timings:
        """The medians of sets of sessions in place of timings that the sessions may have been the reason of."""
        whole = self.whole(timings)
        if self.compiling.backend not in IN_SESSIONS or not _may_be_chance(whole):
            return timings
        names = list(whole.samples)

        def timed(number: int) -> Timings:
            self._trim()
            order = np.random.default_rng([self.seed, number]).permutation(len(names))
            made = (names[place] for place in order)
            programs = {name: self.compiling.program(name, self.graphs[name]) for name in made}
            return self._timed(programs, SET_ROUNDS, seconds)

        anew = _in_sets(timed, seconds)
        return timings if anew is None else anew

    def _trim(self) -> None:
        """Give back the memory of sessions of large models that were let go, before others are made."""
        if self._is_large:
            return_freed()

    def _say(self, text: str) -> None:
        if self.follow is not None:
            self.follow(text)


def part_of(name: str, index: int) -> str:
    """The name among the timings of a finalist at one of the points."""
    return f"{name} {index}"


def _seconds_for(count: int, comparison: OutputComparison) -> float:
    """The seconds that it may take to make one more finalist ready, and to time so many in the least rounds."""
    run = max(comparison.run_seconds.values(), default=0.0)
    return _DOUBT * (comparison.longest + (LEAST_ROUNDS + WARM_UP) * count * run)


def _may_be_chance(timings: Timings) -> bool:
    """True if a finalist of a short model seems to be faster, which the sessions it happened to get may do."""
    others = [name for name in timings.samples if name != "original"]
    is_faster = any(timings.ratio_bound(name, "original") < 1.0 for name in others)
    return is_faster and timings.median("original") < SHORT


def _in_sets(timed: Callable[[int], Timings], seconds: float) -> Timings | None:
    """The medians of sets of sessions that are made anew; None where there was time for too few to bound anything."""
    found: list[Timings] = []
    for number in sets_in_time(min(seconds, _SHARE * current().seconds)):
        try:
            found.append(timed(number))
        except TimeUp:
            break
        if found[-1].rounds < LEAST_ROUNDS:
            found.pop()  # interrupted
            break
    if len(found) < LEAST_ROUNDS:
        return None
    return Timings({name: tuple(one.median(name) for one in found) for name in found[0].samples}, found[0].clock)


def _untimed(calls: Mapping[str, Sequence[Callable[[], object]]]) -> set[str]:
    """The finalists that are not timed, since the least rounds of all of them would end past the deadline."""
    if not math.isfinite(current().seconds) or len(calls) < 3:
        return set()
    took: dict[str, float] = {}
    for name, members in calls.items():
        check(0)
        start = time.monotonic()
        for call in members:
            call()
        took[name] = time.monotonic() - start
    if (LEAST_ROUNDS + WARM_UP) * sum(took.values()) < current().seconds:
        return set()
    others = [name for name in took if name != "original"]
    return set(others) - {min(others, key=lambda name: took[name])}


def _end(programs: Iterable[Any]) -> None:
    """Ask programs to end their runs, if they can be asked."""
    from eqsat.runtime.onnxruntime.session import SessionProgram

    for program in programs:
        if isinstance(program, SessionProgram):
            program.end()
