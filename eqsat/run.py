"""A run: read, saturate, choose, measure, certify, and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eqsat.egraph.engine import load
from eqsat.errors import CertificateError
from eqsat.extract import Solution
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.comprehension.graphs.composition import declare_compositions
from eqsat.language.graphs.repeats import condensed
from eqsat.language.onnx.read.model import Given, ModelArgument, model_digest, read
from eqsat.language.sizes.asked import check_sizes
from eqsat.language.sizes.buckets import check_names
from eqsat.language.terms.graph import Graph
from eqsat.options.options import Options
from eqsat.options.rules import rules_of
from eqsat.report.finalists import Candidate
from eqsat.report.parts import SessionLevel
from eqsat.report.report import Progress
from eqsat.report.result import Result
from eqsat.rewrites.rules.ruleset import RuleSet
from eqsat.steps.archive.archive import Archive
from eqsat.steps.blocks.whole import BlocksError
from eqsat.steps.bodies import optimised_inside
from eqsat.steps.calibrating import calibrated
from eqsat.steps.certifying import Judged, Ruling, first_certified
from eqsat.steps.choosing import Adjust, Chooser, Chosen
from eqsat.steps.failures import guarded, kept_original
from eqsat.steps.growing import Grown, grow
from eqsat.steps.kernels import with_kernels
from eqsat.steps.log import Log
from eqsat.steps.parts.tasks import FoundPart, PartOutcome, PartTask
from eqsat.steps.parts.whole import PartedRun, is_for_parts
from eqsat.steps.precision.choice import IntegerChoice
from eqsat.steps.precision.equalising import Equaliser
from eqsat.steps.precision.floats import FloatChoice
from eqsat.steps.precision.overflow import FloatRanges, may_overflow
from eqsat.steps.provenance import describe_call
from eqsat.steps.reporting import explained, result_of
from eqsat.steps.settings import SATURATE, Settings
from eqsat.steps.sizes import placed
from eqsat.steps.trials import Trials
from eqsat.system.collector import collect_here
from eqsat.system.deadline import TimeUp
from eqsat.system.heap import return_freed
from eqsat.system.mapped import release_mapped

#: The share of what is left of a call after choosing that measuring may take: the certificate has the rest, since
#: nothing is kept without one.
_MEASURE = 0.8
#: The share of what is left of a call after a certificate that trials of levels may take.
_LEVELS = 0.8


def _check_dims(graph: Graph, options: Options) -> None:
    """UsageError for sizes or buckets of dims that a model does not have, before anything else takes time."""
    check_sizes(graph, options.asked_sizes)
    if options.asked_buckets is not None:
        check_names(graph, options.asked_buckets.ends)


@dataclass(frozen=True)
class Finished:
    """A result with its finalists, and the one that was kept."""

    result: Result
    chosen: Chosen
    candidates: Sequence[Candidate]
    kept: Candidate


@dataclass(frozen=True)
class Opened:
    """A model as it was read, before the e-graph's engine and the library of rules are loaded.

    `rules` are those that were asked for, None for the library alone.
    """

    settings: Settings
    log: Log
    given: Given
    rules: RuleSet | None

    @classmethod
    def of(cls, model: ModelArgument, options: Options, growing: float = SATURATE) -> Opened:
        """Read a model, and rules where some were given, and scale costs to this machine; the time limit begins now.

        `growing` is the share of the time for growth.
        """
        settings, warnings = Settings.of(options, growing)
        log = Log(options.progress, warnings=warnings)
        with log.phase("read"):
            rules = None if options.rules is None else rules_of(options.rules, options.trust)
            given = read(model, options.outputs)
            _check_dims(given.graph, options)
            if settings.device.has_functions:
                declare_compositions(given.graph)  # which it has kernels for
            settings = settings.reading(given.graph)
            model_digest(given)  # before files, or a model in memory, can change
            settings.deadline.begin()
        if settings.data is not None and settings.choices.policy.is_exact:
            log.warnings.append("calibration data were read, and nothing is quantised: precision='int8' would be")
        return cls(calibrated(settings, log), log, given, rules)

    def run(self) -> Run:
        """The run of this model, at the sizes that it is costed at."""
        settings, log = self.settings, self.log
        with log.phase("read"):
            with settings.deadline.paused():
                load()
                rules = rules_of(None, settings.options.trust) if self.rules is None else self.rules
            settings = placed(self.given, settings.options.asked_sizes, settings, log)
        return Run(settings, log, self.given, rules)

    def optimised(self) -> Result:
        """The result of all steps, bodies first: found again where an equal run kept it, else kept for the next."""
        with self.log.phase("read"), self.settings.deadline.paused():
            archive = Archive.of(self.given, self.rules, self.settings)
            earlier = archive.find()
        if earlier is None:
            run = self.run().with_bodies().with_blocks()
            if is_for_parts(run.given, run.settings, run.log):
                return PartedRun(run.given, run.rules, run.settings, run.log, optimised_part).result()
            return run.result(archive.keep)
        describe_call(earlier.report, self.given, self.settings)
        return earlier


def optimised_part(task: PartTask) -> PartOutcome:
    """Optimise a part of a graph, here or in another process."""
    outcome = _part_outcome(task)
    collect_here()  # nothing refers to the e-graph any more
    return outcome


def _part_outcome(task: PartTask) -> PartOutcome:
    graph = task.graph
    opened = Opened.of(graph, task.options)
    # Its readers are in other parts, which may tell the sign of a zero.
    given = replace(opened.given, doubted=task.doubted, heard=True)
    kept: list[Candidate] = []
    run = replace(opened, given=given).run().with_blocks()
    result = run.result(lambda _result, candidate, _settings: kept.append(candidate))
    return PartOutcome.of(result, FoundPart.of(kept[-1]) if kept else None, graph)


@dataclass(frozen=True)
class Run:
    """One optimisation of a model: its settings, its log, the model as it was read, and the rules.

    `adjust` changes the costs of a problem before anything is chosen.
    """

    settings: Settings
    log: Log
    given: Given
    rules: RuleSet
    adjust: Adjust | None = None

    @classmethod
    def read(cls, model: ModelArgument, options: Options, growing: float = SATURATE) -> Run:
        """Read a model and the rules, scale costs to this machine, and find the sizes that the model is costed at.

        `growing` is the share of the time for growth. Reading itself is not in the time limit.
        """
        return Opened.of(model, options, growing).run()

    def with_bodies(self) -> Run:
        """The same run with the bodies of If, Loop and Scan optimised, each by a run of its own."""

        def optimised(given: Given, settings: Settings) -> Result:
            return Run(settings, Log(), given, self.rules).result()

        return replace(self, given=optimised_inside(self.given, self.settings, self.log, optimised))

    def with_blocks(self) -> Run:
        """The same run with equal blocks of the model standing for each other, where nothing tells them apart.

        Ranges and errors of values, limits of the whole and states of its inputs do.
        """
        settings = self.settings
        plain = settings.choices.policy.is_exact and settings.is_plain and not settings.bounds
        if not plain or settings.costs.cost is not None or self.adjust is not None:
            return self
        try:
            with self.log.phase("read"), settings.deadline:
                return replace(self, given=replace(self.given, condensed=condensed(self.given.graph)))
        except TimeUp:
            return self  # the next step finds so as well, and says what is left undone

    def result(self, keep: Callable[[Result, Candidate, Settings], None] | None = None) -> Result:
        """The result of all steps: the original where something fails, and the report says what did.

        `keep` is told of a result and of the finalist that it is, where nothing failed.
        """

        def attempt(rules: RuleSet, again: bool) -> Result:
            run = replace(self, rules=rules)
            try:
                finished = run.finish(run.saturate(rules), self.settings.options.measure, again)
            except (CertificateError, BlocksError) as error:
                if self.given.condensed is None:
                    raise
                self.log.warnings.append(f"equal blocks were looked at one by one: {error.what}")
                run = replace(run, given=replace(self.given, condensed=None))
                finished = run.finish(run.saturate(rules), self.settings.options.measure, again)
            if keep is not None:
                keep(finished.result, finished.kept, self.settings)
            return finished.result

        return guarded(attempt, self.rules, self.original, self.settings, self.log)

    def original(self) -> Result:
        """The original, as the result of a run that failed, or that there was no time for."""
        return kept_original(self.given, self.settings, self.log)

    def saturate(self, rules: RuleSet) -> Grown:
        """The e-graph of the model, grown by rules."""
        return grow(self.given, rules, self.settings, self.log, self.quick_choice)

    def quick_choice(self, grown: Grown) -> tuple[TensorProblem, Solution]:
        """A choice that is found fast, to grow an e-graph around."""
        return self._chooser(grown).quick()

    def chooser(self, grown: Grown) -> Chooser:
        """The chooser among the e-nodes of an e-graph, at the costs of this run."""
        ranges = None
        if may_overflow(self.settings):
            with self.log.phase("calibrate"), self.settings.deadline.paused():
                ranges = FloatRanges.of(self.settings, grown.encoding.graph, grown.snapshot)
        return self._chooser(grown, ranges)

    def _chooser(self, grown: Grown, ranges: FloatRanges | None = None) -> Chooser:
        return Chooser(self.settings, self.log, self.given, grown, self.adjust, ranges)

    def finish(self, grown: Grown, measure: bool, again: bool = False) -> Finished:
        """The result from an e-graph, however far it was grown: chosen, measured if asked for, and certified.

        A finalist that is wrong is left out and the report says that the run failed; with `again`, its CertificateError
        is raised instead, and names the rules behind it.
        """
        settings = with_kernels(self.settings, grown.snapshot, self.log)
        return replace(self, settings=settings)._finish(grown, measure, again)

    def _finish(self, grown: Grown, measure: bool, again: bool) -> Finished:
        trials, deadline = Trials(self.settings, self.log), self.settings.deadline
        chosen = self.choose(grown)
        judged = self.measure(chosen, trials, measure)
        with self.log.phase("certify"), deadline:
            chosen, judged, ruling = self.certify(grown, chosen, judged, trials, again)
        timed = measure and judged.measured is not None
        levels = self.levels(ruling, judged, trials) if measure else []
        with deadline:
            explanation = explained(grown, ruling, timed, self.settings, self.log)
        return_freed()  # of sessions, which hold the weights once each
        result = result_of(self.given, grown, chosen, ruling, judged, explanation, levels, self.settings, self.log)
        return Finished(result, chosen, ruling.candidates, ruling.best)

    def choose(self, grown: Grown) -> Chosen:
        """The cheapest choices by cost, the finalists."""
        chooser = self.chooser(grown)
        chosen = self._choice(chooser)
        if chooser.ranges is None:
            return self._with_bytes(grown, chooser, chosen)
        while chooser.ranges.missed(chosen.candidates):
            chosen = self._choice(chooser)
        if chooser.ranges.note:
            self.log.warnings.append(chooser.ranges.note)
        final = self._with_bytes(grown, chooser, chosen)
        if final is not chosen and chooser.ranges.missed(final.candidates):
            self.log.warnings.append("a choice on numbers of a byte is left out: it holds values beyond float16 in it")
            return chosen
        return final

    def _choice(self, chooser: Chooser) -> Chosen:
        with self.log.phase("extract"), self.settings.deadline:
            chosen = chooser.choice(chooser.weighed_problem())
        return chosen if self.adjust is not None else FloatChoice(chooser, chosen).chosen()

    def _with_bytes(self, grown: Grown, chooser: Chooser, chosen: Chosen) -> Chosen:
        return self.integers(grown, chooser, chosen).chosen() if self.settings.choices.policy.quantises else chosen

    def integers(self, grown: Grown, chooser: Chooser, chosen: Chosen) -> IntegerChoice:
        """The choice among kernels on integers as well, after one in floats."""
        return IntegerChoice(chooser, chosen, Equaliser(grown.encoding, grown.saturation, self.rules))

    def measure(self, chosen: Chosen, trials: Trials, measure: bool) -> Judged:
        """The finalists that agree with the original, timed against it where that is asked for and can be."""
        settings, source = self.settings, self.given.runnable
        candidates = chosen.candidates
        with self.log.phase("measure"):
            with settings.deadline.part(_MEASURE):
                measured = trials.measure(candidates, source) if measure else None
            if measured is None:
                with settings.deadline.part(_MEASURE):
                    candidates = trials.agreeing(candidates, source)
            return_freed()  # of sessions, which hold the weights once each
            release_mapped()
        # Other terms than time were not timed.
        only_time = settings.costs.cost is not None or set(settings.costs.objective) == {"time"}
        times = measured if only_time and self.adjust is None else None
        return Judged(candidates, chosen.candidates, measured, times)

    def certify(
        self, grown: Grown, chosen: Chosen, judged: Judged, trials: Trials, again: bool
    ) -> tuple[Chosen, Judged, Ruling]:
        """The best finalist with a certificate, and its choice: made anew where none in a lower precision holds."""
        given, log = self.given, self.log
        # Outputs that differ for more than rounding are a wrong region's, and that is no reason to stop here.
        for other in (c for c in judged.finalists if c.name in trials.differing):
            trials.certify(given.graph, grown.encoding, other, grown.saturation, again)
        ruling = first_certified(given, grown, judged.candidates, judged.times, trials, again)
        refused_all = len(ruling.candidates) == 1 < len(judged.candidates)
        if refused_all and not self.settings.choices.policy.is_exact:
            chosen, judged, ruling = self._choose_exactly(grown, again)
        if log.failures:
            first = ruling.candidates[0]
            ruling = replace(ruling, best=first, because="a region of what was found is wrong")
        elif len(ruling.candidates) == 1 < len(judged.finalists):
            ruling = replace(ruling, because="every other finalist was left out")
        unchecked = judged.measured is None or len(ruling.candidates) < len(judged.finalists)
        is_original = ruling.best is ruling.candidates[0]
        if is_original and log.skipped and len(judged.finalists) > 1 and unchecked:
            ruling = replace(ruling, because=self.settings.deadline.reason)
        return chosen, judged, ruling

    def levels(self, ruling: Ruling, judged: Judged, trials: Trials) -> list[SessionLevel]:
        """The levels of ONNX Runtime's graph optimisation that the result was timed at, in a share of what is left."""
        decided = judged.times is not None or len(judged.finalists) == 1
        if not decided or self.adjust is not None or self.log.failures:
            return []
        self.log.say(Progress("measure", detail="levels of ONNX Runtime"))
        with self.log.phase("measure"), self.settings.deadline.part(_LEVELS):
            return trials.levels(ruling.best, ruling.candidates[0], self.given.runnable, judged.times)

    def _choose_exactly(self, grown: Grown, again: bool) -> tuple[Chosen, Judged, Ruling]:
        """The choice in the precision of the model, after none in a lower one could be kept."""
        self.log.warnings.append("chosen anew in the precision of the model")
        run = replace(self, settings=self.settings.exact)
        chooser, trials = run.chooser(grown), Trials(run.settings, run.log)
        chosen = chooser.choice(chooser.problem())
        candidates = trials.agreeing(chosen.candidates, self.given.runnable)
        ruling = first_certified(self.given, grown, candidates, None, trials, again)
        # Times of the finalists in lower precision say nothing of these, which bear the same names.
        return chosen, Judged(candidates, chosen.candidates, None, None), ruling
