"""Exact extraction: greedy, reductions, bounds by dual ascent, then HiGHS on the parts that are left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.solution import Solution, Status, choice_of, decode
from eqsat.extract.solvers.bounds import tree_bound
from eqsat.extract.solvers.core import solve_cores, solve_support
from eqsat.extract.solvers.greedy import best_greedy
from eqsat.extract.solvers.highs import Clock, deadline_of
from eqsat.extract.solvers.model import IntegerProgram
from eqsat.extract.solvers.neighbourhood import solve_windows
from eqsat.extract.solvers.points import Relaxed
from eqsat.extract.solvers.presolve import Presolved
from eqsat.extract.solvers.search import IlpSearch, Progress
from eqsat.system.deadline import Deadline

FAR = 0.02
"""Relative gap from which neighbourhoods are searched; below, the relaxation has led to a good choice already."""


def solve_ilp(
    problem: Problem,
    *,
    time_limit: float | Deadline = 30.0,
    relative_gap: float = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
    known: Sequence[Solution] = (),
) -> Solution:
    """The choice of least DAG cost, or the best found when time, the caller or Ctrl-C ends the search.

    It never costs more than the greedy choices, nor than the solutions `known` already. `time_limit` is in seconds; a
    search that ends within `relative_gap` counts as optimal. `progress(best_cost, lower_bound)` is called when either
    improves.
    """
    began = time.monotonic()
    clock = Clock(deadline_of(time_limit), should_stop)
    with clock.hearing_interrupts():
        begin = best_greedy(problem.program)
        search = IlpSearch(problem.program, begin, clock, relative_gap, seed, set(), improve=improve)
        try:
            search.lift(tree_bound(problem.program))
            search.watch(progress)
            search.run()
        except KeyboardInterrupt:
            clock.interrupted = True
        # Offered at last: a search from a better start is another search, and may take longer to prove the same.
        for solution in known:
            search.offer(choice_of(problem, solution))
    return decode(
        problem,
        search.best(),
        lower_bound=search.bound(),
        status=_status(search, clock),
        seconds=time.monotonic() - began,
    )


def _status(search: IlpSearch, clock: Clock) -> Status:
    if search.done():
        return "optimal"
    return "interrupted" if clock.interrupted else "time_limit"


def improve(search: IlpSearch, reduction: Presolved, model: IntegerProgram, relaxed: Relaxed) -> None:
    """Solve cores of a program, then, if the bound stays far off, the relaxation's support and neighbourhoods."""
    solve_cores(search, reduction, model, relaxed)
    if search.bound() < search.cost * (1 - FAR):
        solve_support(search, reduction, relaxed)
        solve_windows(search, reduction, relaxed.values)
