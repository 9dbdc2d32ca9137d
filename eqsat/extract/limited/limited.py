"""Exact extraction within limits: prices for the limits, reductions, then the integer program with a row for each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from eqsat.extract.limited.lagrange import Demand, Prices, demands_of, priced_choices
from eqsat.extract.limited.master import UNIT, VIOLATION, Master
from eqsat.extract.problem.limits import ROUNDING, exceeds
from eqsat.extract.problem.memory import Liveness, Part
from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.program import Choice, closure, total, unfounded
from eqsat.extract.problem.schedule import MOST_MOVES
from eqsat.extract.problem.solution import choice_of
from eqsat.extract.solvers.bounds import dual_ascent, ruled_out
from eqsat.extract.solvers.highs import Clock, Progress, reporter
from eqsat.extract.solvers.ilp import solve_ilp
from eqsat.extract.solvers.model import Row, scaling
from eqsat.extract.solvers.presolve import Presolved, presolve

SLACK = 1e-9
"""Relative: a cost within this of the bound is optimal."""

PRICED_SOLVES = 6
"""Solves without limits, under a price for the bounded resource."""

LAZY_ROUNDS = 12
"""Integer solves with cycle cuts only, before order variables are added where cycles still turn up."""

QUICK_MOVES = 2_000
"""Moves that the schedule of one of many choices may take."""

CLOSE = 1e-6
"""Relative difference up to which a peak equals that of the integer program."""


class LimitedSearch:
    """The search for a choice within the limits: its best and its bound, at any moment."""

    def __init__(self, problem: Problem, clock: Clock, relative_gap: float = 0.0, seed: int = 0) -> None:
        self.problem, self.program = problem, problem.program
        self.clock, self.relative_gap, self.seed = clock, relative_gap, seed
        self.demands = demands_of(problem)
        memory = problem.memory if problem.memory is not None and problem.memory.matters else None
        self.live = None if memory is None else Liveness(self.program, problem.goals, memory)
        self.most = math.inf if memory is None else memory.most
        self.weight = 0.0 if memory is None else memory.weight
        self.least_peak = 0.0 if self.live is None else self.live.floors.floor()
        self.choice: Choice | None = None
        self.cost = math.inf
        self.floor = 0.0
        self.cap = math.inf
        self.impossible = False
        self.forbidden: list[list[list[int]]] = []
        self.report: Callable[[], None] = lambda: None
        self._peaks: dict[frozenset[int], tuple[int, float, float, tuple[int, ...]]] = {}

    def watch(self, progress: Progress | None) -> None:
        """Call `progress` whenever the cost or the bound has improved, once there is a choice."""
        self.report = reporter(self, LimitedSearch._standing, progress)

    def _standing(self) -> tuple[float, float] | None:
        """The cost and the bound, once there is a choice."""
        return None if self.choice is None else (self.cost, self.bound())

    def bound(self) -> float:
        """The best lower bound known on every choice within the limits."""
        return min(self.floor, self.cap, self.cost)

    def done(self) -> bool:
        """Return whether the best choice is proved optimal within the gap, or it is proved that there is none."""
        if self.choice is None:
            return self.impossible
        return self.bound() >= self.cost * (1 - max(self.relative_gap, SLACK))

    def over(self) -> bool:
        """Return whether to stop."""
        return self.done() or self.clock.stop()

    def lift(self, bound: float) -> None:
        """Take a bound if it is better than the best so far."""
        self.floor = max(self.floor, bound)

    def schedule(self, choice: Choice, moves: int = MOST_MOVES) -> tuple[float, float, tuple[int, ...]]:
        """The peak of a closed choice in the best order found, a bound on every order, and the order."""
        if self.live is None:
            return 0.0, 0.0, ()
        key = frozenset(choice.values())
        known = self._peaks.get(key)
        if known is None or (known[0] < moves and exceeds(known[1], known[2])):
            found, order = self.live.schedule(choice, moves)
            known = self._peaks[key] = moves, found.peak, found.bound, order
        return known[1:]

    def offer(self, choice: Choice, moves: int = QUICK_MOVES) -> bool | None:
        """Take a choice if it is within the limits and better than the best so far.

        Returns whether its peak is over the limit; None where other limits or cycles rule it out, or a better is known.
        """
        choice = closure(self.program, choice, self.program.roots)
        if unfounded(self.program, choice) or any(demand.broken(choice) for demand in self.demands):
            return None
        cost = total(self.program, choice)
        if cost + self.weight * self.least_peak >= self.cost:
            return None
        peak, _, _ = self.schedule(choice, moves)
        if exceeds(peak, self.most):
            return True
        if cost + self.weight * peak < self.cost:
            self.choice, self.cost = choice, cost + self.weight * peak
            self.report()
        return False

    def run(self) -> None:
        """Search until optimal, proved impossible, or stopped."""
        self.lift(dual_ascent(self.program).bound + self.weight * self.least_peak)
        self.find()
        if self.choice is None or self.over():
            return
        self._without_limits()
        if not self.over():
            self._integer(self._reduce(), elastic=False)

    def find(self) -> None:
        """A choice within the limits, unless there is none or time is up."""
        reduction = self._reduce()
        if self.impossible:
            return
        self._by_prices()
        if self.choice is None and not self.clock.stop():
            self._thrifty()
        if self.choice is None and not self.over():
            self._integer(reduction, elastic=True)

    def _by_prices(self) -> None:
        """Greedy choices under prices, of the options left after the reduction."""
        self.prices = self.new_prices()
        priced_choices(self.program, self.prices, self.offer, self.over)

    def new_prices(self) -> Prices:
        """Prices of the limits, and of the bytes of all values where peak memory is bounded or priced."""
        pressing = None if self.live is None else [self.live.sizes[goal] for goal in self.program.provides]
        return Prices(self.program, self.demands, pressing)

    def _thrifty(self) -> None:
        """The choice that uses least of all limits together, or the first found that keeps them."""
        demands = [demand for demand in self.demands if demand.most > 0]
        if not demands:
            return
        enough, found_enough = float(len(demands)), False

        def watch(cost: float, bound: float) -> None:
            nonlocal found_enough
            found_enough = cost <= enough if len(demands) == 1 else bound > enough

        solution = solve_ilp(
            self.problem.variant(costs=_joint(demands)),
            time_limit=self.clock.deadline.part(1 / 2),
            seed=self.seed,
            progress=watch,
            should_stop=lambda: found_enough or self.clock.stop(),
        )
        self.impossible = exceeds(solution.lower_bound, enough)
        self.offer(choice_of(self.problem, solution))

    def _reduce(self) -> Presolved:
        """Leave out options that occur in no choice within the limits, or in none better than the best."""
        out: set[int] = set()
        for demand in self.demands:
            ascent = dual_ascent(self.program, demand.amounts)
            room = max(demand.most * (1 + 10 * ROUNDING), 1e-300)
            if ascent.bound > room:
                self.impossible = True
            out.update(ruled_out(self.program, ascent, room))
            out.update(option for option, amount in enumerate(demand.amounts) if exceeds(amount, demand.most))
        if self.live is not None and self.most < math.inf:
            self.impossible = self.impossible or exceeds(self.least_peak, self.most)
            out.update(o for o, needed in enumerate(self.live.floors.needed) if exceeds(needed, self.most))
        if self.choice is not None:
            ascent = dual_ascent(self.program)
            out.update(ruled_out(self.program, ascent, self.cost * (1 + SLACK) - self.weight * self.least_peak))
            out.difference_update(self.choice.values())
        reduction = presolve(self.program, out, passes=0)
        small = reduction.program
        if len(small.roots) < len(self.program.roots) or any(not small.by_goal[root] for root in small.roots):
            self.impossible = True
        return reduction

    def _without_limits(self) -> None:
        """Optima without limits, under one price for all that they bound (Handler and Zang, 1980).

        The price makes the best choice within the limits and the best of those that break them equally dear. Each
        solve gives a bound, and often a good choice.
        """
        prices = self.prices.prices
        demands = [d for d, price in zip(self.demands, prices, strict=True) if price > 0 and d.most > 0]
        demands = demands or [d for d in self.demands if d.most > 0]
        price, breaks = 0.0, None
        keeps: tuple[float, float] | None = None
        for _ in range(PRICED_SOLVES):
            budget = self.clock.deadline.part(1 / 3)
            costs = self.program.costs
            if price > 0:
                costs = [c + price * used for c, used in zip(costs, _joint(demands), strict=True)]
            solution = solve_ilp(
                self.problem.variant(costs=costs),
                time_limit=budget,
                relative_gap=self.relative_gap / 2,
                seed=self.seed,
                should_stop=self.clock.stop,
            )
            choice = choice_of(self.problem, solution)
            self.lift(solution.lower_bound - price * len(demands) + self.weight * self.least_peak)
            self.offer(choice)
            point = (total(self.program, choice), _share(demands, choice))
            if self.over() or not demands or solution.status != "optimal":
                return
            if point[1] > len(demands):
                breaks = point
            else:
                keeps = point
            if breaks is None:
                return
            if keeps is None:
                known = self.choice or {}
                keeps = (total(self.program, known), _share(demands, known))
            if breaks[1] - keeps[1] <= 0:
                return
            next_ = (keeps[0] - breaks[0]) / (breaks[1] - keeps[1])
            if next_ <= 0 or math.isclose(next_, price, rel_tol=1e-6):
                return
            price = next_

    def _integer(self, reduction: Presolved, *, elastic: bool) -> None:
        """HiGHS, with cuts for cycles, peaks and rounding, until a choice stands or none can."""
        if self.impossible:
            return
        scale = 1.0 if elastic else scaling(self.cost)
        unit = max((sum(self.live.sizes) if self.live is not None else 0.0) - self.least_peak, 1e-300) / UNIT
        master = Master(
            reduction,
            self.demands,
            scale=scale,
            seed=self.seed,
            elastic=elastic,
            peak=(self.least_peak, unit, self.weight) if self.weight > 0 and not elastic else None,
        )
        paid = self.weight * self.least_peak
        master.add([master.forbid(groups) for groups in self.forbidden])

        def see(bound: float, choice: Choice | None = None) -> None:
            if not elastic:
                self.lift(bound + paid)
                self.report()
            if choice is not None:
                self.offer(choice)

        master.relax(self.clock, see)
        for attempt in itertools.count(1):
            if self.over() or (elastic and self.choice is not None):
                return
            start, gap = (None, 0.0) if elastic else (self.choice, self.relative_gap)
            outcome, choice, cuts = master.solve(self.clock, gap, start)
            if elastic and outcome.bound > VIOLATION:
                self.impossible = self.cap == math.inf
                return
            see(outcome.bound / scale, choice or None)
            if not choice:
                return
            if not cuts:
                self.offer(choice, MOST_MOVES)
            if cuts and attempt % LAZY_ROUNDS == 0:
                master.order(cuts)
            theta = self.least_peak + unit * float(outcome.values[master.theta]) if master.peak else math.inf
            cuts = cuts or self._faults(master, choice, theta)
            if not cuts:
                if outcome.finished and not elastic:
                    self.lift(self.cost * (1 - self.relative_gap))
                return
            master.add(cuts)

    def _faults(self, master: Master, choice: Choice, theta: float) -> list[Row]:
        """Rows that an acyclic choice breaks: limits by a hair, or peak memory."""
        rows = [master.cover(demand, choice) for demand in self.demands if demand.broken(choice)]
        live = self.live
        if rows or live is None:
            return rows
        peak, bound, order = self.schedule(choice)
        if exceeds(peak, self.most):
            parts = live.offences(choice, order, self.most, self.clock.stop) if exceeds(bound, self.most) else []
            if not parts:
                return [self._forbid(master, choice, None, proved=exceeds(bound, self.most))]
            return [self._forbid(master, choice, part, proved=True) for part in parts]
        if master.peak is None or peak <= theta + CLOSE * peak:
            return []
        rows = []
        for level in (bound * (1 - CLOSE / 10), (bound + theta) / 2):
            parts = live.offences(choice, order, level, self.clock.stop) if level > theta else []
            rows += [master.lift_peak(self._groups(choice, part), level) for part in parts]
        if not rows or bound < peak * (1 - CLOSE):
            rows.append(self._forbid(master, choice, None, proved=False))
        return rows

    def _groups(self, choice: Choice, part: Part | None) -> list[list[int]]:
        if part is None or self.live is None:
            return [[option] for option in sorted(choice.values())]
        return self.live.alike(choice, part)

    def _forbid(self, master: Master, choice: Choice, part: Part | None, *, proved: bool) -> Row:
        """Forbid a part of a choice, or the choice itself; an unproved ban caps the bound at the cost it may lose."""
        if not proved:
            _, bound, _ = self.schedule(choice)
            self.cap = min(self.cap, total(self.program, choice) + self.weight * bound)
        groups = self._groups(choice, part)
        self.forbidden.append(groups)
        return master.forbid(groups)


def _share(demands: Sequence[Demand], choice: Choice) -> float:
    return sum(demand.used(choice) / demand.most for demand in demands)


def _joint(demands: Sequence[Demand]) -> list[float]:
    """The use of all limits together by every option, each as a share of its limit."""
    scales = [1 / demand.most for demand in demands]
    return [
        sum(s * a for s, a in zip(scales, amounts, strict=True))
        for amounts in zip(*(demand.amounts for demand in demands), strict=True)
    ]
