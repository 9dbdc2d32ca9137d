"""The pipeline behind `optimize`: saturate, extract, measure, certify."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from eqsat.costs.kernels.precision import POLICIES
from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import Encoding, encode, nan_warnings
from eqsat.egraph.saturate import Saturation, Saturator
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.errors import CertificateError, ExtractionError, UnsoundRuleError
from eqsat.extract import Solution, solve
from eqsat.extract.solvers.restricted import Restricted
from eqsat.extract.tensors.resources import limited
from eqsat.extract.tensors.tensors import Available, TensorProblem, everything, tensor_problem
from eqsat.language.onnx.read.model import Given
from eqsat.language.onnx.write.availability import opset_of
from eqsat.language.terms.graph import Graph
from eqsat.report.changes import explain, regions
from eqsat.report.explanation import Explanation
from eqsat.report.finalists import (
    Candidate,
    kept,
)
from eqsat.report.report import Phase, Progress, Report
from eqsat.report.result import Result
from eqsat.report.savings import measured_changes
from eqsat.report.summary import Baseline, Findings, report_of
from eqsat.rewrites.rules.rule import Rule
from eqsat.runtime.examples import SizePoint
from eqsat.runtime.onnxruntime.support import available_on, windowed_dims
from eqsat.steps import fused
from eqsat.steps.choosing import Choosing
from eqsat.steps.failures import is_for_the_caller, kept_original, released, told
from eqsat.steps.settings import Settings
from eqsat.steps.sizes import Sizes, check_sizes, points_for
from eqsat.steps.trials import Trials
from eqsat.steps.worst import ROUNDS, balanced
from eqsat.system.collector import seldom_collecting
from eqsat.system.deadline import TimeUp

#: The shares of a call that growing may take, and of what is then left those of choosing and, after that, of measuring:
#: the certificate has the rest, since nothing is kept without one.
_SATURATE, _EXTRACT, _MEASURE = 0.4, 0.5, 0.8
#: The share of a call after which nothing is grown from a graph that is not yet in an e-graph.
_ENCODE = 0.6
#: The share that finding sizes the model runs at may take.
_PLACE = 0.2
#: Seconds that the backtracking search may take for the report, and its share of what is left.
_BASELINE_SECONDS, _BASELINE_SHARE = 1.0, 0.05
#: The share of the time for extraction that choosing among row-major values alone may take.
_FIRST_SHARE = 0.6
#: The share of what is left that weighing sizes against each other may take.
_BALANCE_SHARE = 0.25
#: What a phase that there was no time for leaves undone.
_UNDONE: dict[Phase, str] = {
    "read": "nothing was looked for",
    "bodies": "bodies of If, Loop and Scan were left as they were",
    "saturate": "nothing was looked for",
    "extract": "nothing was chosen from what was found",
    "measure": "what was found was not compared",
    "certify": "what was found was not certified",
    "write": "nothing was written",
}


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Finished:
    """A result, and what it was chosen from: the problem, its solution, what the baselines found, the finalists that
    could be checked, the original first, and the one that was kept."""

    result: Result
    framed: TensorProblem
    solution: Solution
    baselines: Sequence[Baseline]
    candidates: Sequence[Candidate]
    kept: Candidate


@dataclass
class Pipeline:
    """One optimisation: its settings, the seconds of each phase, and what the user is warned of.

    `failures` are errors that cost it a finalist, or the result, `skipped` says what there was no time for, `refuted`
    are the rules it began anew without, `current` is the phase it is in. `adjust` changes the costs of a problem before
    anything is chosen; what is chosen then is judged by those costs.
    """

    settings: Settings
    seconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    refuted: tuple[str, ...] = ()
    current: Phase = "read"
    adjust: Callable[[TensorProblem], TensorProblem] | None = None

    def place(self, given: Given, sizes: Sizes, costs: CostModel) -> Sequence[SizePoint]:
        """Settles where the model is costed and measured; UsageError for sizes of dims that it does not have."""
        check_sizes(given.graph, sizes)
        run = costs.device.is_here and not costs.device.gpu
        try:
            with self.settings.deadline.part(_PLACE):
                points, warnings = points_for(given, sizes, self.settings.threads, run=run)
        except TimeUp as late:
            points, warnings = points_for(given, sizes, run=False)
            if run and given.graph.sizing.unread is not None:  # else its operators have told all there is to know
                self.skipped.append(f"the model was not run to find sizes that it accepts: {late}")
        self.settings = replace(self.settings, points=points)
        self.warnings += warnings
        return points

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Times a phase and says that it began."""
        self.current = name
        self._say(Progress(name))
        start = time.perf_counter()
        try:
            with seldom_collecting():
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def run(self, given: Given, rules: tuple[Rule, ...], costs: CostModel, measure: bool) -> Result:
        """The result for a model that was read: the original where something fails, and the report says what did."""

        def attempt(left: tuple[Rule, ...], again: bool) -> Result:
            return self.finish(given, *self.grow(given, left), costs, measure, again).result

        return self.guarded(attempt, rules, lambda: self.original(given, costs))

    def guarded(
        self,
        attempt: Callable[[tuple[Rule, ...], bool], Answer],
        rules: tuple[Rule, ...],
        original: Callable[[], Answer],
    ) -> Answer:
        """What an attempt with rules comes to, or the original where it fails.

        Where rules made a region wrong, the attempt begins anew without them, once: the first is told that it may. With
        `strict` every failure is raised.
        """
        warned = list(self.warnings)
        try:
            try:
                return attempt(rules, True)
            except (CertificateError, UnsoundRuleError) as error:
                if self.settings.strict or not error.rules:
                    raise
                self.refuted, self.warnings[:] = error.rules, warned
                self.warnings.append(f"{error.what}; begun anew without the rules behind it: {', '.join(error.rules)}")
            return attempt(tuple(rule for rule in rules if rule.name not in self.refuted), False)
        except TimeUp as late:
            released(late)
            self.skipped.append(f"{_UNDONE[self.current]}: {late}")
            return original()
        except Exception as error:
            if self.settings.strict or is_for_the_caller(error, bool(self.settings.bounds)):
                raise
            self.failures.append(released(error))
            return original()

    def original(self, given: Given, costs: CostModel) -> Result:
        """The original, as the result of a run that failed, or that there was no time for."""
        with self.settings.deadline.grace(), seldom_collecting():
            kept = kept_original(
                given,
                costs,
                self.current,
                self.failures,
                self.seconds,
                self.warnings,
                self.skipped,
                threads=self.settings.threads,
                opset=self.settings.opset,
                interrupted=self.settings.should_stop is not None and self.settings.should_stop(),
            )
        self._name_limit(kept.report)
        return kept

    def _name_limit(self, report: Report) -> None:
        """Says of what ended at a limit that it was the one of steps, where these are counted."""
        if self.settings.deadline.counts_steps:
            late = "time_limit", "step_limit"
            report.stopped_by = report.stopped_by.replace(*late)
            report.extraction = report.extraction.replace(*late)

    def finish(
        self,
        given: Given,
        encoding: Encoding,
        grown: Saturation,
        frozen: Snapshot,
        costs: CostModel,
        measure: bool,
        again: bool = False,
    ) -> Finished:
        """The result from an e-graph, however far it was grown: chosen, measured and certified.

        A finalist that is wrong is left out and the report says that the run failed; with `again`, its CertificateError
        is raised instead, and names the rules behind it.
        """
        original, settings, trials = given.graph, self.settings, self._trials
        deadline = settings.deadline
        with self.phase("extract"), deadline:
            framed = self._framed(original, frozen, costs)
            solution, baselines, candidates = self._candidates(given, framed, costs)
        with self.phase("measure"):
            with deadline.part(_MEASURE):
                measured = trials.measure(candidates, given.source, costs) if measure else None
            finalists = candidates
            if measured is None:
                with deadline.part(_MEASURE):
                    candidates = trials.agreeing(candidates, given.source, costs)
            # What is asked for besides time is not what was timed.
            timed = self.adjust is None and (costs.cost is not None or set(costs.objective) == {"time"})
            judged = measured if timed else None
            best, because = kept(candidates, judged)
        with self.phase("certify"), deadline:
            # Outputs that differ for more than rounding are a wrong region's, and that is no reason to stop here.
            for other in (c for c in finalists if c.name in trials.differing):
                trials.certify(original, encoding, other, grown, again)
            while best.assembled is not None:
                refused = trials.certify(original, encoding, best, grown, again)
                if refused is None:
                    break
                if best is candidates[0]:
                    self.warnings.append(f"the original in the states asked for is not checked: {refused}")
                    break
                self.warnings.append(f"{best.name} was left out: {refused}")
                candidates = [c for c in candidates if c is not best]
                if len(candidates) == 1 and not self.settings.choices.policy.is_exact:
                    trials.settings = self.settings = replace(
                        settings, choices=replace(settings.choices, policy=POLICIES["exact"])
                    )
                    self.warnings.append("chosen anew in the precision of the model")
                    framed = self.frame(original, frozen, costs)
                    solution, baselines, candidates = self._candidates(given, framed, costs)
                    judged, candidates = None, trials.agreeing(candidates, given.source, costs)
                best, because = kept(candidates, judged)
            if self.failures:
                best, because = candidates[0], "a region of what was found is wrong"
            unchecked = measured is None or len(candidates) < len(finalists)
            if best is candidates[0] and self.skipped and len(finalists) > 1 and unchecked:
                because = deadline.reason
        with deadline:
            explained = self._explained(encoding, candidates[0], best, costs, measure and measured is not None)
        self.warnings += fused.warnings(best.graph)
        outcome = Findings(given, candidates, best, because, encoding, grown, solution, baselines, measured, explained)
        stopped = settings.should_stop is not None and settings.should_stop()
        report = report_of(outcome, costs, settings.device, stopped, self.seconds, self.warnings, settings.points)
        report.limits, report.refuted, report.skipped = dict(settings.bounds), self.refuted, tuple(self.skipped)
        self._name_limit(report)
        if self.failures:
            report.failure = f"certify: {told(self.failures[-1])}"
        elif failed := [i for i in given.inside if i.failure]:
            report.failure = f"{failed[-1].place}: {failed[-1].failure}"
        source = given.source if best.assembled is None else None
        plan = None if best.assembled is None else best.assembled.plan
        tuned = costs.library_plans if costs.device.gpu else ()
        failures = tuple(self.failures)
        result = Result(best.graph, report, explained, source, settings.threads, settings.opset, plan, tuned, failures)
        return Finished(result, framed, solution, baselines, candidates, best)

    def grow(self, given: Given, rules: tuple[Rule, ...]) -> tuple[Encoding, Saturation, Snapshot]:
        """The e-graph of a model, how it grew, and its e-nodes."""
        deadline = self.settings.deadline
        growing = deadline.part(_SATURATE)
        with self.phase("saturate"):
            with deadline.part(_ENCODE):
                encoding, saturator = self.begin(given, rules)
            saturator.deadline = growing
            with deadline:
                grown = saturator.run()
                return encoding, grown, snapshot(encoding)

    def begin(self, given: Given, rules: tuple[Rule, ...]) -> tuple[Encoding, Saturator]:
        """The e-graph of a model as it was given, and what grows it."""
        finite = self.settings.finite_math
        encoding = encode(given.graph, finite_math=finite, doubted=given.doubted, heard=given.heard)
        self.warnings += [*given.warnings, *nan_warnings(encoding)]

        def follow(phase: str, nodes: int) -> None:
            self._say(Progress("saturate", nodes=nodes, detail=phase))

        saturator = Saturator(encoding.egraph, rules, self.settings.limits, follow, self.settings.should_stop)
        return encoding, saturator

    def frame(self, original: Graph, frozen: Snapshot, costs: CostModel, counted: Sequence[str] = ()) -> TensorProblem:
        """The problem of choosing among e-nodes within the limits; `counted` are terms that are only added up."""
        settings = self.settings
        opset = settings.opset or opset_of(original)
        moved = windowed_dims(original)
        available: Available = available_on(settings.device, opset, contrib=settings.contrib, windowed=moved)
        if costs.device.strided:
            available = everything  # a plan is run as it is, and written to ONNX in what operators its opset has
        framed = tensor_problem(frozen, costs, available, settings.choices, settings.boundary, contrib=settings.contrib)
        framed = limited(framed, costs, settings.bounds, counted)
        return framed if self.adjust is None else self.adjust(framed)

    @property
    def _trials(self) -> Trials:
        return Trials(self.settings, self.warnings, self.failures, self.skipped)

    def _framed(self, original: Graph, frozen: Snapshot, costs: CostModel) -> TensorProblem:
        """The problem under the weights of sizes that are asked for."""
        if self.settings.over_sizes == "sum" or len(costs.parts) < 2:
            return self.frame(original, frozen, costs)
        settings = self.settings

        def solved(framed: TensorProblem) -> Solution:
            share = settings.deadline.part(_BALANCE_SHARE / ROUNDS)
            return solve(framed.problem, time_limit=share, should_stop=settings.should_stop)

        return balanced(original, costs, lambda: self.frame(original, frozen, costs), solved)

    def _say(self, progress: Progress) -> None:
        if self.settings.progress is not None:
            self.settings.progress(progress)

    def _candidates(
        self, given: Given, framed: TensorProblem, costs: CostModel
    ) -> tuple[Solution, list[Baseline], list[Candidate]]:
        """The solution, what the baselines found, and the finalists."""
        settings = self.settings
        solutions = self.baselines(framed)
        if settings.extractor in ("ilp", "backtracking") or settings.extractor not in solutions:
            solutions[settings.extractor] = self.solved(framed, settings.extractor, list(solutions.values()))
        baselines = [
            Baseline(name, s.cost, s.seconds, s.status) for name, s in solutions.items() if name != settings.extractor
        ]
        names = dict.fromkeys((settings.extractor, *(n for n in solutions if n == "greedy")))
        candidates = self.finalists(given, framed, costs, {name: solutions[name] for name in names})
        if settings.contrib and any(fused.may_be_written(c.graph) for c in candidates[1:]):
            candidates += self._portable(given, framed, costs)
        return solutions[settings.extractor], baselines, candidates

    def finalists(
        self, given: Given, framed: TensorProblem, costs: CostModel, solutions: Mapping[str, Solution]
    ) -> list[Candidate]:
        """The original, then the graph of each solution once."""
        return Choosing(self.settings, given, framed, costs, adjusted=self.adjust is not None).finalists(solutions)

    def _portable(self, given: Given, framed: TensorProblem, costs: CostModel) -> list[Candidate]:
        """The choice without operators of ONNX Runtime's own, to be measured beside: they may be slower."""
        plain = replace(self, settings=replace(self.settings, contrib=False))
        without = plain.frame(given.graph, framed.snapshot, costs)
        solution = plain.solved(without, self.settings.extractor, [])
        return plain.finalists(given, without, costs, {"portable": solution})[1:]

    def solved(self, framed: TensorProblem, extractor: str, known: Sequence[Solution] = ()) -> Solution:
        """What an extractor chooses; the integer program starts from what is `known`."""
        settings = self.settings

        def follow(best: float, bound: float) -> None:
            self._say(Progress("extract", nodes=len(framed.snapshot.nodes), best=best, bound=bound))

        if extractor == "ilp":
            return self._integer_program(framed, list(known), follow)
        more: dict[str, Any] = {}
        if extractor == "backtracking":
            more = {"start": framed.original(), "alpha": settings.alpha, "progress": follow}
        return solve(
            framed.problem,
            extractor=extractor,
            time_limit=settings.deadline.part(_EXTRACT),
            should_stop=settings.should_stop,
            **more,
        )

    def baselines(self, framed: TensorProblem) -> dict[str, Solution]:
        """What greedy and a short backtracking search find; nothing of one that finds no choice within the limits."""
        settings = self.settings
        short = settings.deadline.part(_BASELINE_SHARE, _BASELINE_SECONDS)
        ways: dict[str, dict[str, Any]] = {
            "greedy": {},
            "backtracking": {"start": framed.original(), "time_limit": short},
        }
        found: dict[str, Solution] = {}
        for name, more in ways.items():
            try:
                found[name] = solve(framed.problem, extractor=name, should_stop=settings.should_stop, **more)
            except ExtractionError as error:
                if not framed.problem.is_limited:
                    raise
                self.warnings.append(f"{name}: {error.what}")
        return found

    def _integer_program(
        self, framed: TensorProblem, known: list[Solution], follow: Callable[[float, float], None]
    ) -> Solution:
        """The solution of the integer program, started from what is known, and from the best row-major one.

        Layouts make a program several times as large; where the time does not suffice for all of it, the choice is at
        least as good as that of the smaller one.
        """
        settings = self.settings
        deadline = settings.deadline.part(_EXTRACT)
        rows = Restricted(framed)
        if rows.is_smaller and not framed.problem.is_limited:
            first = solve(
                rows.problem,
                time_limit=deadline.part(_FIRST_SHARE),
                seed=settings.seed,
                should_stop=settings.should_stop,
            )
            known = [*known, rows.lifted(first)]
        return solve(
            framed.problem,
            time_limit=deadline,
            seed=settings.seed,
            should_stop=settings.should_stop,
            known=known,
            progress=follow,
        )

    def _explained(
        self, encoding: Encoding, original: Candidate, best: Candidate, costs: CostModel, measure: bool
    ) -> Explanation:
        """What the candidate that is kept changes, and what each change is predicted, and measured, to save."""
        settings = self.settings
        try:
            found = regions(encoding, best)
            explained = explain(encoding, original, best, found)
        except TimeUp as late:
            self.skipped.append(f"changes are not explained: {late}")
            return Explanation(())
        if not measure or best.assembled is None:
            return explained
        with self.phase("measure"):
            return measured_changes(
                explained,
                found,
                encoding.graph,
                best,
                points=settings.points,
                seed=settings.seed,
                threads=settings.threads,
                backend="cupy" if costs.device.gpu else "onnxruntime",
                should_stop=settings.should_stop,
            )
