"""A choice of e-nodes with its cost, a proven lower bound, and what ended the search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from eqsat.errors import ExtractionError
from eqsat.extract.problem import Goal, Problem
from eqsat.extract.program import Choice, closure

Status = Literal["optimal", "time_limit", "interrupted", "heuristic"]


@dataclass(slots=True)
class Solution:
    """What was chosen for every needed (e-class, state): a node index, or one of `conversions` (indices).

    `lower_bound` holds for every acyclic choice; `seconds` is wall time.
    """

    chosen: dict[Goal, int]
    conversions: frozenset[int]
    cost: float
    lower_bound: float
    status: Status
    seconds: float

    @property
    def gap(self) -> float:
        """(cost - lower bound) / cost; 0 when they are equal."""
        return 0.0 if self.cost <= self.lower_bound else (self.cost - self.lower_bound) / self.cost

    def check(self, problem: Problem) -> None:
        """Recompute everything from the problem alone; raise ExtractionError at the first thing that is wrong."""
        needs = _providers(self, problem)
        order = _ordered(needs, problem)
        _check_closed(order, needs, problem)
        terms = [problem.nodes[n].cost for n in self.chosen.values()]
        terms += [problem.conversions[c].cost for c in self.conversions]
        cost = math.fsum(terms)
        if not math.isclose(cost, self.cost, rel_tol=1e-9, abs_tol=1e-300):
            raise ExtractionError(f"the solution claims cost {self.cost!r}", expected=f"{cost!r}, the sum of its parts")
        if self.lower_bound > cost * (1 + 1e-9):
            raise ExtractionError(
                f"lower bound {self.lower_bound!r} exceeds the cost {cost!r}", expected="a bound below the cost"
            )


def decode(problem: Problem, choice: Choice, *, lower_bound: float, status: Status, seconds: float) -> Solution:
    """The solution of a choice of options, pruned to what the roots use, with its exact cost."""
    used = closure(problem.program, choice, problem.program.roots)
    goals, natives = problem.goals, len(problem.nodes)
    chosen = {goals[goal]: option for goal, option in sorted(used.items()) if option < natives}
    conversions = frozenset(option - natives for option in used.values() if option >= natives)
    cost = math.fsum(problem.program.costs[option] for option in used.values())
    return Solution(chosen, conversions, cost, min(lower_bound, cost), status, seconds)


def _providers(solution: Solution, problem: Problem) -> dict[Goal, tuple[Goal, ...]]:
    needs: dict[Goal, tuple[Goal, ...]] = {}
    for goal, index in solution.chosen.items():
        if not 0 <= index < len(problem.nodes):
            raise ExtractionError(f"chosen node {index} does not exist", where=problem.describe(goal))
        node = problem.nodes[index]
        if (node.eclass, node.state) != goal:
            raise ExtractionError(
                f"chosen node {index} delivers {problem.describe((node.eclass, node.state))}",
                where=problem.describe(goal),
            )
        needs[goal] = node.operands
    for index in sorted(solution.conversions):
        if not 0 <= index < len(problem.conversions):
            raise ExtractionError(f"chosen conversion {index} does not exist")
        conversion = problem.conversions[index]
        goal = (conversion.eclass, conversion.target)
        if goal in needs:
            raise ExtractionError("delivered twice", where=problem.describe(goal), expected="one provider")
        needs[goal] = ((conversion.eclass, conversion.source),)
    return needs


def _ordered(needs: dict[Goal, tuple[Goal, ...]], problem: Problem) -> list[Goal]:
    """The goals the roots use, operands first."""
    done: dict[Goal, None] = {}
    open_: set[Goal] = set()
    stack = [(root, False) for root in reversed(problem.roots)]
    while stack:
        goal, leave = stack.pop()
        if leave:
            open_.discard(goal)
            done[goal] = None
            continue
        if goal in done:
            continue
        if goal in open_:
            raise ExtractionError("the solution is cyclic", where=problem.describe(goal))
        if goal not in needs:
            raise ExtractionError("needed but not chosen", where=problem.describe(goal))
        open_.add(goal)
        stack.append((goal, True))
        for need in needs[goal]:
            if need in open_:
                raise ExtractionError("the solution is cyclic", where=problem.describe(need))
            if need not in done:
                stack.append((need, False))
    return list(done)


def _check_closed(order: list[Goal], needs: dict[Goal, tuple[Goal, ...]], problem: Problem) -> None:
    extra = sorted(set(needs) - set(order))
    if extra:
        raise ExtractionError("chosen but not needed by any root", where=problem.describe(extra[0]))
