"""Cores of large programs: the options of choices that cost little more than the bound, solved by themselves.

What the relaxation rules out grows as the cost to beat falls. Supposing a cost between the bound and the best choice
leaves a small program; either its optimum is below that cost, and then no choice at all is cheaper, or none is, and
then the supposed cost is a bound.
"""

from __future__ import annotations

from eqsat.extract.problem.program import derivable
from eqsat.extract.solvers.bounds import ruled_out
from eqsat.extract.solvers.greedy import best_greedy
from eqsat.extract.solvers.highs import Clock
from eqsat.extract.solvers.model import TOLERANCE, IntegerProgram
from eqsat.extract.solvers.neighbourhood import restrict
from eqsat.extract.solvers.points import Relaxed
from eqsat.extract.solvers.presolve import Presolved
from eqsat.extract.solvers.search import IlpSearch

PARTS = (1 / 64, 1 / 16, 1 / 4)
"""Supposed costs, as parts of the way from the bound to the best choice."""

MOST_KEPT = 0.6
"""Part of the options that a core may have."""


MOST_TIME = 0.25
"""Part of the time left that one core may take."""

FAR = 0.02
"""Relative gap above which a core that brings nothing is the last: the bound is too far from the optimum."""

CORE_NODES = 20
"""Most branch-and-bound nodes for one core: those that need more are hardly easier than the whole."""


def solve_cores(search: IlpSearch, reduction: Presolved, model: IntegerProgram, relaxed: Relaxed) -> None:
    """Solve cores of growing size until one proves the best choice optimal, or they promise little."""
    for part in PARTS:
        low = search.bound()
        if search.done() or search.clock.stop():
            return
        before, reach = search.cost, low + part * (search.aim() - low)
        if not _solve_core(search, reduction, model, relaxed, reach):
            return
        search.report()
        if search.cost >= before and low < before * (1 - FAR):
            return


def _solve_core(search: IlpSearch, reduction: Presolved, model: IntegerProgram, relaxed: Relaxed, reach: float) -> bool:
    """Look for choices below `reach`; False where the program would hardly be smaller."""
    small = reduction.program
    out = model.gone.union(ruled_out(small, relaxed.ascent, reach - reduction.paid))
    kept = [option for option in range(len(small.provides)) if option not in out]
    if len(kept) > MOST_KEPT * len(small.provides):
        return False
    near = restrict(small, kept)
    can = derivable(near)
    if not all(can[root] for root in near.roots):
        search.lift(reach)
        return True
    child = _solve(search, reduction, kept, reach)
    search.lift(min(reach, child.bound() + reduction.paid))
    return True


def solve_support(search: IlpSearch, reduction: Presolved, relaxed: Relaxed) -> None:
    """Look for choices among the options of the relaxation and of the best choice; prove nothing."""
    small = reduction.program
    known = set((reduction.shrink(search.choice) or {}).values())
    kept = [o for o in range(len(small.provides)) if relaxed.values[o] > TOLERANCE or o in known]
    can = derivable(restrict(small, kept))
    if all(can[root] for root in small.roots):
        _solve(search, reduction, kept, search.aim())
        search.report()


def _solve(search: IlpSearch, reduction: Presolved, kept: list[int], reach: float) -> IlpSearch:
    """IlpSearch the program of the options `kept` for choices below `reach`, and offer the choices found."""
    near = restrict(reduction.program, kept)
    clock = Clock(search.clock.deadline.part(MOST_TIME), search.clock.stop)
    child = search.child(near, best_greedy(near), reduction.broken, clock)
    child.cutoff, child.nodes = reach - reduction.paid, CORE_NODES
    child.run()
    search.offer(reduction.expand({goal: kept[option] for goal, option in child.best().items()}))
    return child
