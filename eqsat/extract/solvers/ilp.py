"""Exact extraction: greedy, reductions, bounds by dual ascent, then HiGHS on the parts that are left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.program import provides_roots
from eqsat.extract.problem.solution import Solution, Status, choice_of, decode
from eqsat.extract.solvers.bounds import ruled_out, tree_bound
from eqsat.extract.solvers.greedy import best_greedy, shared_greedy
from eqsat.extract.solvers.highs import Clock, Progress, deadline_of
from eqsat.extract.solvers.model import TOLERANCE, IntegerProgram, Relaxed
from eqsat.extract.solvers.neighbourhood import solve_windows
from eqsat.extract.solvers.presolve import Presolved
from eqsat.extract.solvers.search import IlpSearch
from eqsat.system.deadline import Deadline

FAR = 0.02
"""Relative gap from which neighbourhoods are searched; below, the relaxation has led to a good choice already."""

CORE_GAP = 0.02
"""Relative gap above which a core that brings nothing is the last: the bound is too far from the optimum."""

PARTS = (1 / 64, 1 / 16, 1 / 4)
"""Supposed costs, as parts of the way from the bound to the best choice."""

MOST_KEPT = 0.6
"""Part of the options that a core may have."""

MOST_TIME = 0.25
"""Part of the time left that one core may take."""

CORE_NODES = 20
"""Most branch-and-bound nodes for one core: those that need more are hardly easier than the whole."""


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
        begin = shared_greedy(problem.program)
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


def solve_cores(search: IlpSearch, reduction: Presolved, model: IntegerProgram, relaxed: Relaxed) -> None:
    """Solve cores of growing size until one proves the best choice optimal, or they promise little.

    A core has the options of choices that cost little more than the bound: the relaxation rules out more options as the
    cost to beat falls. Supposing a cost between the bound and the best choice leaves a small program; either its
    optimum is below that cost, and then no choice at all is cheaper, or none is, and then the supposed cost is a bound.
    """
    for part in PARTS:
        low = search.bound()
        if search.done() or search.clock.stop():
            return
        before, reach = search.cost, low + part * (search.aim() - low)
        if not _solve_core(search, reduction, model, relaxed, reach):
            return
        search.report()
        if search.cost >= before and low < before * (1 - CORE_GAP):
            return


def _solve_core(search: IlpSearch, reduction: Presolved, model: IntegerProgram, relaxed: Relaxed, reach: float) -> bool:
    """Look for choices below `reach`; False where the program would hardly be smaller."""
    small = reduction.program
    out = model.gone.union(ruled_out(small, relaxed.ascent, reach - reduction.paid))
    options = [option for option in range(len(small.provides)) if option not in out]
    if len(options) > MOST_KEPT * len(small.provides):
        return False
    if not provides_roots(small.restricted(options)):
        search.lift(reach)
        return True
    child = _search_among(search, reduction, options, reach)
    search.lift(min(reach, child.bound() + reduction.paid))
    return True


def solve_support(search: IlpSearch, reduction: Presolved, relaxed: Relaxed) -> None:
    """Look for choices among the options of the relaxation and of the best choice; prove nothing."""
    small = reduction.program
    known = set((reduction.shrink(search.choice) or {}).values())
    options = [o for o in range(len(small.provides)) if relaxed.values[o] > TOLERANCE or o in known]
    if provides_roots(small.restricted(options)):
        _search_among(search, reduction, options, search.aim())
        search.report()


def _search_among(search: IlpSearch, reduction: Presolved, options: list[int], reach: float) -> IlpSearch:
    """Search the program of the `options` for choices below `reach`, and offer the choices found."""
    near = reduction.program.restricted(options)
    clock = Clock(search.clock.deadline.part(MOST_TIME), search.clock.stop)
    child = search.child(near, best_greedy(near), reduction.broken, clock)
    child.cutoff, child.nodes = reach - reduction.paid, CORE_NODES
    child.run()
    search.offer(reduction.expand({goal: options[option] for goal, option in child.best().items()}))
    return child
