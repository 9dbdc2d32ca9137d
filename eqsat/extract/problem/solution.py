"""A choice of e-nodes with its cost, a proven lower bound, and the reason why the search ended."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from eqsat.errors import ExtractionError
from eqsat.extract.problem.limits import PEAK, Memory, exceeds, written
from eqsat.extract.problem.memory import Liveness
from eqsat.extract.problem.problem import Goal, Problem
from eqsat.extract.problem.program import Choice, closure

Status = Literal["optimal", "time_limit", "interrupted", "heuristic"]


@dataclass(slots=True)
class Solution:
    """The choice for every needed (e-class, state): a node index, or one of `conversions` (indices).

    `lower_bound` holds for every acyclic choice within the limits; `seconds` is wall time. `amounts` is the use of
    every resource that the problem names, peak memory included; `schedule` is the order of which it is the peak, empty
    where the problem has no memory.
    """

    chosen: dict[Goal, int]
    conversions: frozenset[int]
    cost: float
    lower_bound: float
    status: Status
    seconds: float
    amounts: dict[str, float] = field(default_factory=dict)
    schedule: tuple[Goal, ...] = ()

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
        _check_amounts(self, problem, needs)
        if problem.memory is not None:
            terms.append(problem.memory.weight * self.amounts[PEAK])
        cost = math.fsum(terms)
        if not math.isclose(cost, self.cost, rel_tol=1e-9, abs_tol=1e-300):
            raise ExtractionError(f"the solution claims cost {self.cost!r}", expected=f"{cost!r}, the sum of its parts")
        if self.lower_bound > cost * (1 + 1e-9):
            raise ExtractionError(
                f"lower bound {self.lower_bound!r} exceeds the cost {cost!r}", expected="a bound below the cost"
            )


def choice_of(problem: Problem, solution: Solution) -> Choice:
    """The options that a solution stands for, by the goal they provide."""
    options = [*solution.chosen.values(), *(len(problem.nodes) + c for c in sorted(solution.conversions))]
    return {problem.program.provides[option]: option for option in options}


def decode(problem: Problem, choice: Choice, *, lower_bound: float, status: Status, seconds: float) -> Solution:
    """The solution of a choice of options, pruned to those that the roots use, with its exact cost."""
    used = closure(problem.program, choice, problem.program.roots)
    goals, natives = problem.goals, len(problem.nodes)
    chosen = {goals[goal]: option for goal, option in sorted(used.items()) if option < natives}
    conversions = frozenset(option - natives for option in used.values() if option >= natives)
    terms = [problem.program.costs[option] for option in used.values()]
    amounts = {limit.name: limit.total(tuple(chosen.values()), tuple(conversions)) for limit in problem.limits}
    schedule: tuple[Goal, ...] = ()
    if problem.memory is not None:
        plan, order = Liveness(problem.program, goals, problem.memory).schedule(used)
        amounts[PEAK], schedule = plan.peak, tuple(goals[goal] for goal in order)
        terms.append(problem.memory.weight * plan.peak)
    cost = math.fsum(terms)
    return Solution(chosen, conversions, cost, min(lower_bound, cost), status, seconds, amounts, schedule)


def _check_amounts(solution: Solution, problem: Problem, needs: dict[Goal, tuple[Goal, ...]]) -> None:
    amounts = {
        limit.name: limit.total(tuple(solution.chosen.values()), tuple(solution.conversions))
        for limit in problem.limits
    }
    most = {limit.name: limit.most for limit in problem.limits}
    if problem.memory is not None:
        amounts[PEAK], most[PEAK] = _simulated(solution, problem, problem.memory, needs), problem.memory.most
    if set(amounts) != set(solution.amounts):
        raise ExtractionError(
            f"the solution says what it uses of {sorted(solution.amounts)}", expected=f"amounts of {sorted(amounts)}"
        )
    for name, amount in amounts.items():
        if not math.isclose(amount, solution.amounts[name], rel_tol=1e-9, abs_tol=1e-300):
            raise ExtractionError(f"the solution claims {name} {solution.amounts[name]!r}", expected=f"{amount!r}")
        if exceeds(amount, most[name]):
            raise ExtractionError(
                f"the solution needs {name} {written(name, amount)}", expected=f"at most {written(name, most[name])}"
            )


def _check_schedule(solution: Solution, problem: Problem, needs: dict[Goal, tuple[Goal, ...]]) -> None:
    done: set[Goal] = set()
    for goal in solution.schedule:
        if goal not in needs or goal in done:
            raise ExtractionError("scheduled but not chosen, or twice", where=problem.describe(goal))
        late = [need for need in needs[goal] if need not in done]
        if late:
            raise ExtractionError(f"scheduled before {problem.describe(late[0])}", where=problem.describe(goal))
        done.add(goal)
    missing = sorted(set(needs) - done)
    if missing:
        raise ExtractionError("chosen but not scheduled", where=problem.describe(missing[0]))


def _simulated(solution: Solution, problem: Problem, memory: Memory, needs: dict[Goal, tuple[Goal, ...]]) -> float:
    """The peak of the solution's schedule, step by step, from the problem alone."""
    _check_schedule(solution, problem, needs)
    options = list(solution.chosen.values()) + [len(problem.nodes) + c for c in solution.conversions]
    providers = {problem.goals[problem.program.provides[option]]: option for option in options}
    storage: dict[Goal, Goal] = {}
    left: Counter[Goal] = Counter()
    for goal in solution.schedule:
        storage[goal] = storage[memory.aliases[providers[goal]]] if providers[goal] in memory.aliases else goal
        if needs[goal]:
            left.update({storage[goal]} | {storage[need] for need in needs[goal]})
    to_the_end = {storage[root] for root in problem.roots}
    live = {goal for goal in solution.schedule if not needs[goal]}
    peak = math.fsum(memory.sizes.get(goal, 0.0) for goal in live)
    for goal in solution.schedule:
        if not needs[goal]:
            continue
        touched = {storage[goal]} | {storage[need] for need in needs[goal]}
        live |= touched
        peak = max(peak, math.fsum(memory.sizes.get(other, 0.0) for other in live))
        left.subtract(touched)
        live -= {other for other in touched if not left[other]} - to_the_end
    return peak


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
