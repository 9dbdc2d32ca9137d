"""The level of ONNX Runtime's graph optimisation that a result is to run at, measured in sessions made anew."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from eqsat.certify.outputs import Judge, samples
from eqsat.errors import BackendError, EqsatError
from eqsat.language.terms import Graph
from eqsat.report.parts import SessionLevel
from eqsat.report.timing.comparison import TimedProgram
from eqsat.report.timing.compiling import Compiling, drawn
from eqsat.report.timing.sets import WORTH, sets_in_time
from eqsat.runtime.backend import Program
from eqsat.runtime.examples import DRAWS, SizePoint
from eqsat.runtime.measure import LEAST_ROUNDS, Timings, clock_for, combined, interleaved, ratio_bound
from eqsat.runtime.onnxruntime.levels import DEFAULT_LEVEL, LEVELS
from eqsat.system.deadline import TimeUp, current
from eqsat.system.heap import return_freed

#: A run that takes fewer seconds is left at the level "all": two sessions of one model differ by more than is to gain.
LEAST_SECONDS = 1e-3
#: Rounds that show which level may be faster, and the share of the time at "all" below which one may be.
_ROUNDS, _PROMISING = 9, 0.99
#: Sets of new sessions after which a level that is no faster is given up.
_FEW = 3
#: The most seconds of all trials.
SECONDS = 20.0

_NO_TIME = "no time was left to confirm it in sessions made anew"


@dataclass(frozen=True)
class LevelTrial:
    """Trials of a result's graph, the original's where that was kept, at other levels than "all".

    `limit` is the largest allowed distance of outputs from the original's, `names` are the levels to try, in some
    `seconds` at most; the result is written at `opset`.
    """

    original: Graph
    graph: Graph
    is_original: bool
    source: Any
    points: Sequence[SizePoint]
    seed: int
    threads: int
    limit: float
    names: tuple[str, ...] = tuple(name for name in LEVELS if name != DEFAULT_LEVEL)
    should_stop: Callable[[], bool] | None = None
    seconds: float = SECONDS
    opset: int | None = None
    _draws: list[dict[str, Any]] = field(default_factory=list, repr=False, compare=False)

    def measured(self) -> list[SessionLevel]:
        """The levels that were tried, of which at most one is kept; none where a run is too short, or cannot be timed.

        EqsatError or TimeUp where not even the original could be run.
        """
        with current().part(1.0, self.seconds):
            programs, judge, points = self._programs()
            if not self._lasts(programs[DEFAULT_LEVEL], points):
                return []
            rows: list[SessionLevel] = []
            for names in [[name] for name in self.names] if self._is_large else [self.names]:
                rows += self._beside_default(programs, names, judge, points)
            best = min((r for r in rows if r.ratio is not None), key=lambda r: r.ratio or 0.0, default=None)
            del programs
            if best is None or best.ratio is None or best.ratio > _PROMISING:
                return [replace(row, why=row.why or 'it is no faster than "all"') for row in rows]
            confirmed = self._confirmed(best, points)
            others = f"{best.name} is faster"
            return [confirmed if row is best else replace(row, why=row.why or others) for row in rows]

    def new_session(self, level: str, *, original: bool = False) -> Program:
        """A new session at a level: of the result's graph, or of the original."""
        is_original = original or self.is_original
        source = self.source if is_original else None
        compiling = Compiling("onnxruntime", source, self.threads, {}, (), level=level, opset=self.opset)
        if is_original:
            return compiling.program("original", self.original)
        return compiling.program("result", self.graph)

    @property
    def _is_large(self) -> bool:
        """True of a graph of which no more than two sessions are held at a time."""
        return Compiling("onnxruntime", None, self.threads, {}, ()).copies_weights(self.graph)

    def _programs(self) -> tuple[dict[str, Program], Judge | None, list[SizePoint]]:
        """A session of the result at "all", the outputs of the original, and the points at which that runs."""
        program = self.new_session(DEFAULT_LEVEL)
        reference = TimedProgram(program if self.is_original else self.new_session(DEFAULT_LEVEL, original=True))
        compiling = Compiling("onnxruntime", self.source, self.threads, {}, (), opset=self.opset)
        points, draws = drawn(self.original, compiling, reference, self.points, self.seed)
        self._draws[:] = draws
        judge = None
        if math.isfinite(self.limit):
            judge = Judge(self.original, samples(self.original, draws, self.seed), reference.run)
        return {DEFAULT_LEVEL: program}, judge, points

    def _lasts(self, program: Program, points: Sequence[SizePoint]) -> bool:
        """True if a run at the points takes long enough to be worth a choice."""
        timings = self._timed({DEFAULT_LEVEL: program}, points, LEAST_ROUNDS)
        return timings.median(DEFAULT_LEVEL) >= LEAST_SECONDS

    def _beside_default(
        self, programs: Mapping[str, Program], names: Sequence[str], judge: Judge | None, points: Sequence[SizePoint]
    ) -> list[SessionLevel]:
        """Levels timed beside "all", or the reason for which they may not stand for it."""
        judged, refused = self._agreeing(programs, names, judge)
        rows = [SessionLevel(name, None, why=why) for name, why in refused.items()]
        if len(judged) > 1:
            timings = self._timed(judged, points, _ROUNDS, _is_no_gain)
            rows += [SessionLevel(name, timings.ratio(name, DEFAULT_LEVEL)) for name in judged if name in names]
        return rows

    def _agreeing(
        self, programs: Mapping[str, Program], names: Sequence[str], judge: Judge | None
    ) -> tuple[dict[str, Program], dict[str, str]]:
        """The programs at levels whose outputs agree with the original's, and the reasons of the others."""
        found, refused = dict(programs), dict[str, str]()
        for name in names:
            if self._is_large:
                return_freed()
            if self.should_stop is not None and self.should_stop():
                raise BackendError("interrupted before all levels were tried")
            try:
                program = self.new_session(name)
                verdict = None if judge is None else judge.verdict(program.run, self.limit)
            except EqsatError as error:
                refused[name] = error.what
                continue
            if verdict is not None and verdict.refused is not None:
                refused[name] = verdict.refused
            else:
                found[name] = program
        return found, refused

    def _timed(
        self,
        programs: Mapping[str, Program],
        points: Sequence[SizePoint],
        rounds: int,
        is_settled: Callable[[Timings], bool] | None = None,
    ) -> Timings:
        """Seconds of programs at all points together, in interleaved rounds; the least where these settle it."""
        calls: dict[str, Callable[[], object]] = {}
        parts: dict[str, list[tuple[str, float]]] = {}
        for name, program in programs.items():
            parts[name] = [(f"{name} {index}", point.weight) for index, point in enumerate(points)]
            feeds = self._draws[::DRAWS]
            calls |= {part: program.bind(feed) for (part, _), feed in zip(parts[name], feeds, strict=True)}
        seconds = max(min(current().seconds, self.seconds), 1e-3)
        clock = clock_for(self.threads)
        timings = interleaved(
            calls,
            rounds,
            self.seed,
            clock=clock,
            time_limit=seconds,
            should_stop=self.should_stop,
            is_settled=None if is_settled is None else lambda taken: is_settled(combined(taken, parts)),
        )
        timings.check_rounds()
        return combined(timings, parts)

    def _confirmed(self, row: SessionLevel, points: Sequence[SizePoint]) -> SessionLevel:
        """A level timed in sessions that are made anew, since memory that a session gets moves its times for good."""
        times: dict[str, list[float]] = {}
        for number in sets_in_time(self.seconds):
            try:
                one = self._set(row.name, points, number)
            except TimeUp:
                break
            for name, seconds in one.items():
                times.setdefault(name, []).append(seconds)
            ratios = np.divide(times[row.name], times[DEFAULT_LEVEL])
            if number + 1 >= _FEW and np.median(ratios) > WORTH:
                return replace(row, ratio=float(np.median(ratios)), sessions=number + 1, why="it saves less than 2 %")
        return confirmed_level(row, times)

    def _set(self, level: str, points: Sequence[SizePoint], number: int) -> dict[str, float]:
        """The times of new sessions at the level and at "all", and of the original; they are made in another order.

        Of a large model the level is timed beside one of the others at a time, and the times of the second run are
        divided by the change of the level's time since the first.
        """
        makers: dict[str, Callable[[], Program]] = {
            level: lambda: self.new_session(level),
            DEFAULT_LEVEL: lambda: self.new_session(DEFAULT_LEVEL),
        }
        if not self.is_original:
            makers["original"] = lambda: self.new_session(DEFAULT_LEVEL, original=True)
        order = np.random.default_rng([self.seed, number]).permutation(len(makers))
        names = [list(makers)[index] for index in order]
        others = [name for name in names if name != level]
        programs: dict[str, Program] = {}
        medians: dict[str, float] = {}
        groups = [[name for name in names if name in (level, other)] for other in others]
        for group in groups if self._is_large else [names]:
            programs = {name: program for name, program in programs.items() if name in group}
            return_freed()  # else new sessions lie beside what is left of those before
            programs |= {name: makers[name]() for name in group if name not in programs}
            timings = self._timed(programs, points, LEAST_ROUNDS)
            scale = medians.get(level, timings.median(level)) / timings.median(level)
            medians |= {name: scale * timings.median(name) for name in group}
        return {"original": medians[DEFAULT_LEVEL], **medians}


def _is_no_gain(timings: Timings) -> bool:
    """True if no level takes less time than "all" by so much that it may be faster, with 95 % confidence."""
    others = (name for name in timings.samples if name != DEFAULT_LEVEL)
    return all(timings.ratio_bound(DEFAULT_LEVEL, name) < 1 / _PROMISING for name in others)


def confirmed_level(row: SessionLevel, times: Mapping[str, Sequence[float]]) -> SessionLevel:
    """A level judged by its times in several sessions, beside those at "all" and those of the original at "all".

    It is kept if it saves two hundredths, and the upper 95 % bound of its time is below that at "all", and below that
    of the original.
    """
    count = len(times.get(row.name, ()))
    if count < LEAST_ROUNDS:
        return replace(row, sessions=count, why=_NO_TIME)
    level, base, original = (times[name] for name in (row.name, DEFAULT_LEVEL, "original"))
    ratio = float(np.median(np.divide(level, base)))
    row = replace(
        row,
        ratio=ratio,
        bound=ratio_bound(level, base),
        new_old=float(np.median(np.divide(level, original))),
        new_old_bound=ratio_bound(level, original),
        sessions=count,
    )
    if ratio > WORTH:
        return replace(row, why="it saves less than 2 %")
    if max(row.bound or 1.0, row.new_old_bound or 1.0) >= 1:
        return replace(row, why="it is faster in the median, but not with 95 % confidence")
    return replace(row, kept=True, why=f'measured at {ratio:.3f} of the time at "all", at most {row.bound:.3f} (95 %)')
