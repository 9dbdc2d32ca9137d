"""Runs HiGHS so that Ctrl-C, a stop request and the clock are honoured."""

from __future__ import annotations

import atexit
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeVar
from weakref import ref

import numpy as np

from eqsat.errors import ExtractionError
from eqsat.extract.solvers.model import IntegerProgram, Row, Values
from eqsat.system.deadline import Deadline, current

Progress = Callable[[float, float], None]
Searching = TypeVar("Searching")

RESTART_OPTIONS = 1000
"""Options above which HiGHS may reduce the program anew after its root node; below, branching is faster."""

POLL = 0.05
"""Seconds between looks at the stop request while HiGHS runs."""

GRACE = 0.1
"""Seconds that HiGHS is given to stop."""

RESERVE = 0.05
"""Part of the time left that HiGHS is to end before the deadline: left to end by itself, it tells no bound."""

MOST_RESERVE = 5.0
"""Most seconds of that."""

ITERATION = 10
"""Steps that an iteration of the simplex method counts for, where steps are counted."""


_LEFT: list[threading.Thread] = []
"""Threads of HiGHS that were left to end by themselves."""


@atexit.register
def _end() -> None:
    """Wait for HiGHS: Python ends a thread that calls back after its end in a way that aborts the process."""
    for thread in _LEFT:
        thread.join()


def deadline_of(time_limit: float | Deadline) -> Deadline:
    """The deadline of a search: the one given, or one in so many seconds, no later than that of the whole call."""
    return time_limit if isinstance(time_limit, Deadline) else current().part(most=time_limit)


@dataclass(slots=True)
class Clock:
    """The moment to stop: a deadline, the caller's request, or Ctrl-C."""

    deadline: Deadline
    should_stop: Callable[[], bool] | None = None
    interrupted: bool = False
    late: bool = False

    def stop(self) -> bool:
        """Return whether to stop now; remembers why."""
        if not self.interrupted and self.should_stop is not None and self.should_stop():
            self.interrupted = True
        self.late = self.late or self.deadline.over
        return self.interrupted or self.late

    def left(self) -> float:
        """Seconds, or counted steps, to the deadline."""
        return self.deadline.left

    @contextmanager
    def hearing_interrupts(self) -> Iterator[None]:
        """Take the first Ctrl-C down as a request to stop; a second one raises KeyboardInterrupt.

        An exception may be raised wherever Python is, and is lost where that is a garbage collector's callback. Where
        another handler is installed, or in another thread than the main one, nothing changes.
        """
        ours = threading.current_thread() is threading.main_thread()
        if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def handle(number: int, frame: FrameType | None) -> None:
            if self.interrupted:
                signal.default_int_handler(number, frame)
            self.interrupted = True

        signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def reporter(
    search: Searching, standing: Callable[[Searching], tuple[float, float] | None], progress: Progress | None
) -> Callable[[], None]:
    """A function that calls `progress` whenever the cost or the bound, the `standing` of a search, has improved."""
    last = (math.inf, -1.0)
    searched = ref(search)  # a cycle would keep the e-graph, which only its own thread may free

    def report() -> None:
        nonlocal last
        search = searched()
        now = None if search is None or progress is None else standing(search)
        if progress is not None and now is not None and (now[0] < last[0] or now[1] > last[1]):
            last = now
            progress(*now)

    return report


@dataclass(slots=True)
class SolverOutcome:
    """The end of a solve; `values` is empty if none were found, the bound infinite if there are none."""

    finished: bool
    bound: float
    values: Values = field(default_factory=lambda: np.zeros(0))
    reduced: Values = field(default_factory=lambda: np.zeros(0))


class Solver:
    """One HiGHS model, to which rows may be added between solves."""

    def __init__(self, model: IntegerProgram, costs: Sequence[float], *, seed: int) -> None:
        import highspy

        self._highspy = highspy
        self._highs = highspy.Highs()
        self._stop, self._most = False, 2**62
        restart = model.binary > RESTART_OPTIONS
        options = {
            "output_flag": False,
            "threads": 1,
            "random_seed": seed % 2**31,
            "mip_allow_restart": restart,
            "dual_simplex_cost_perturbation_multiplier": 0.0,
        }
        for name, value in options.items():
            self._highs.setOptionValue(name, value)
        self._columns = len(model.upper)
        self._binary = model.binary
        self._build(model, costs)
        for callback in (self._highs.cbMipInterrupt, self._highs.cbSimplexInterrupt):
            callback.subscribe(self._on_interrupt)
        self._highs.cbMipImprovingSolution.subscribe(self._on_solution)

    def _build(self, model: IntegerProgram, costs: Sequence[float]) -> None:
        columns = len(model.upper)
        price = np.zeros(columns)
        price[: len(costs)] = costs
        lower = np.zeros(columns)
        lower[[model.goal(root) for root in model.program.roots]] = 1.0
        upper = np.array(model.upper)
        upper[sorted(model.gone)] = 0.0
        empty = np.zeros(0, dtype=np.int32)
        self._highs.addCols(columns, price, lower, upper, 0, np.zeros(columns, dtype=np.int32), empty, np.zeros(0))
        self.add(model.rows)
        self.add(model.equal, equal=True)

    def add(self, rows: Sequence[Row], *, equal: bool = False) -> None:
        """Add rows `<=`, or `==`."""
        if not rows:
            return
        upper = np.array([row[2] for row in rows])
        below = upper if equal else np.full(len(rows), -self._highspy.kHighsInf)
        sizes = [len(row[0]) for row in rows]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        index = np.fromiter((c for row in rows for c in row[0]), dtype=np.int32, count=sum(sizes))
        value = np.fromiter((a for row in rows for a in row[1]), dtype=np.float64, count=sum(sizes))
        self._highs.addRows(len(rows), below, upper, sum(sizes), starts, index, value)

    def exclude(self, columns: Sequence[int]) -> None:
        """Fix columns at 0."""
        if columns:
            zeros = np.zeros(len(columns))
            self._highs.changeColsBounds(len(columns), np.array(columns, dtype=np.int32), zeros, zeros)

    def relax(self, clock: Clock) -> SolverOutcome:
        """Solve the linear relaxation, warm from the last one."""
        self._bound(clock)
        if not self._run(clock, None, None):
            return SolverOutcome(False, 0.0)
        status = self._highs.getModelStatus()
        if status == self._highspy.HighsModelStatus.kInfeasible:
            return SolverOutcome(False, float("inf"))
        if status != self._highspy.HighsModelStatus.kOptimal:
            return SolverOutcome(False, 0.0)
        solution = self._highs.getSolution()
        bound = float(self._highs.getInfo().objective_function_value)
        return SolverOutcome(True, bound, np.array(solution.col_value), np.array(solution.col_dual))

    def solve(
        self,
        clock: Clock,
        *,
        relative_gap: float,
        nodes: int | None = None,
        start: dict[int, float] | None = None,
        watch: Callable[[], bool | None] | None = None,
        see: Callable[[Values], None] | None = None,
    ) -> SolverOutcome:
        """Solve the integer program from a warm start, with at most `nodes` branch-and-bound nodes.

        `watch` is called while it runs, and says whether the known solution is enough; `see` with better ones. The
        bound is that at the end: the bound that HiGHS reports on the way has been above the optimum.
        """
        count = self._binary
        kind = np.full(count, int(self._highspy.HighsVarType.kInteger), dtype=np.uint8)
        self._highs.changeColsIntegrality(count, np.arange(count, dtype=np.int32), kind)
        self._highs.setOptionValue("mip_rel_gap", relative_gap)
        self._highs.setOptionValue("mip_abs_gap", 0.0)
        if nodes is not None:
            self._highs.setOptionValue("mip_max_nodes", nodes)
        self._bound(clock)
        if start is not None:
            columns = np.array(sorted(start), dtype=np.int32)
            self._highs.setSolution(len(columns), columns, np.array([start[c] for c in sorted(start)]))
        if not self._run(clock, watch, see):
            return SolverOutcome(False, -float("inf"), self._found)
        info = self._highs.getInfo()
        status = self._highs.getModelStatus()
        is_feasible = info.primal_solution_status == self._highspy.SolutionStatus.kSolutionStatusFeasible
        values = np.array(self._highs.getSolution().col_value) if is_feasible else np.zeros(0)
        if status == self._highspy.HighsModelStatus.kInfeasible:
            return SolverOutcome(False, float("inf"))
        finished = status == self._highspy.HighsModelStatus.kOptimal
        return SolverOutcome(finished, float(info.mip_dual_bound), values)

    def _bound(self, clock: Clock) -> None:
        """Limit the run of HiGHS: by seconds, or by iterations, of which the same number is done every time."""
        steps = clock.deadline.steps
        if steps is None:
            left = clock.deadline.seconds
            left -= min(RESERVE * left, MOST_RESERVE)
            self._highs.setOptionValue("time_limit", left + self._highs.getRunTime())
            return
        self._most = max(steps // ITERATION, 1)
        self._highs.setOptionValue("simplex_iteration_limit", min(self._most, 2**31 - 1))

    def _run(
        self,
        clock: Clock,
        watch: Callable[[], bool | None] | None,
        see: Callable[[Values], None] | None,
    ) -> bool:
        """HiGHS in a thread of its own, which leaves this one free to be interrupted.

        False if HiGHS did not hear in time that it should stop, which some of its phases take seconds for: then it is
        left to end by itself, and must not be used any more. Where steps are counted, nothing that it finds on the way
        is looked at before its end, for when that would be depends on the machine.
        """
        self._stop, self._found = False, np.zeros(0)
        if clock.deadline.counts_steps:
            watch = see = None
        seen, failure, patience = self._found, list[BaseException](), math.inf

        def work() -> None:
            try:
                self._highs.run()
            except Exception as error:  # noqa: BLE001 - handed to the calling thread below
                failure.append(error)

        thread = threading.Thread(target=work, name="highs", daemon=True)
        thread.start()
        while thread.is_alive() and time.monotonic() < patience:
            try:
                thread.join(POLL)
                if clock.stop():
                    self._stop, patience = True, min(patience, time.monotonic() + GRACE)
                if watch is not None and thread.is_alive() and watch():
                    self._stop = True
                if see is not None and self._found is not seen and not self._stop:
                    seen = self._found
                    see(seen)
            except KeyboardInterrupt:
                clock.interrupted = self._stop = True
        if thread.is_alive():
            _LEFT[:] = [one for one in (*_LEFT, thread) if one.is_alive()]
        if failure:
            raise ExtractionError(f"HiGHS failed: {failure[0]}") from failure[0]
        if clock.deadline.counts_steps:
            info = self._highs.getInfo()
            # HiGHS looks at the number of iterations seldom: what it takes beyond its part is no loss of what follows.
            taken = ITERATION * max(int(info.simplex_iteration_count), 1)
            clock.deadline.spend(min(taken, max(int(clock.deadline.left), 1)))
        return not thread.is_alive()

    def _on_solution(self, event: Any) -> None:
        self._found = np.array(event.data_out.mip_solution)

    def _on_interrupt(self, event: Any) -> None:
        if self._stop or event.data_out.simplex_iteration_count > self._most:
            event.interrupt()
