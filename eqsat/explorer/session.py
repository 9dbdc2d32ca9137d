"""A run that stands still between questions: its e-graph as far as it is grown, changed costs, and the choice."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from eqsat.costs.model.cost import GraphCost
from eqsat.costs.model.model import CostModel
from eqsat.egraph.saturation import Limits, SaturationStep
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.explorer.choosing import Choice
from eqsat.explorer.growing import Growth
from eqsat.explorer.pricing import Repriced, repriced, standing
from eqsat.explorer.view.run import ViewedRun
from eqsat.extract.tensors.judging import as_given
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.onnx.read.model import Given
from eqsat.report.changes import explain, regions
from eqsat.report.explanation import Explanation
from eqsat.report.result import Result
from eqsat.run import Finished, Run
from eqsat.steps.choosing import Chosen, baselines_beside
from eqsat.steps.failures import is_for_the_caller
from eqsat.steps.growing import Grown, GrowthRounds, begin
from eqsat.system.deadline import NEVER, TimeUp
from eqsat.system.interrupts import interruptible

#: Ends of growth after which no step finds anything new.
_COMPLETE = ("saturated", "radius_limit")


class _Stop:
    """A request to stop, by the user's function or by Ctrl-C while something grows; it stands until `forget`.

    It refers to no session: a session that refers to itself would wait for the collector, which may run in another
    thread, where egglog's state must not be dropped.
    """

    def __init__(self, asked: Callable[[], bool] | None) -> None:
        self.asked = asked
        self.interrupted: Callable[[], bool] | None = None
        self._stands = False

    def __call__(self) -> bool:
        if not self._stands:
            by_key = self.interrupted is not None and self.interrupted()
            self._stands = by_key or (self.asked is not None and self.asked())
        return self._stands

    def forget(self) -> None:
        """Let work go on that was stopped."""
        self._stands = False


class Session:
    """The parts of a run, each worked out when it is asked for and kept until growth or costs change.

    It belongs to the thread that made it, as its e-graph does.
    """

    def __init__(self, run: Run, should_stop: Callable[[], bool] | None = None) -> None:
        self._stop = _Stop(should_stop)
        settings = replace(run.settings, options=replace(run.settings.options, should_stop=self._stop))
        self.run = replace(run, settings=settings)
        with self.run.log.phase("saturate"):
            self.encoding, self.saturator = begin(run.given, run.rules, settings, run.log)
        # The time between two steps counts for nothing: the saturator has its own limit of seconds.
        deadline = settings.deadline if settings.deadline.counts_steps else NEVER
        self.saturator.deadline = deadline.part()
        quantises = settings.choices.policy.quantises
        self._rounds = GrowthRounds(self.encoding, self.saturator, run.rules, deadline, run.quick_choice, quantises)
        self.changes: list[Repriced] = []
        self._steps: Iterator[SaturationStep] | None = None
        self._snapshot: Snapshot | None = None
        self._extraction: TensorProblem | None = None
        self.choice: Choice | None = None
        self.finished: Finished | None = None

    @property
    def given(self) -> Given:
        """The model as it was read."""
        return self.run.given

    # -- growing ------------------------------------------------------------------------------------------------------

    @property
    def limits(self) -> Limits:
        """The limits of growth."""
        return self._rounds.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._rounds.limits = limits

    def step(self, phase: str | None = None) -> Growth:
        """The next step in order, or one of a phase out of turn."""
        if phase is not None:
            return self._taken(lambda: [self.saturator.step(phase)])
        return self._taken(lambda: [step for step in [self._next()] if step is not None])

    def grow(self) -> Growth:
        """All steps that are left."""

        def run() -> list[SaturationStep]:
            taken = []
            while (step := self._next()) is not None:
                taken.append(step)
                if step.stopped:
                    break
            return taken

        return self._taken(run)

    def _next(self) -> SaturationStep | None:
        """The next step of the run; None where nothing new can come."""
        if self._steps is None:
            if self.saturator.report.steps and self.saturator.report.stopped_by in _COMPLETE:
                return None
            self._steps = self._rounds.steps()
        step = next(self._steps, None)
        if step is None:
            self._steps = None
        return step

    def _taken(self, take: Callable[[], Sequence[SaturationStep]]) -> Growth:
        self.saturator.check_thread()
        first = len(self.saturator.report.steps)
        before = self.encoding.egraph.size()
        # A method of the session here would make it refer to itself.
        self._rounds.choose_from = self._choosing().quick_choice
        self._begin(self.run)
        with self.run.log.phase("saturate"), interruptible() as asked:
            self._stop.interrupted = asked
            try:
                taken = take()
            except BaseException:
                self._steps = None  # a generator that raised is over; the next run takes up the rest
                raise
            finally:
                self._stop.interrupted = None
                if len(self.saturator.report.steps) > first or self.encoding.egraph.size() != before:
                    self._forget()
        ended = self.saturator.report.stopped_by
        return Growth(tuple(taken), ended, self.encoding.egraph.size(), self.place)

    def place(self, enode: int) -> str:
        """The value of the graph in the class of an e-node, or the class."""
        egraph = self.encoding.egraph
        return next(iter(egraph.eclass(enode).values), f"e-class {egraph.find(enode)}")

    def _begin(self, run: Run) -> None:
        """Begin what a user asks for: with all the time of a call, and nobody having asked to stop."""
        self._stop.forget()
        run.settings.deadline.begin()

    def _forget(self) -> None:
        self._snapshot = self._extraction = self.choice = self.finished = None

    # -- choosing -----------------------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The e-graph as it is."""
        if self._snapshot is None:
            self.saturator.check_thread()
            self._snapshot = snapshot(self.encoding)
        return self._snapshot

    @property
    def grown(self) -> Grown:
        """The e-graph as it is, with how it grew."""
        return self._rounds.grown(self.snapshot)

    @property
    def costs(self) -> CostModel:
        """The cost model, under the last function that a user put in its place."""
        asked = next((c.function for c in reversed(self.changes) if c.function is not None), None)
        if asked is None:
            return self.run.settings.costs
        model = copy.copy(self.run.settings.costs)
        model.cost = asked
        return model

    @property
    def in_seconds(self) -> bool:
        """True if costs are seconds: the objective is time, and no function stands in its place."""
        return self.costs.cost is None and dict(self.costs.objective) == {"time": 1.0}

    @property
    def extraction(self) -> TensorProblem:
        """The problem of choosing, at the costs that hold now."""
        if self._extraction is None:
            self._extraction = self._choosing().chooser(self.grown).problem()
        return self._extraction

    def reprice(self, changes: Sequence[Repriced]) -> None:
        """Puts other changes of costs in force."""
        before, self.changes = self.changes, list(changes)
        self._extraction = self.choice = self.finished = None
        try:
            self.extraction  # noqa: B018 - a cost that is none is told here, before anything relies on it
        except BaseException:
            self.changes = before
            raise

    def choose(self, extractor: str) -> Choice:
        """The choice of an extractor, beside those of the baselines."""
        run, extraction = self._choosing(), self.extraction
        chooser = run.chooser(self.grown)
        self._begin(run)
        with run.log.phase("extract"):
            solutions = chooser.solutions(extraction, extractor)
            solution = solutions[extractor]
            candidates = chooser.finalists(extraction, {extractor: solution})
        self.finished = None
        chosen = Chosen(extraction, solution, baselines_beside(extractor, solutions), candidates)
        self.choice = self._choice(extractor, chosen)
        return self.choice

    def finish(self, measure: bool) -> Result:
        """The result of the e-graph so far, at the costs that hold now, measured if asked for, and certified.

        Where that fails, the original is the result, and its report has the failure.
        """
        run = self._choosing()
        run = replace(run, settings=replace(run.settings, options=replace(run.settings.options, measure=measure)))
        as_it_was = replace(run, settings=self.run.settings)
        run.log.warnings += [f"costs were changed: {change.text}" for change in self.changes]
        self._begin(run)
        try:
            finished = run.finish(self.grown, measure)
        except TimeUp as late:
            run.log.skipped.append(f"nothing was chosen from what was grown: {late}")
            return as_it_was.original()
        except Exception as error:
            if run.settings.options.strict or is_for_the_caller(error, bool(run.settings.bounds)):
                raise
            run.log.failures.append(error)
            return as_it_was.original()
        chosen = replace(finished.chosen, candidates=list(finished.candidates))
        self.choice = self._choice(run.settings.options.extractor, chosen)
        self.finished = finished
        return finished.result

    def _choice(self, extractor: str, chosen: Chosen) -> Choice:
        """A choice as it is shown: the original where nothing that the extractor chose is left."""
        original = chosen.candidates[0]
        candidate = next((c for c in chosen.candidates if c.name == extractor), original)
        given = as_given(chosen.extraction)
        return Choice(
            extractor,
            chosen.extraction,
            chosen.solution,
            candidate,
            original,
            given,
            list(chosen.baselines),
            self.in_seconds,
        )

    def _choosing(self) -> Run:
        """A run with a log of its own for each choice: its warnings and times do not add up over several."""
        run, egraph = self.run, self.encoding.egraph
        changes = [c if c.enode is None else replace(c, enode=standing(egraph, c.enode)) for c in self.changes]
        adjust = partial(repriced, changes=changes, in_seconds=self.in_seconds)
        return replace(
            run,
            settings=replace(run.settings, costs=self.costs),
            log=run.log.copy(anew=True),
            adjust=adjust if any(c.change is not None for c in changes) else None,
        )

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, choice: Choice) -> ViewedRun:
        """The run as views are made of it: that of the result where there is one, else of the choice."""
        finished = self.finished
        finalist = choice.candidate if finished is None else finished.kept

        def explained() -> Explanation:
            if finished is not None:
                return finished.result.explanation
            return explain(self.encoding, choice.original, finalist, regions(self.encoding, finalist))

        report = f"{choice}\n\n{self.totals()}" if finished is None else str(finished.result.report)
        costs: GraphCost = self.run.settings.costs.graph(self.given.graph)
        notes = tuple(f"cost changed: {change.text}" for change in self.changes)
        grown = self.saturator.report
        rules = self.run.rules
        return ViewedRun(self.given, self.encoding, grown, rules, choice, finalist, costs, explained, report, notes)

    def totals(self) -> Growth:
        """All growth so far."""
        report = self.saturator.report
        return Growth(tuple(report.steps), report.stopped_by, self.encoding.egraph.size(), self.place)
