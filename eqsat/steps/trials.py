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
from eqsat.language.terms.graph import Graph
from eqsat.report.finalists import Candidate, Compared, Measured, compare_finalists, measure_finalists
from eqsat.report.parts import SessionLevel
from eqsat.report.report import Progress
from eqsat.report.timing.levels import LEAST_SECONDS, LevelTrial
from eqsat.steps.failures import released, rules_behind
from eqsat.steps.log import Log
from eqsat.steps.settings import Settings
from eqsat.system.deadline import TimeUp

#: The factor by which a predicted time may be too short.
_DOUBT = 2.0


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
    _compared: Compared | None = None

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

    def agreeing(self, candidates: list[Candidate], source: Any) -> list[Candidate]:
        """The finalists whose outputs agree with the original's where both can be run, the original first."""
        settings = self.settings
        if len(candidates) == 1 or not settings.is_plain:
            return candidates  # of outputs held in states of their own, the certificate compares the rounding
        known, self._compared = self._compared, None
        try:
            compared = known or compare_finalists(
                _promising_first(candidates),
                source,
                points=settings.points,
                seed=settings.options.seed,
                threads=settings.options.threads,
                drift=self._drift(candidates),
                backend=settings.portable_backend,
                runs_elsewhere=bool(settings.device.gpu),
            )
        except TimeUp as late:
            # Outputs that nothing compared may be wrong: only the original is kept then.
            self.log.skipped.append(f"outputs were not compared: {late}")
            return candidates[:1]
        except BackendError as error:
            self.log.warnings.append(f"rounding was not compared: {error.what}")
            return candidates
        self._tell(compared)
        return [c for c in candidates if c.name not in compared.refused]

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

    def _tell(self, outcome: Measured | Compared) -> None:
        self.differing |= outcome.differing
        self.refused |= outcome.refused
        self.log.warnings += [f"{name} was left out: {why}" for name, why in outcome.refused.items()]
        self.log.warnings += [f"{name}: {loss}" for name, losses in outcome.losses.items() for loss in losses]

    def measure(self, candidates: Sequence[Candidate], source: Any) -> Measured | None:
        """The finalists' times where the device is here; None where they could not be measured, or need not be."""
        settings = self.settings
        if not settings.device.is_here:
            self.log.warnings.append(f"not measured: {settings.device.name} is not this machine's")
            return None
        if len(candidates) == 1:
            return None
        if not settings.is_plain:
            self.log.warnings.append("not measured: inputs or outputs are held in states of their own")
            return None
        self._compared = None
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
                tuned=settings.costs.library_plans,
                drift=self._drift(candidates),
                should_stop=settings.options.should_stop,
                follow=lambda text: self.log.say(Progress("measure", detail=text)),
                when_compared=lambda compared: setattr(self, "_compared", compared),
            )
        except TimeUp as late:
            self.log.skipped.append(f"not measured: {late}")
            return None
        except BackendError as error:
            self.log.warnings.append(f"not measured: {error.what}")
            return None
        self._tell(measured)
        return measured


def _promising_first(candidates: Sequence[Candidate]) -> dict[str, Graph]:
    """The graphs of finalists by name, the original first and then the cheapest: time may not last for all."""
    original, *others = candidates
    return {c.name: c.graph for c in (original, *sorted(others, key=lambda c: c.cost.price))}
