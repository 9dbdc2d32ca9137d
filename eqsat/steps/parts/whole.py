"""A graph that is too large for one e-graph: cut, optimised a part at a time, stitched, and searched again at the cuts.

A part is equal to what stands for it by a certificate of its own, made here whoever found it. So the whole is equal to
the original; the outputs of the two are compared besides where they can be run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from eqsat.egraph.encode import encode
from eqsat.errors import CertificateError, UncheckedError
from eqsat.language.graphs.partition import partition
from eqsat.language.onnx.control.sites import holds_bodies
from eqsat.language.onnx.read.model import Given, dims_of
from eqsat.language.terms import Graph
from eqsat.report.decision import finalists_of, kept
from eqsat.report.explanation import Explanation
from eqsat.report.finalists import Candidate, Measured, with_bodies, written_size
from eqsat.report.parts import BodyCertificate, CertificateSummary, ControlChange, Finalist, GraphPart
from eqsat.report.report import Progress, Report
from eqsat.report.result import Result
from eqsat.report.summary import kept_report, most_often, summary_of
from eqsat.report.units import count
from eqsat.rewrites.rules.crossings import crossings
from eqsat.rewrites.rules.ruleset import RuleSet
from eqsat.steps.failures import is_for_the_caller, kept_original, name_limit, released, told, with_asked_inputs
from eqsat.steps.log import Log
from eqsat.steps.parts.executing import Attempted, PartsAtOnce, PartsInTurn
from eqsat.steps.parts.stitching import CutPart, parts_of, stitched
from eqsat.steps.parts.tasks import PartOutcome, PartTask, Work, options_for
from eqsat.steps.provenance import describe_call
from eqsat.steps.settings import Settings
from eqsat.steps.trials import Trials, seconds_of_trials
from eqsat.system.deadline import Deadline, TimeUp

#: The most nodes of a part: of larger ones fewer are grown to their ends and chosen from in the same time.
_PART = 500
#: The most of what is left that is kept to compare the outputs of the whole: sessions of 100 000 nodes took 266 s.
_TRIALS = 0.5
#: The share of the time for parts; those around the cuts have the rest, and a quarter as many nodes, or so many.
_FIRST, _SMALLER, _LEAST = 0.7, 4, 16
#: The ends of growth, the earliest first.
_LEAST_GROWN = ("failed", "interrupted", "time_limit", "step_limit", "node_limit", "round_limit", "radius_limit")


def is_for_parts(given: Given, settings: Settings, log: Log) -> bool:
    """True if a graph is to be cut: it is larger than one e-graph, and nothing that is asked for is of the whole.

    Where something is, the log has a warning of it.
    """
    nodes = len(given.grown.nodes)
    if nodes <= settings.options.max_nodes:
        return False
    reasons = {
        "a lower precision is": not settings.choices.policy.is_exact,
        "states of inputs or outputs are": not settings.is_plain,
        "limits are": bool(settings.bounds),
        "the worst of several sizes is": settings.options.over_sizes == "worst",
        "a peak of memory is": "peak_memory" in settings.costs.objective,
        "a function of cost is": settings.costs.cost is not None,
        "plans of GPUs are": bool(settings.device.gpu),
        "bodies of If, Loop and Scan are": holds_bodies(given.graph),
    }
    reason = next((text for text, holds in reasons.items() if holds), "")
    if reason:
        log.warnings.append(f"{nodes} nodes were not cut into parts: {reason} of the whole")
    return not reason


@dataclass
class PartedRun:
    """One optimisation of a model by its parts. `work` optimises one of them, here or in another process."""

    given: Given
    rules: RuleSet
    settings: Settings
    log: Log
    work: Work
    records: list[GraphPart] = field(default_factory=list)
    certificates: list[BodyCertificate] = field(default_factory=list)
    fired: dict[str, int] = field(default_factory=dict)
    ends: set[str] = field(default_factory=set)
    enodes: int = 0
    eclasses: int = 0

    def result(self) -> Result:
        """The result of all parts: the original where nothing was found, or something fails, which the report says."""
        settings, log = self.settings, self.log
        try:
            with log.phase("parts"):
                graph = self.improved()
            return self.judged(graph)
        except TimeUp as late:
            log.skipped.append(f"parts were not searched: {late}")
            released(late)
        except Exception as error:
            if settings.options.strict or is_for_the_caller(error, False):
                raise
            log.failures.append(released(error))
        return kept_original(self.given, settings, log)

    def improved(self) -> Graph:
        """The graph with every part replaced by the best that was found for it, and then those around the cuts."""
        original, most = self.given.graph, min(self.settings.options.max_nodes, _PART)
        deadline = self.settings.deadline
        until = deadline.before(min(seconds_of_trials(self.given, self.settings), _TRIALS * deadline.seconds))
        with until:
            losses = crossings(original, self.rules)
            cuts = partition(original, losses, most, self.settings.options.partition)
        parts = parts_of(original, cuts.parts)
        graph = self._searched(original, parts, until.part(_FIRST), "part")
        cut = {value for part in parts for value in part.graph.inputs} - set(original.inputs)
        try:
            with until:
                around = self._around(graph, cut, min(most, max(_LEAST, most // _SMALLER)))
            return self._searched(graph, around, until, "cut", cut)
        except TimeUp as late:
            self.log.skipped.append(f"the graph was not searched again around its cuts: {late}")
            return graph

    def _around(self, graph: Graph, cut: set[str], most: int) -> list[CutPart]:
        """The graph in smaller parts, cut at other nodes than before."""
        losses = crossings(graph, self.rules)
        again = 1 + max(losses, default=0)  # more than at any node
        losses = tuple(
            loss + again * any(value in cut for value in node.outputs)
            for node, loss in zip(graph.nodes, losses, strict=True)
        )
        return parts_of(graph, partition(graph, losses, most, self.settings.options.partition).parts)

    def _searched(
        self, graph: Graph, parts: Sequence[CutPart], until: Deadline, kind: str, cut: Collection[str] = ()
    ) -> Graph:
        """A graph with what was found for its parts; of parts around cuts only those are searched that hold one."""
        with until:
            doubted = self._doubted(parts)
        wanted = [n for n, part in enumerate(parts) if kind == "part" or _straddles(part, cut)]
        # A task holds the constants of its part: none is made before it is to be done.
        tasks = [partial(self._task, parts[number].graph, doubted[number]) for number in wanted]
        follow, executor = self._follow(kind, len(tasks)), self.settings.options.executor
        if executor is None:
            attempts = PartsInTurn(self.work, until).attempts(tasks, follow)
        else:
            at_once = PartsAtOnce(self.work, until, executor)
            attempts = at_once.attempts(tasks, follow)
            self.log.warnings += at_once.warnings
        new: dict[int, Graph | None] = {}
        for number, one in zip(wanted, attempts, strict=True):
            new[number] = self._taken(parts[number], one, kind)
        return stitched(graph, [(part, new.get(number)) for number, part in enumerate(parts)])

    def _task(self, part: Graph, doubted: frozenset[str]) -> PartTask:
        options = self.settings.options
        dims = {name: sizes for name, sizes in options.asked_sizes.items() if name in dims_of(part)}
        return PartTask.of(part, doubted, options_for(options, self.given.graph, dims))

    def _follow(self, kind: str, count: int) -> Callable[[int], None]:
        what = "parts" if kind == "part" else "parts around the cuts"

        def follow(done: int) -> None:
            self.log.say(Progress("parts", detail=f"{done} of {count} {what}"))

        return follow

    def _doubted(self, parts: Sequence[CutPart]) -> list[frozenset[str]]:
        """For each part, the inputs that may be infinite or NaN, as far as the operators before them tell."""
        if self.settings.options.finite_math is not None:
            return [frozenset()] * len(parts)
        doubtful: set[str] = set(self.given.doubted)
        found: list[frozenset[str]] = []
        for part in parts:
            own = frozenset(value for value in part.graph.inputs if value in doubtful)
            found.append(own)
            encoding = encode(part.graph, doubted=own, heard=True)
            for value in part.graph.outputs.values():
                if not encoding.egraph.eclass(encoding.values[value]).finite:
                    doubtful.add(value)
        return found

    def _taken(self, part: CutPart, one: Attempted, kind: str) -> Graph | None:
        """The graph found for a part, None where it stays; the record of it is kept."""
        outcome, size = one.outcome, len(part.graph.nodes)
        name, why, graph = f"{kind}: {part.graph.name}", one.why, None
        costs = (0.0, 0.0)
        if one.before:
            self.log.warnings.append(f"{name} was tried again: {one.before}")
        if outcome is not None:
            costs, why = outcome.costs, outcome.failure
            self.enodes += outcome.enodes
            self.eclasses += outcome.eclasses
            self.ends.add(outcome.stopped_by)
            for rule, times in outcome.rules_fired.items():
                self.fired[rule] = self.fired.get(rule, 0) + times
            self.log.skipped += [f"{name}: {text}" for text in outcome.skipped]
            self.log.warnings += [f"{name}: {text}" for text in outcome.warnings]
            if not why:
                graph, why = self._certified(name, part, outcome)
        if why:
            self.log.warnings.append(f"{name} was left as it was: {why}")
        after = size if graph is None else len(graph.nodes)
        self.records.append(GraphPart(name, (size, after), costs, one.tries, why))
        return graph

    def _certified(self, name: str, part: CutPart, outcome: PartOutcome) -> tuple[Graph | None, str]:
        """The graph that may stand for a part, whoever found it, and the reason where none may."""
        found = outcome.found(part.graph)
        if found is None:
            return None, ""
        names, settings = dims_of(part.graph), self.settings
        sizes = {name: size for name, size in settings.sizes.items() if name in names}
        try:
            certificate = found.check(part.graph, sizes, settings.options.seed)
        except CertificateError as error:
            if settings.options.strict:
                raise
            self.log.failures.append(released(error))
            return None, f"what was found is wrong: {error.what}"
        except UncheckedError as error:
            return None, f"what was found could not be checked: {error.what}"
        self.certificates.append(BodyCertificate(name, summary_of(certificate)))
        return found.graph, ""

    def judged(self, graph: Graph) -> Result:
        """The result: the stitched graph where it costs less, agrees with the original, and is faster if measured."""
        given, settings, log = self.given, self.settings, self.log
        costs, opset = settings.costs, settings.options.opset
        price = with_bodies(costs.graph(given.graph), given, costs)
        first = Candidate("original", given.graph, price, given.nodes)
        other = Candidate("parts", graph, costs.graph(graph), written_size(graph, opset))
        finalists = [first, other] if self.certificates else [first]
        trials, measured = Trials(settings, log), None
        candidates: Sequence[Candidate] = finalists
        with log.phase("measure"), settings.deadline:
            if settings.options.measure:
                measured = trials.measure(candidates, given.runnable)
            if measured is None:
                candidates = trials.agreeing(candidates, given.runnable)
        times = measured if set(settings.costs.objective) == {"time"} else None
        best, because = kept(candidates, times)
        told_of = finalists_of(finalists, best, because, measured, trials.refused, decided=times is not None)
        report = self._report(finalists[0], best, because, measured, told_of)
        changed = best is other
        result = Result(
            best.graph,
            report,
            Explanation(()),
            None if changed else given.source,
            settings.options.threads,
            settings.options.opset,
            failures=tuple(log.failures),
            backend=settings.backend,
            quantised=settings.options.quantised,
        )
        return with_asked_inputs(result, given, settings.options)

    def _report(
        self,
        original: Candidate,
        best: Candidate,
        because: str,
        measured: Measured | None,
        finalists: Sequence[Finalist],
    ) -> Report:
        given, settings, log, costs = self.given, self.settings, self.log, self.settings.costs
        changed = best is not original
        certificate, name = self._certificate(changed), settings.device.name
        report = kept_report(
            given, original, best, because, measured, finalists, certificate, costs, name, settings.points
        )
        report.stopped_by = "interrupted" if settings.is_stopped else self._stopped_by()
        report.enodes, report.eclasses, report.rules_fired = self.enodes, self.eclasses, most_often(self.fired)
        report.changes = [*report.changes, *(self._changes() if changed else ())]
        report.seconds, report.warnings, report.skipped = dict(log.seconds), list(log.warnings), tuple(log.skipped)
        report.partition = self.records
        if log.failures:
            report.failure = f"parts: {told(log.failures[-1])}"
        describe_call(report, given, settings)
        name_limit(report, settings)
        return report

    def _stopped_by(self) -> str:
        """The reason for which growth ended, that of the part which was grown least."""
        return next((reason for reason in _LEAST_GROWN if reason in self.ends), "saturated")

    def _certificate(self, changed: bool) -> CertificateSummary:
        """The certificate of the result: those of the parts that were changed."""
        if not changed:
            return CertificateSummary("identical", 0.0, text="nothing changed")
        kinds = {one.certificate.kind for one in self.certificates}
        return CertificateSummary(
            kinds.pop() if len(kinds) == 1 else "mixed",
            max(one.certificate.error for one in self.certificates),
            text=f"{count(len(self.certificates), 'part')} checked apart",
            bodies=self.certificates,
        )

    def _changes(self) -> Iterator[ControlChange]:
        """The parts that were changed, as changes."""
        for one in self.records:
            before, after = one.nodes
            if one.costs[0] > one.costs[1]:
                text = f"{one.name}: {before} -> {count(after, 'node')}"
                yield ControlChange(text, after - before, (), one.costs[0] - one.costs[1])


def _straddles(part: CutPart, cut: Collection[str]) -> bool:
    """True if a value at which the graph was cut before is both made and read inside a part."""
    made = {value for node in part.graph.nodes for value in node.outputs}
    return any(value in cut and value in made for node in part.graph.nodes for value in node.inputs)
