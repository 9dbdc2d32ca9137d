"""Solutions of the integer program read back: choices, reduced costs, and repairs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from eqsat.extract.problem.program import Choice, ExtractionProgram
from eqsat.extract.solvers.bounds import Ascent, dual_ascent
from eqsat.extract.solvers.model import IntegerProgram, Row, Values


@dataclass(slots=True)
class Relaxed:
    """The solved relaxation of a program: its bound, and its solution by column."""

    ascent: Ascent
    values: Values


def selected(program: ExtractionProgram, values: Values) -> Choice:
    """For every goal the option of largest value."""
    return {
        goal: max(members, key=lambda option: (values[option], -option))
        for goal, members in enumerate(program.by_goal)
        if members
    }


def reduced_costs(model: IntegerProgram, duals: Values) -> list[float]:
    """The reduced cost of every option and its goal: its part in the bound of the relaxation with these duals.

    The bound has those of the roots in it already, as roots are always there.
    """
    spare = duals.clip(0.0)
    spare[[model.goal(root) for root in model.program.roots]] = 0.0
    return [float(spare[o] + spare[model.goal(goal)]) for o, goal in enumerate(model.program.provides)]


def repairs(model: IntegerProgram, choice: Choice) -> list[Row]:
    """Cuts that forbid the cycles of a choice: loop formulas, and supports that it leaves without an option."""
    cuts = model.cut_choice(choice)
    if not cuts:
        return []
    used = set(choice.values())
    least = max(model.program.costs) / 100
    costs = [0.0 if o in used else cost + least for o, cost in enumerate(model.program.costs)]
    return cuts + model.cover(dual_ascent(model.program, costs, rounds=30).supports)


def scaling(cost: float) -> float:
    """A power of two that brings costs to the thousands, where HiGHS's tolerances are harmless."""
    if cost <= 0:
        return 1.0
    # The exponents of costs and of what is left of them stay far inside those of floating-point numbers.
    return float(2.0 ** min(max(round(10.0 - math.log2(cost)), -900), 900))
