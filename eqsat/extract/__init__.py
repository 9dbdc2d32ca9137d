"""Extraction: the cheapest acyclic choice of e-nodes, with a proven bound."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Protocol, cast

from eqsat.errors import UsageError, nearest
from eqsat.extract.limited.bounded import solve_limited, solve_priced
from eqsat.extract.problem.limits import PEAK, Limit, Memory
from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.problem import ProblemNode as Node
from eqsat.extract.problem.problem import StateConversion as Conversion
from eqsat.extract.problem.solution import Solution, choice_of
from eqsat.extract.solvers.backtracking import ALPHA, solve_backtracking
from eqsat.extract.solvers.greedy import greedy
from eqsat.extract.solvers.ilp import solve_ilp
from eqsat.system.deadline import Deadline
from eqsat.system.plugins import Registry

__all__ = [
    "EXTRACTORS",
    "PEAK",
    "Conversion",
    "Extractor",
    "Limit",
    "Memory",
    "Node",
    "Problem",
    "Solution",
    "extractor_of",
    "solve",
]


class Extractor(Protocol):
    """Chooses e-nodes for a problem; see `solve` for the arguments."""

    def __call__(
        self,
        problem: Problem,
        *,
        time_limit: float | Deadline,
        relative_gap: float,
        seed: int,
        progress: Callable[[float, float], None] | None,
        should_stop: Callable[[], bool] | None,
    ) -> Solution:
        """The best choice found before it was stopped."""
        ...


def _greedy(problem: Problem, *, progress: Callable[[float, float], None] | None, **unused: object) -> Solution:
    solution = greedy(problem)
    if progress is not None:
        progress(solution.cost, solution.lower_bound)
    return solution


def _checked(name: str, given: object) -> Extractor:
    if not callable(given):
        raise UsageError(f"{given!r} is no extractor", expected="a function as eqsat.extract.Extractor has it")
    return cast(Extractor, given)


#: Every extractor by name; those of other packages are entry points of "eqsat.extractors".
EXTRACTORS: Registry[Extractor] = Registry(
    "eqsat.extractors", {"ilp": solve_ilp, "greedy": _greedy, "backtracking": solve_backtracking}, _checked
)


def extractor_of(name: str) -> Extractor:
    """The extractor of a name; UsageError for one that there is not."""
    if not isinstance(name, str) or name not in EXTRACTORS:
        raise UsageError(
            f"no extractor {name!r}",
            expected="one of " + ", ".join(sorted(EXTRACTORS)),
            remedy=nearest(name, EXTRACTORS),
        )
    return EXTRACTORS[name]


def solve(
    problem: Problem,
    *,
    extractor: str = "ilp",
    time_limit: float | Deadline = 30.0,
    relative_gap: float = 0.0,
    seed: int = 0,
    progress: Callable[[float, float], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    alpha: float | None = None,
    start: Collection[int] | None = None,
    known: Sequence[Solution] = (),
) -> Solution:
    """The cheapest choice of e-nodes that `extractor` finds: "ilp", "greedy", "backtracking", or one of a plug-in.

    `time_limit` is in seconds, or a deadline; the search also ends within `relative_gap` of the optimum, when
    `should_stop()` returns True, and at Ctrl-C: each returns the best choice found. `progress(best_cost, lower_bound)`
    follows the search.
    Where the problem has limits, the choice keeps them, or ExtractionError gives the tightest bounds; the
    heuristic extractors may find no such choice where there is one, and say that.
    `alpha` (1.05 if left out) and `start`, the nodes of the original graph, are for backtracking alone; `known` are
    solutions that the integer program's costs no more than.

    >>> cheap, dear = Node(0, (), 1.0), Node(0, (), 2.0)
    >>> solve(Problem([dear, cheap], roots=[(0, 0)])).chosen
    {(0, 0): 1}
    """
    run = extractor_of(extractor)
    if not isinstance(time_limit, Deadline) and not time_limit >= 0:
        raise UsageError(f"time_limit={time_limit!r}", expected="seconds, 0 or more")
    if not 0 <= relative_gap < 1:
        raise UsageError(f"relative_gap={relative_gap!r}", expected="a fraction from 0 to 1")
    if extractor == "backtracking":
        run = partial(solve_backtracking, start=start, alpha=ALPHA if alpha is None else alpha)
    elif alpha is not None or start is not None:
        raise UsageError(
            f"{'start' if alpha is None else f'alpha={alpha!r}'} with extractor={extractor!r}",
            expected="alpha and start for the search that reads them: extractor='backtracking'",
            remedy=f"leave it out: extractor={extractor!r} finds its own way",
        )
    if known and extractor != "ilp":
        raise UsageError(f"known solutions with extractor={extractor!r}", expected="them for extractor='ilp' alone")
    if extractor == "ilp" and not problem.is_limited:
        run = partial(solve_ilp, known=known)
    if problem.is_limited:
        begin = choice_of(problem, min(known, key=lambda solution: solution.cost)) if known else None
        run = partial(solve_limited, start=begin) if extractor == "ilp" else partial(solve_priced, run)
    return run(
        problem,
        time_limit=time_limit,
        relative_gap=relative_gap,
        seed=seed,
        progress=progress,
        should_stop=should_stop,
    )
