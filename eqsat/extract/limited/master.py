"""The integer program of a limited problem: that of extraction, a row for every limit, and rows for peak memory.

Peak memory is no sum: of every choice that needs too much, a part is found that needs too much whatever goes with it,
and a row forbids that part (combinatorial Benders cuts). Where the peak has a price, a column stands for it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from eqsat.extract.limited.lagrange import Demand
from eqsat.extract.problem.program import Choice, closure, path_bounds
from eqsat.extract.solvers.flows import flow_cuts
from eqsat.extract.solvers.highs import Clock, Solver, SolverOutcome
from eqsat.extract.solvers.model import IntegerProgram, Row, Values, selected
from eqsat.extract.solvers.presolve import Presolved

UNIT = 1024.0
"""The value that a limit is scaled to, so that HiGHS's tolerance of 1e-6 is 1e-9 of it."""

VIOLATION = 1e-3
"""In these units: from here on a limit is broken, and not by rounding."""

STALLED_ROUNDS = 3
"""Rounds of cuts that hardly move the bound of the relaxation, before the integer solve."""

FLOW_ROUNDS = 4
"""Rounds in which flow cuts are looked for."""


class Master:
    """HiGHS on a reduced program; choices are those of the original one.

    `elastic` asks for the least violation instead of the least cost, so that there is always a solution.
    """

    def __init__(
        self,
        reduction: Presolved,
        demands: Sequence[Demand],
        *,
        scale: float,
        seed: int,
        elastic: bool = False,
        peak: tuple[float, float, float] | None = None,
    ) -> None:
        self.reduction, self.demands, self.elastic = reduction, demands, elastic
        self.small = reduction.program
        self.column = {parts[0]: option for option, parts in enumerate(reduction.parts)}
        self.goal = {
            reduction.original.provides[parts[0]]: self.small.provides[option]
            for option, parts in enumerate(reduction.parts)
        }
        self.model = IntegerProgram(self.small)
        if any(count > 1 for count in Counter(self.small.groups).values()):
            self.model.strengthen(reduction.broken)
        self.model.rows += self.model.break_pairs()
        costs = [0.0 if elastic else cost * scale for cost in self.small.costs]
        costs += [0.0] * (len(self.model.upper) - len(costs))
        self.slack = self.theta = -1
        self.excuse = -1
        if elastic:
            self.slack = self.model.column(UNIT * (1 + len(costs)))
            self.excuse = self.model.column()
            costs += [1.0, UNIT]
        self.peak = peak
        if peak is not None:
            _, unit, price = peak
            self.theta = self.model.column(UNIT)
            costs.append(price * unit * scale)
        for demand in demands:
            self.model.rows.append(self._knapsack(demand))
        self.scale, self.costs, self.seed = scale, costs, seed
        self.solver = Solver(self.model, costs, seed=seed)

    def _knapsack(self, demand: Demand) -> Row:
        """Sum of amounts <= limit; options that alone use more have been left out."""
        scale = UNIT / demand.most if demand.most > 0 else 1.0
        amounts = [demand.amounts[parts[0]] * scale for parts in self.reduction.parts]
        columns = [option for option, amount in enumerate(amounts) if amount > 0]
        values = [amounts[option] for option in columns]
        if self.elastic:
            columns.append(self.slack)
            values.append(-1.0)
        return tuple(columns), tuple(values), UNIT if demand.most > 0 else 0.0

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows between solves."""
        self.model.rows += rows
        self.solver.add(rows)

    def order(self, cuts: Sequence[Row]) -> None:
        """Add order variables where `cuts` had to forbid cycles."""
        if self.model.order(list(cuts)):
            self.solver = Solver(self.model, self.costs, seed=self.seed)

    def forbid(self, groups: Sequence[Sequence[int]]) -> Row:
        """Not one option of every group; options of one group exclude each other."""
        columns = [self.column[o] for group in groups for o in group if o in self.column]
        values = [1.0] * len(columns)
        if self.elastic:
            columns.append(self.excuse)
            values.append(-float(len(groups)))
        return tuple(columns), tuple(values), float(len(groups) - 1)

    def lift_peak(self, groups: Sequence[Sequence[int]], peak: float) -> Row:
        """With one option of every group, the peak is at least this."""
        assert self.peak is not None
        floor, unit, _ = self.peak
        rise = (peak - floor) / unit
        columns = [self.column[o] for group in groups for o in group if o in self.column]
        return (*columns, self.theta), (*([rise] * len(columns)), -1.0), rise * (len(groups) - 1)

    def cover(self, demand: Demand, choice: Choice) -> Row:
        """Forbid the largest users of a choice that together break a limit."""
        users = sorted(choice.values(), key=lambda option: (-demand.amounts[option], option))
        count, total = 0, 0.0
        while count < len(users) and total <= demand.most:
            total += demand.amounts[users[count]]
            count += 1
        return self.forbid([[option] for option in users[:count]])

    def relax(self, clock: Clock, see: Callable[[float, Choice], None]) -> None:
        """Cuts of the relaxation, until none is violated or they stop to help; `see` gets every bound and choice."""
        depth = path_bounds(self.small, self.small.users(), self.small.costs)
        last, stalled, rounds = -math.inf, 0, 0
        while not clock.stop() and stalled < STALLED_ROUNDS:
            outcome = self.solver.relax(clock)
            if not outcome.finished:
                return
            see(outcome.bound / self.scale, self.original(outcome.values))
            cuts = self.model.cut_point(outcome.values)
            rounds += 1
            if rounds <= FLOW_ROUNDS and not self.elastic:
                cuts += flow_cuts(self.model, outcome.values, depth)
            if not cuts:
                return
            stalled = stalled + 1 if outcome.bound <= last + 1e-5 * abs(last) else 0
            last = max(last, outcome.bound)
            self.add(cuts)

    def solve(self, clock: Clock, relative_gap: float, start: Choice | None) -> tuple[SolverOutcome, Choice, list[Row]]:
        """One integer solve: its choice, if there is one, and the cuts that forbid the cycles of it."""
        point = None
        if start is not None and all(option in self.column for option in start.values()):
            small = {self.goal[goal]: self.column[option] for goal, option in start.items()}
            point = self.model.point(small)
        outcome = self.solver.solve(clock, relative_gap=relative_gap, start=point)
        if not len(outcome.values):
            return outcome, {}, []
        small = closure(self.small, selected(self.small, outcome.values), self.small.roots)
        return outcome, self.reduction.expand(small), self.model.cut_choice(small)

    def original(self, values: Values) -> Choice:
        """The choice of largest values."""
        return self.reduction.expand(closure(self.small, selected(self.small, values), self.small.roots))
