"""The choice among the forms in an e-graph: its problem, its solvers, and the finalists that come of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from eqsat.costs.model.model import CostModel
from eqsat.egraph.derived import DerivedConstants
from eqsat.errors import ExtractionError
from eqsat.extract import Solution, solve
from eqsat.extract.solvers.restricted import Restricted
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.barred import without_precision
from eqsat.extract.tensors.resources import limited
from eqsat.extract.tensors.tensors import Available, TensorProblem, everything, tensor_problem
from eqsat.language.comprehension.graphs.operators import is_composition
from eqsat.language.onnx.read.model import Given
from eqsat.language.onnx.write.availability import opset_of
from eqsat.language.terms import Attrs, Graph, TensorType
from eqsat.report.finalists import Candidate
from eqsat.report.parts import Baseline
from eqsat.report.report import Progress
from eqsat.runtime.onnxruntime.support import available_on, windowed_dims
from eqsat.steps import fused
from eqsat.steps.blocks.whole import BlocksError
from eqsat.steps.candidates import Finalists
from eqsat.steps.growing import Grown
from eqsat.steps.log import Log
from eqsat.steps.precision.overflow import PRECISION, FloatRanges
from eqsat.steps.settings import Settings
from eqsat.steps.trials import before_trials
from eqsat.system.deadline import Deadline, TimeUp, check

#: The share of what is left of a call that choosing may take, and that of a choice which another one follows.
_EXTRACT, _BEGIN = 0.5, 0.1
#: The share of what is left then for a choice that goes without something.
_PORTABLE = 0.25
#: Seconds that the backtracking search may take for the report, and its share of what is left.
_BASELINE_SECONDS, _BASELINE_SHARE = 1.0, 0.05
#: The share of the time for extraction that choosing among row-major values alone may take.
_FIRST_SHARE = 0.6
#: The share of what is left that weighing sizes against each other may take.
_BALANCE_SHARE = 0.25

#: The share of what is left, and the seconds, that a choice on the way may take; it is greedy among more e-nodes.
_QUICK_SHARE, _QUICK_SECONDS, _QUICK_NODES = 0.05, 2.0, 6_000

#: How often the weights of sizes are changed, and how strongly a size that is worse than another draws them.
_ROUNDS, _STEP = 4, 4.0

#: A change of the costs of a problem before anything is chosen; the choice is judged by the changed costs.
Adjust = Callable[[TensorProblem], TensorProblem]


@dataclass(frozen=True)
class Chosen:
    """A problem with its solution, the solutions of baselines, and the finalists, the original first."""

    extraction: TensorProblem
    solution: Solution
    baselines: Sequence[Baseline]
    candidates: list[Candidate]


@dataclass(frozen=True)
class Chooser:
    """Chooses among the e-nodes of the e-graph of a model, as far as it was grown.

    `ranges` are those of values on the calibration data, where some may be held in float16. `derived` has the constants
    of finalists that are derived from those of the model. `until` is the end of choosing, where that is known. With
    `apart` no function is chosen that others were put together to.
    """

    settings: Settings
    log: Log
    given: Given
    grown: Grown
    adjust: Adjust | None = None
    ranges: FloatRanges | None = None
    derived: DerivedConstants = field(default_factory=DerivedConstants)
    until: Deadline | None = None
    apart: bool = False

    @cached_property
    def deadline(self) -> Deadline:
        """The end of choosing, after which there is time to make a choice ready."""
        return before_trials(self.given, self.settings) if self.until is None else self.until

    def quick(self) -> tuple[TensorProblem, Solution]:
        """The problem in the precision of the model, and a solution found fast: where more forms are worth growing."""
        extraction = replace(self, settings=self.settings.exact)._free_problem()
        problem, stop = extraction.problem, self.settings.options.should_stop
        if len(extraction.snapshot.nodes) > _QUICK_NODES:
            return extraction, solve(problem, extractor="greedy", should_stop=stop)
        deadline = self.settings.deadline.part(_QUICK_SHARE, _QUICK_SECONDS)
        known = self.grown.carried(extraction)
        return extraction, solve(problem, time_limit=deadline, should_stop=stop, known=known)

    def problem(self, counted: Sequence[str] = ()) -> TensorProblem:
        """The problem of choosing among e-nodes within the limits; `counted` are terms that are only added up."""
        extraction = limited(self._free_problem(), self.settings.costs, self.settings.bounds, counted)
        return extraction if self.adjust is None else self.adjust(extraction)

    def _free_problem(self) -> TensorProblem:
        """The problem of choosing among e-nodes without limits, at the costs of the model."""
        settings, costs, original = self.settings, self.settings.costs, self.given.graph
        opset = settings.options.opset or opset_of(original)
        # A plan for a GPU is run as it is, and written to ONNX in what operators its opset has.
        available: Available = everything
        if not costs.device.gpu:
            available = available_on(opset, contrib=settings.contrib, windowed=windowed_dims(original))
        if self.apart:
            available = partial(_apart, available)
        extraction = tensor_problem(
            self.grown.snapshot,
            costs,
            available,
            settings.choices,
            settings.boundary,
            contrib=settings.contrib,
            kept=self.grown.kernels,
        )
        if self.ranges is not None and self.ranges.beyond:
            extraction = without_precision(extraction, self.ranges.beyond.keys(), PRECISION)
        return extraction

    def weighed_problem(self) -> TensorProblem:
        """The problem under the weights of sizes that are asked for."""
        settings, costs = self.settings, self.settings.costs
        if settings.options.over_sizes == "sum" or len(costs.parts) < 2:
            return self.problem()

        def solved(extraction: TensorProblem) -> Solution:
            share = self.deadline.part(_BALANCE_SHARE / _ROUNDS)
            return solve(extraction.problem, time_limit=share, should_stop=settings.options.should_stop)

        return _balanced(self.given.grown, costs, self.problem, solved)

    def choice(self, extraction: TensorProblem) -> Chosen:
        """The solution of a problem, those of the baselines, and the finalists."""
        extractor = self.settings.options.extractor
        solutions = self.solutions(extraction, extractor)
        names = dict.fromkeys((extractor, *(n for n in solutions if n == "greedy")))
        finalists = self._finalists(extraction)
        candidates = finalists.of({name: solutions[name] for name in names})
        if not extraction.problem.is_limited and self.adjust is None:
            candidates += self._earlier(extraction, solutions[extractor].cost)
        # By cost alone it would never be kept.
        timed = self.settings.options.measure
        if timed and self.settings.contrib and any(fused.may_be_written(c.graph) for c in candidates[1:]):
            candidates += self._portable_beside()
        if timed and any(is_composition(node.op) for one in candidates[1:] for node in one.graph.nodes):
            # The costs of what a program puts into groups by itself are sums of estimates.
            candidates += self._beside("apart", replace(self, apart=True), "functions that were put together")
        whole = {name: one for name, solution in solutions.items() if (one := finalists.whole(solution)) is not None}
        return Chosen(extraction, whole[extractor], baselines_beside(extractor, whole), candidates)

    def solutions(self, extraction: TensorProblem, extractor: str) -> dict[str, Solution]:
        """The solutions of the baselines, and that of an extractor."""
        solutions = self.baselines(extraction)
        if extractor in ("ilp", "backtracking") or extractor not in solutions:
            solutions[extractor] = self.solved(extraction, extractor, list(solutions.values()))
        return solutions

    def finalists(self, extraction: TensorProblem, solutions: Mapping[str, Solution]) -> list[Candidate]:
        """The original, then the graph of each solution once; none where one has no form for all equal blocks."""
        try:
            return self._finalists(extraction).of(solutions)
        except BlocksError:
            return []

    def _finalists(self, extraction: TensorProblem) -> Finalists:
        return Finalists(self.settings, self.given, extraction, self.adjust is not None, self.derived)

    def _earlier(self, now: TensorProblem, cost: float) -> list[Candidate]:
        """The best choice that was made while the e-graph grew, where that at the end costs more.

        A search that ends before it has proved its choice the best may find a dearer one among more e-nodes. Kernels
        may have been measured since: a choice costs what its e-nodes cost now, as long as they are still offered.
        """
        extraction, solution = min(self.grown.repriced(now), key=lambda known: known[1].cost, default=(None, None))
        if extraction is None or solution is None or solution.cost >= cost:
            return []
        return self.finalists(extraction, {"earlier": solution})[1:]

    def _portable_beside(self) -> list[Candidate]:
        """The choice without operators of ONNX Runtime's own, to be measured beside: they may be slower."""
        plain = replace(self, settings=replace(self.settings, contrib=False))
        return self._beside("portable", plain, "ONNX Runtime's own operators")

    def _beside(self, name: str, other: Chooser, without: str) -> list[Candidate]:
        """The choice of another chooser, which goes without something, where it does not take the time for trials."""
        with self.deadline:
            try:
                check(0)
                other = replace(other, until=self.deadline)
                problem = other.problem()
                solution = other.solved(problem, self.settings.options.extractor, [], _PORTABLE)
                return other.finalists(problem, {name: solution})[1:]
            except TimeUp as late:
                self.log.skipped.append(f"nothing was chosen without {without}: {late}")
                return []

    def solved(
        self, extraction: TensorProblem, extractor: str, known: Sequence[Solution] = (), share: float = _EXTRACT
    ) -> Solution:
        """The solution of an extractor, in a share of what is left; the integer program starts from those `known`."""
        settings = self.settings

        def follow(best: float, bound: float) -> None:
            self.log.say(Progress("extract", nodes=len(extraction.snapshot.nodes), best=best, bound=bound))

        if extractor == "ilp":
            return self._integer_program(extraction, list(known), follow, share)
        more: dict[str, Any] = {}
        if extractor == "backtracking":
            more = {"start": extraction.original(), "alpha": settings.options.alpha, "progress": follow}
        return solve(
            extraction.problem,
            extractor=extractor,
            time_limit=self.deadline.part(share),
            should_stop=settings.options.should_stop,
            **more,
        )

    def baselines(self, extraction: TensorProblem) -> dict[str, Solution]:
        """The solutions of greedy and of a short backtracking search, as far as they keep the limits."""
        settings = self.settings
        short = self.deadline.part(_BASELINE_SHARE, _BASELINE_SECONDS)
        searches: dict[str, dict[str, Any]] = {
            "greedy": {},
            "backtracking": {"start": extraction.original(), "time_limit": short},
        }
        solutions: dict[str, Solution] = {}
        for name, more in searches.items():
            try:
                stop = settings.options.should_stop
                solutions[name] = solve(extraction.problem, extractor=name, should_stop=stop, **more)
            except ExtractionError as error:
                if not extraction.problem.is_limited:
                    raise
                self.log.warnings.append(f"{name}: {error.what}")
        return solutions

    def _integer_program(
        self, extraction: TensorProblem, known: list[Solution], follow: Callable[[float, float], None], share: float
    ) -> Solution:
        """The solution of the integer program, started from known ones and from the best row-major one.

        Layouts make a program several times as large; where the time does not suffice for all of it, the choice is at
        least as good as that of the smaller one.
        """
        settings = self.settings
        # Before the choice with kernels on integers, the one without them need not be the best there is.
        begins = settings.choices.policy.quantises and extraction.problem.is_limited and not extraction.scales
        deadline = self.deadline.part(_BEGIN if begins else share)
        if not extraction.problem.is_limited:
            known += self.grown.carried(extraction)
        rows = Restricted(extraction)
        if rows.is_smaller and not extraction.problem.is_limited:
            first = solve(
                rows.problem,
                time_limit=deadline.part(_FIRST_SHARE),
                seed=settings.options.seed,
                should_stop=settings.options.should_stop,
            )
            known = [*known, rows.lifted(first)]
        return solve(
            extraction.problem,
            time_limit=deadline,
            seed=settings.options.seed,
            should_stop=settings.options.should_stop,
            known=known,
            progress=follow,
        )


def baselines_beside(extractor: str, solutions: Mapping[str, Solution]) -> list[Baseline]:
    """The outcomes of the other extractors."""
    return [Baseline(name, s.cost, s.seconds, s.status) for name, s in solutions.items() if name != extractor]


def _balanced(
    original: Graph,
    costs: CostModel,
    frame: Callable[[], TensorProblem],
    solved: Callable[[TensorProblem], Solution],
) -> TensorProblem:
    """The problem under the weights whose cheapest choice has the least largest share of the original's cost at a size.

    The smallest maximum over the sizes is the largest minimum over weights of them (von Neumann's minimax theorem), to
    which multiplicative weights converge (Arora, Hazan and Kale, 2012); integral choices may leave a gap. `costs` keep
    the weights.
    """
    before = [max(model.graph(original).price, 1e-30) for _, model in costs.parts]
    weights = [1.0] * len(before)
    best: tuple[float, list[float], TensorProblem] | None = None
    for _ in range(_ROUNDS):
        costs.weighed([weight / cost for weight, cost in zip(weights, before, strict=True)])
        extraction = frame()
        chosen = assemble(extraction, solved(extraction), original).graph
        shares = [model.graph(chosen).price / cost for (_, model), cost in zip(costs.parts, before, strict=True)]
        if best is None or max(shares) < best[0]:
            best = max(shares), list(weights), extraction
        if max(shares) - min(shares) < 1e-3:
            break
        weights = [w * math.exp(_STEP * (s - max(shares))) for w, s in zip(weights, shares, strict=True)]
    assert best is not None
    costs.weighed([weight / cost for weight, cost in zip(best[1], before, strict=True)])
    return best[2]


Types = Sequence[TensorType | None]


def _apart(available: Available, op: str, attrs: Attrs, operands: Types, results: Types) -> bool:
    """True for an operator that is available, and is not one that others were put together to."""
    return not is_composition(op) and available(op, attrs, operands, results)
