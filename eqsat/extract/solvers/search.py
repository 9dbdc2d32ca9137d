"""The search for one program: presolve, dual ascent, the relaxation with cuts, then HiGHS."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from eqsat.extract.problem.landmarks import landmarks
from eqsat.extract.problem.program import Choice, ExtractionProgram, closure, path_bounds, total, unfounded
from eqsat.extract.solvers.bounds import Ascent, dual_ascent, ruled_out
from eqsat.extract.solvers.flows import flow_cuts
from eqsat.extract.solvers.greedy import best_greedy
from eqsat.extract.solvers.highs import Clock, Progress, Solver, reporter
from eqsat.extract.solvers.model import IntegerProgram, Relaxed, Row, Values, reduced_costs, repairs, scaling, selected
from eqsat.extract.solvers.parts import ProgramPart, parts_of, rooted
from eqsat.extract.solvers.presolve import Presolved, compose, presolve

SLACK = 1e-9
"""Relative: a cost within this of the bound is optimal."""

LAZY_ROUNDS = 12
"""Integer solves with cycle cuts only, before order variables are added where cycles still turn up."""

LARGE = 1500
"""Options left in a program, above which it is improved first: several windows have to fit into it."""

CLEARLY = 0.2
"""Part of the options to rule out by the relaxation, for which starting over on the rest pays."""

STALLED_ROUNDS = 5
"""Rounds of cuts that hardly move the bound of the relaxation, before the integer solve."""

FAIR_GAIN = 0.05
"""Part of the gap that a round of flow cuts should close."""

SLOW_ROUNDS = 2
"""Rounds that close less, after which flow cuts are no longer looked for."""

#: Offers a search better choices and bounds of a program, given its model and the solution of the relaxation.
Improver = Callable[["IlpSearch", Presolved, IntegerProgram, Relaxed], None]


@dataclass(eq=False)
class IlpSearch:
    """The search for one program: its best choice and bound, at any moment, and the searches of its parts.

    `improve` is called on a large program after its relaxation, before the integer solve, and offers the search better
    choices and bounds.
    """

    program: ExtractionProgram
    choice: Choice
    clock: Clock
    relative_gap: float
    seed: int
    broken: set[int]
    improve: Improver | None = None
    nodes: int | None = None
    cutoff: float = math.inf
    floor: float = 0.0
    reduction: Presolved | None = None
    parts: list[IlpSearch] = field(default_factory=list)
    report: Callable[[], None] = lambda: None
    _ascent: tuple[ExtractionProgram, Ascent] | None = None

    def __post_init__(self) -> None:
        self.cost = total(self.program, self.choice)

    def watch(self, progress: Progress | None) -> None:
        """Call `progress` whenever the cost or the bound has improved."""
        self.report = reporter(self, IlpSearch._standing, progress)
        self.report()

    def _standing(self) -> tuple[float, float]:
        """The cost and the bound, which rounding may put above it."""
        cost = total(self.program, self.best())
        return cost, min(cost, self.bound())

    def best(self) -> Choice:
        """The best choice known, parts included."""
        if self.parts and self.reduction is not None:
            joined: Choice = {}
            for part in self.parts:
                joined |= part.best()
            self.offer(self.reduction.expand(joined))
        return self.choice

    def bound(self) -> float:
        """The best lower bound known, parts included."""
        if self.parts and self.reduction is not None:
            below = self.reduction.paid + sum(part.bound() for part in self.parts)
            self.floor = max(self.floor, min(below, self.cost))
        return min(self.floor, self.cost)

    def aim(self) -> float:
        """The cost below which a choice is of interest."""
        return min(self.cost, self.cutoff)

    def child(
        self, program: ExtractionProgram, choice: Choice, broken: set[int], clock: Clock, gap: float = 0.0
    ) -> IlpSearch:
        """A search for a part of this program, which nothing improves on the way."""
        search = IlpSearch(program, choice, clock, max(self.relative_gap, gap), self.seed, broken)
        search.report = self.report
        return search

    def done(self) -> bool:
        """True if no choice of interest is cheaper than the best, within the gap asked for."""
        self.best()
        return self.bound() >= self.aim() * (1 - max(self.relative_gap, SLACK))

    def offer(self, choice: Choice) -> None:
        """Take a choice if it is better than the best so far."""
        choice = closure(self.program, choice, self.program.roots)
        cost = total(self.program, choice)
        if cost < self.cost and not unfounded(self.program, choice):
            self.choice, self.cost = choice, cost

    def lift(self, bound: float) -> None:
        """Take a bound if it is better than the best so far."""
        self.floor = max(self.floor, bound)

    def run(self) -> None:
        """Reduce, split, and solve, until optimal or stopped."""
        self.solve_reduced(presolve(self.program, broken=self.broken, stop=self.clock.stop))

    def solve_reduced(self, reduction: Presolved) -> None:
        """Reduce further, and solve the rest, in parts if it is not connected."""
        reduction = self._reduce(reduction)
        self.report()
        if self.done() or self.clock.stop():
            return
        apart = compose(reduction, presolve(rooted(reduction.program), stop=self.clock.stop))
        parts = parts_of(apart.program)
        if len(parts) == 1:
            self.solve_integer(reduction)
            return
        self.reduction = apart
        if parts:
            self._solve_parts(apart, parts)
        else:
            self.offer(apart.expand({}))
            self.lift(self.aim())

    def _solve_parts(self, reduction: Presolved, parts: list[ProgramPart]) -> None:
        """Search the parts one by one, each in its share of the time that is left, and equal ones once."""
        known = reduction.shrink(self.choice) or best_greedy(reduction.program)
        for part in parts:
            start = closure(part.program, known, part.program.roots)
            search = self.child(part.program, start, reduction.broken, self.clock)
            search.improve, search.nodes = self.improve, self.nodes
            self.parts.append(search)
        left = len({part.shape for part in parts})
        first: dict[Hashable, int] = {}
        for number, (part, search) in enumerate(zip(parts, self.parts, strict=True)):
            twin = first.setdefault(part.shape, number)
            if twin == number:
                search.clock = Clock(self.clock.deadline.part(1 / left), self.clock.stop)
                search.run()
                left -= 1
            else:
                search.offer(part.like(parts[twin], self.parts[twin].best()))
                search.lift(self.parts[twin].bound())
            self.report()

    def _reduce(self, reduction: Presolved) -> Presolved:
        """Presolve, dual ascent and the options it rules out, until nothing is left or nothing changes."""
        while True:
            self.reduction = reduction
            small = reduction.program
            if any(not small.by_goal[root] for root in small.roots):
                self.lift(self.aim())  # every choice that could be cheaper has been ruled out
                return reduction
            self.offer(reduction.expand(best_greedy(small)))
            if not small.roots:
                self.lift(self.aim())
                return reduction
            ascent = self._ascend(small)
            self.lift(min(reduction.paid + ascent.bound, self.aim()))
            weights = [r + 0.01 * c for r, c in zip(ascent.reduced, small.costs, strict=True)]
            self.offer(reduction.expand(best_greedy(small, weights)))
            if self.done() or self.clock.stop():
                return reduction
            out = ruled_out(small, ascent, self.aim() * (1 - SLACK) - reduction.paid)
            if len(out) * 50 < len(small.provides):
                return reduction
            reduction = compose(reduction, presolve(small, out, stop=self.clock.stop))

    def _ascend(self, small: ExtractionProgram) -> Ascent:
        """Dual ascent, once a program."""
        if self._ascent is None or self._ascent[0] is not small:
            self._ascent = small, dual_ascent(small, stop=self.clock.stop)
        return self._ascent[1]

    def solve_integer(self, reduction: Presolved) -> None:
        """HiGHS with cycle cuts on a program that does not split."""
        small = reduction.program
        scale = scaling(self.cost - reduction.paid)
        costs = [cost * scale for cost in small.costs]
        model = IntegerProgram(small)
        if any(group not in reduction.broken and count > 1 for group, count in Counter(small.groups).items()):
            model.strengthen(reduction.broken)
        model.rows += model.break_pairs() + model.cover(self._ascend(small).supports)
        model.rows += model.require(landmarks(small, best_greedy(small)))
        solver = Solver(model, costs, seed=self.seed)
        relaxed = self._relaxation(reduction, model, solver, scale)
        if relaxed is None or self._shrunk(reduction, model, relaxed):
            return
        if self.improve is not None and len(costs) > LARGE:
            self.improve(self, reduction, model, relaxed)
        if self.done() or self.clock.stop() or self._shrunk(reduction, model, relaxed):
            return
        for attempt in itertools.count(1):
            cuts, finished = self._attempt(reduction, model, solver, scale)
            if finished and not cuts:
                self.lift(self.aim() * (1 - self.relative_gap))
            if not finished or not cuts or self.done() or self.clock.stop():
                return
            model.rows += cuts
            if attempt % LAZY_ROUNDS == 0 and model.order(cuts):
                solver = Solver(model, costs, seed=self.seed)
            else:
                solver.add(cuts)

    def _shrunk(self, reduction: Presolved, model: IntegerProgram, relaxed: Relaxed) -> bool:
        """Go on with the options that the relaxation leaves, where those are clearly fewer."""
        out = sorted(model.gone.union(self._out(reduction, relaxed.ascent)))
        if len(out) < CLEARLY * len(reduction.program.provides):
            return False
        self.solve_reduced(compose(reduction, presolve(reduction.program, out, stop=self.clock.stop)))
        return True

    def _out(self, reduction: Presolved, ascent: Ascent) -> list[int]:
        return ruled_out(reduction.program, ascent, self.aim() * (1 - SLACK) - reduction.paid)

    def _relaxation(self, reduction: Presolved, model: IntegerProgram, solver: Solver, scale: float) -> Relaxed | None:
        """Solve the relaxation with cuts until none is violated; its bound, or None where that ended the search."""
        small = reduction.program
        depth = path_bounds(small, small.users(), small.costs)
        best = Relaxed(Ascent(0.0, [0.0] * len(small.costs), []), np.zeros(len(model.upper)))
        last, stalled, slow = -1.0, 0, 0
        while not self.clock.stop():
            self.clock.deadline.spend(len(small.provides))
            outcome = solver.relax(self.clock)
            if outcome.bound == math.inf:
                self.lift(self.aim())  # every choice that could be cheaper has been ruled out
                return None
            if not outcome.finished:
                return None if self.clock.stop() else best
            ascent = Ascent(outcome.bound / scale, reduced_costs(model, outcome.reduced / scale), [])
            best = Relaxed(ascent, outcome.values)
            self.lift(ascent.bound + reduction.paid)
            self._improve(reduction, selected(small, outcome.values))
            self.report()
            if self.done():
                return None
            solver.exclude(model.discard(self._out(reduction, ascent)))
            spare = dual_ascent(small, outcome.reduced.clip(0.0)[: len(small.costs)].tolist(), rounds=30)
            cuts = model.cut_point(outcome.values) + model.cover(spare.supports, outcome.values)
            cuts += model.cut_idle(outcome.values)
            gain, room = (outcome.bound - last) / scale, self.aim() - reduction.paid - ascent.bound
            slow = slow + 1 if gain <= FAIR_GAIN * room else 0
            if slow < SLOW_ROUNDS:
                cuts += flow_cuts(model, outcome.values, depth)
            stalled = stalled + 1 if outcome.bound <= last * (1 + 1e-5) else 0
            last = max(last, outcome.bound)
            if not cuts or stalled >= STALLED_ROUNDS:
                return best
            model.rows += cuts
            solver.add(cuts)
        return None

    def _attempt(
        self, reduction: Presolved, model: IntegerProgram, solver: Solver, scale: float
    ) -> tuple[list[Row], bool]:
        """One integer solve: the cuts that its solution violates, and whether it ran to its end."""

        def watch() -> bool:
            self.report()
            return self.done()

        def see(values: Values) -> None:
            self._improve(reduction, selected(model.program, values))
            self.report()

        known = reduction.shrink(self.choice)
        start = None if known is None or model.gone.intersection(known.values()) else model.point(known)
        outcome = solver.solve(
            self.clock,
            relative_gap=self.relative_gap,
            nodes=self.nodes,
            start=start,
            watch=watch,
            see=see,
        )
        self.lift(min(outcome.bound / scale + reduction.paid, self.aim()))
        if not len(outcome.values):
            return [], outcome.bound == math.inf
        choice = selected(model.program, outcome.values)
        self._improve(reduction, choice)
        self.report()
        return repairs(model, closure(model.program, choice, model.program.roots)), outcome.finished

    def _improve(self, reduction: Presolved, choice: Choice) -> None:
        """Offer a choice if it is acyclic, and greedy choices that prefer its options."""
        small = reduction.program
        used = closure(small, choice, small.roots)
        if not unfounded(small, used):
            self.offer(reduction.expand(used))
        preferred = set(used.values())
        weights = [cost * (0.01 if o in preferred else 1.0) for o, cost in enumerate(small.costs)]
        self.offer(reduction.expand(best_greedy(small, weights)))
