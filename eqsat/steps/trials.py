"""Finalists on trial: outputs compared, times measured, and the best certified."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eqsat.certify import assignments
from eqsat.certify import certify as certify_graphs
from eqsat.certify.outputs import DRIFT
from eqsat.certify.stated import stated_difference
from eqsat.egraph.encode import Encoding
from eqsat.egraph.saturation import Saturation
from eqsat.errors import BackendError, CertificateError, EqsatError, UncheckedError
from eqsat.extract.tensors.assembly import Assembled
from eqsat.extract.tensors.judging import is_lowered
from eqsat.language.onnx.read.model import Given
from eqsat.language.terms.graph import Graph
from eqsat.report.decision import kept
from eqsat.report.finalists import Candidate, Measured, compare_finalists, measure_finalists
from eqsat.report.parts import SessionLevel
from eqsat.report.report import Progress
from eqsat.report.timing.comparison import OutputComparison
from eqsat.report.timing.compiling import tuned_program
from eqsat.report.timing.levels import LEAST_SECONDS, LevelTrial
from eqsat.runtime.cuda.backend import is_static
from eqsat.runtime.examples import DRAWS
from eqsat.runtime.measure import LEAST_ROUNDS, WARM_UP
from eqsat.steps.failures import released, rules_behind
from eqsat.steps.log import Log
from eqsat.steps.settings import Settings
from eqsat.system.deadline import Deadline, TimeUp

#: The factor by which a predicted time may be too short.
_DOUBT = 2.0
#: Bytes of weights that sessions of ONNX Runtime pack in a second, 0.45 s for 436 MB; and arithmetic operations that
#: outputs take on a CPU where the device is another one.
_BYTES_A_SECOND, _FLOPS_A_SECOND = 1e9, 1e10
#: Seconds that a node takes as a session is made, and the nodes from which on each takes twice as many: two sessions of
#: 500 nodes took 0.28 s on a busy machine, one of 20 000 nodes 6.9 s, one of 100 000 nodes 70 s.
_NODE_SECONDS, _MANY = 4e-4, 100_000
#: The factor by which that may take longer, and the share of what is left that is kept at most.
_SLOWER, _MOST = 1.5, 0.7


@dataclass
class Trials:
    """The trials of the finalists of a run, and the names of those whose outputs are not the original's.

    `refused` has the reasons of all that may not stand for the original, by name. A comparison made before the time for
    measuring was up is not made again.
    """

    settings: Settings
    log: Log
    differing: set[str] = field(default_factory=set)
    refused: dict[str, str] = field(default_factory=dict)
    _comparison: OutputComparison | None = None
    _is_incomparable: bool = False
    _told: set[str] = field(default_factory=set)

    def certify(
        self, original: Graph, encoding: Encoding, candidate: Candidate, grown: Saturation, again: bool
    ) -> str | None:
        """Why a candidate cannot be the result, or None; CertificateError where it is wrong and that is raised."""
        assembled, settings = candidate.assembled, self.settings
        if assembled is None:
            return None
        decoded = assembled.decoded
        try:
            sizes = assignments(original, settings.sizes)
            candidate.certificate = certify_graphs(
                original, decoded.graph, assembled.graph, decoded.shared, sizes=sizes, seed=settings.options.seed
            )
            return self._certify_states(candidate, assembled, sizes[0])
        except TimeUp as late:
            self.log.skipped.append(f"{candidate.name} was not certified: {late}")
            return f"what was found could not be checked: {late}"
        except UncheckedError as error:
            return f"what was found could not be checked: {error.what}"
        except CertificateError as error:
            behind = rules_behind(encoding, candidate, error.pairs)
            fired = ", ".join(f"{name} ({grown.fired[name]})" for name in sorted(behind))
            wrong = CertificateError(
                error.what,
                where=error.where,
                expected=error.expected,
                remedy=f"{error.remedy}; rules behind it: {fired or 'none'}",
                pairs=error.pairs,
                rules=behind if error.pairs else (),
            )
            if again or self.settings.options.strict:
                raise wrong from error
            self.log.failures.append(released(wrong))
            return f"it is wrong: {error.what}; rules behind it: {fired or 'none'}"

    def _certify_states(self, candidate: Candidate, assembled: Assembled, sizes: Mapping[str, int]) -> str | None:
        """Why the lowered graph is too far from the graph it stands for, or None."""
        if candidate.graph is assembled.graph:
            return None
        plan = assembled.plan
        if candidate.rounding is not None and candidate.rounding.has_scales:
            candidate.certificate = replace(candidate.certificate, stated=candidate.rounding.worst)
            return None
        error = stated_difference(assembled.graph, candidate.graph, plan.boundary, sizes, self.settings.options.seed)
        candidate.certificate = replace(candidate.certificate, stated=error)
        limit = self.settings.drift if is_lowered(assembled) else DRIFT
        if error <= limit:
            return None
        return f"its layouts and precisions move an output by {error:.1e}, more than {limit:.1e}"

    def agreeing(self, candidates: Sequence[Candidate], source: Any) -> list[Candidate]:
        """The finalists without those that would be kept by their cost, and whose outputs are not the original's.

        Those that cost more than the one that is kept are not compared: that takes a session and several runs of each.
        """
        left = list(candidates)
        while (best := kept(left, None)[0]) is not left[0] and self.disagreement(best, candidates, source) is not None:
            left.remove(best)
        return left

    def disagreement(self, candidate: Candidate, candidates: Sequence[Candidate], source: Any) -> str | None:
        """The reason for which one of the candidates may not stand for the original, None where both cannot be run."""
        if not self.settings.is_plain or candidate is candidates[0] or self._is_incomparable:
            return None  # of outputs held in states of their own, the certificate compares the rounding
        try:
            comparison = self._comparison or self._begun(candidates, source)
            reason = comparison.reason(candidate.name, candidate.graph)
        except TimeUp as late:
            # Outputs that nothing compared may be wrong: only the original is kept then.
            reason = f"outputs were not compared: {late}"
            if reason not in self.log.skipped:
                self.log.skipped.append(reason)
            return reason
        except BackendError as error:
            self._is_incomparable = True
            self.log.warnings.append(f"rounding was not compared: {error.what}")
            return None
        if candidate.name not in self._told:
            self._tell_of(candidate.name, reason, comparison.losses.get(candidate.name, ()))
            self.differing |= comparison.differing & {candidate.name}
        return reason

    def _begun(self, candidates: Sequence[Candidate], source: Any) -> OutputComparison:
        """The comparison of finalists with the original, of which only that was run yet."""
        settings = self.settings
        self._comparison = compare_finalists(
            _promising_first(candidates),
            source,
            points=settings.points,
            seed=settings.options.seed,
            threads=settings.options.threads,
            drift=self._drift(candidates),
            backend=settings.portable_backend,
            opset=settings.options.opset,
            runs_elsewhere=bool(settings.device.gpu),
        )
        return self._comparison

    def levels(self, best: Candidate, original: Candidate, source: Any, times: Measured | None) -> list[SessionLevel]:
        """The levels of ONNX Runtime's graph optimisation that the result was timed at; none where time says nothing.

        `times` are those of the finalists, where there were several: runs that are short need no level.
        """
        settings, options = self.settings, self.settings.options
        timed = settings.costs.cost is None and set(settings.costs.objective) == {"time"}
        here = settings.device.is_onnxruntime and settings.device.is_here and settings.is_plain
        if not (timed and here) or options.buckets is not None or settings.is_stopped:
            return []
        seconds = _DOUBT * best.cost.total.seconds if times is None else times.median(best.name)
        if seconds < LEAST_SECONDS:
            return []
        drift = self._drift([best])
        limit = DRIFT if best.assembled is None else drift.get(best.name, DRIFT)
        # Errors were measured of kernels that level "basic" does not fuse.
        names = ("extended",) if best.rounding is not None else ("extended", "basic")
        trial = LevelTrial(
            original.graph,
            best.graph,
            best is original,
            source,
            settings.points,
            options.seed,
            options.threads,
            limit,
            names,
            options.should_stop,
            opset=options.opset,
        )
        try:
            return trial.measured()
        except (TimeUp, EqsatError):
            return []  # such as a model that does not run here, of which the report says so already

    def _drift(self, candidates: Sequence[Candidate]) -> dict[str, float]:
        """The largest allowed distance of the outputs of finalists in lower precisions from the original's."""
        loose = {c.name for c in candidates if c.assembled is not None and is_lowered(c.assembled)}
        # Integers are scaled for data, on which they were compared: random inputs are none such.
        compared = {c.name for c in candidates if c.rounding is not None and c.rounding.has_scales}
        return {name: math.inf if name in compared else self.settings.drift for name in loose}

    def _tell(self, outcome: Measured) -> None:
        self.differing |= outcome.differing
        for name in dict.fromkeys((*outcome.refused, *outcome.losses)):
            self._tell_of(name, outcome.refused.get(name), outcome.losses.get(name, ()))

    def _tell_of(self, name: str, refused: str | None, losses: Sequence[str]) -> None:
        """Tell of a finalist that may not stand for the original, or only with losses."""
        self._told.add(name)
        if refused is not None:
            self.refused[name] = refused
            self.log.warnings.append(f"{name} was left out: {refused}")
        self.log.warnings += [f"{name}: {loss}" for loss in losses]

    def measure(self, candidates: Sequence[Candidate], source: Any) -> Measured | None:
        """The finalists' times where the device is here; None where they could not be measured, or need not be."""
        settings = self.settings
        if not settings.device.is_here:
            self.log.warnings.append(f"not measured: {settings.device.name} is not this machine's")
            return None
        if len(candidates) == 1:
            self._tune(candidates[0].graph)
            return None
        if not settings.is_plain:
            self.log.warnings.append("not measured: inputs or outputs are held in states of their own")
            return None
        self._comparison = None
        try:
            measured = measure_finalists(
                _promising_first(candidates),
                source,
                points=settings.points,
                worst=settings.options.over_sizes == "worst",
                seed=settings.options.seed,
                threads=settings.options.threads,
                plans={c.name: c.assembled.plan for c in candidates if c.assembled is not None},
                backend=settings.backend,
                opset=settings.options.opset,
                tuned=settings.costs.library_plans,
                drift=self._drift(candidates),
                should_stop=settings.options.should_stop,
                follow=lambda text: self.log.say(Progress("measure", detail=text)),
                when_compared=lambda compared: setattr(self, "_comparison", compared),
            )
        except TimeUp as late:
            self.log.skipped.append(f"not measured: {late}")
            return None
        except BackendError as error:
            self.log.warnings.append(f"not measured: {error.what}")
            return None
        self._tell(measured)
        return measured

    def _tune(self, graph: Graph) -> None:
        """Measure what makes a graph fastest that has no rival, where its backend has more than one way to run it.

        Nothing is known to be fastest for sizes that only a run knows.
        """
        settings = self.settings
        if settings.backend != "c" or not settings.is_plain or not is_static(graph):
            return
        self.log.say(Progress("measure", detail="kernels, and regions of ONNX Runtime"))
        try:
            program: Any = tuned_program(graph, settings.options.threads)
            program.close()
        except TimeUp as late:
            self.log.skipped.append(f"not measured: {late}")
        except EqsatError as error:
            self.log.warnings.append(f"not measured: {error.what}")


def _promising_first(candidates: Sequence[Candidate]) -> dict[str, Graph]:
    """The graphs of finalists by name, the original first and then the cheapest: time may not last for all."""
    original, *others = candidates
    return {c.name: c.graph for c in (original, *sorted(others, key=lambda c: c.cost.price))}


def before_trials(given: Given, settings: Settings) -> Deadline:
    """The end of choosing: so early that the finalist that is chosen can still be compared, and certified.

    Where there is no time for that, what a search has found is lost.
    """
    deadline = settings.deadline
    return deadline.before(min(seconds_of_trials(given, settings), _MOST * deadline.seconds))


def seconds_of_trials(given: Given, settings: Settings) -> float:
    """The seconds that it may take to compare a finalist with the original, to time it if asked for, and to certify it.

    A session of each, their runs on all inputs drawn, for the certificate as long as for a session, and to make a
    choice a graph as long as for two. Where others keep the processors busy, all of it takes longer as the call did.
    """
    weights = sum(constant.nbytes for constant in given.graph.constants.values())
    cost = settings.costs.graph(given.graph).total
    count = len(given.graph.nodes)
    nodes = _NODE_SECONDS * count * (1 + count / _MANY)
    run = cost.seconds if settings.device.is_onnxruntime else cost.flops / _FLOPS_A_SECOND
    runs = 2 * DRAWS + (2 * (LEAST_ROUNDS + WARM_UP) if settings.options.measure else 0)
    ready = 3 * weights / _BYTES_A_SECOND + 5 * nodes
    seconds = ready + runs * max(len(settings.points), 1) * run
    return _SLOWER * seconds * (1.0 if settings.deadline.counts_steps else settings.deadline.slowness)
