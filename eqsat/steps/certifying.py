"""The finalist that is kept: the best one that its certificate does not refuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eqsat.language.onnx.read.model import Given
from eqsat.report.decision import kept
from eqsat.report.finalists import Candidate, Measured
from eqsat.steps.growing import Grown
from eqsat.steps.log import Log
from eqsat.steps.trials import Trials


@dataclass(frozen=True)
class Judged:
    """Finalists that could be compared, and their times where they decide."""

    candidates: Sequence[Candidate]
    finalists: Sequence[Candidate]
    measured: Measured | None
    times: Measured | None


@dataclass(frozen=True)
class Ruling:
    """The finalists that are left, the one that is kept, and why; `refused` has the reasons of those left out."""

    candidates: Sequence[Candidate]
    best: Candidate
    because: str
    refused: Mapping[str, str]


def first_certified(
    given: Given, grown: Grown, candidates: Sequence[Candidate], times: Measured | None, trials: Trials, again: bool
) -> Ruling:
    """The best finalist that is certified; those before it are left out with a warning.

    CertificateError for one that is wrong, if the run may begin `again`. Where only the original is left of a choice in
    lower precision, it is not looked at.
    """
    log: Log = trials.log

    def certified(candidate: Candidate) -> str | None:
        return trials.certify(given.graph, grown.encoding, candidate, grown.saturation, again)

    while True:
        best, because = kept(candidates, times)
        # Those that were timed were compared before.
        if times is None and trials.disagreement(best, candidates, given.runnable) is not None:
            if best.name in trials.differing:
                certified(best)  # which says what is wrong
        else:
            refused = certified(best)
            if refused is None:
                return Ruling(candidates, best, because, trials.refused)
            if best is candidates[0]:
                log.warnings.append(f"the original in the states asked for is not checked: {refused}")
                return Ruling(candidates, best, because, trials.refused)
            log.warnings.append(f"{best.name} was left out: {refused}")
            trials.refused[best.name] = refused
        candidates = [c for c in candidates if c is not best]
        if len(candidates) == 1 and not trials.settings.choices.policy.is_exact:
            # There is a choice in the model's precision to be made.
            return Ruling(candidates, candidates[0], "", trials.refused)
