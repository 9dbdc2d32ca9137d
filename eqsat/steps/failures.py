"""Runs that fail: whose fault it is, which rules are behind a wrong region, and the result that keeps the original."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import TypeVar

from eqsat.egraph.encode import Encoding
from eqsat.egraph.explain import Explainer
from eqsat.errors import (
    CALLERS_NOTE,
    CertificateError,
    CostError,
    DeclarationError,
    EqsatError,
    ExtractionError,
    MissingExtraError,
    RuleError,
    UnsoundRuleError,
    UsageError,
    first_line,
)
from eqsat.language.onnx.read.model import Given
from eqsat.options.options import Options
from eqsat.report.changes import regions
from eqsat.report.explanation import Explanation
from eqsat.report.finalists import Candidate
from eqsat.report.parts import CertificateSummary
from eqsat.report.report import Phase, Report
from eqsat.report.result import Result
from eqsat.report.summary import operators_of
from eqsat.rewrites.rules.ruleset import RuleSet
from eqsat.steps.log import Log
from eqsat.steps.provenance import describe_call
from eqsat.steps.settings import Settings
from eqsat.system.collector import seldom_collecting
from eqsat.system.deadline import TimeUp

#: Errors about arguments of the caller.
_FOR_THE_CALLER = (UsageError, CostError, DeclarationError, MissingExtraError, RuleError)


def is_for_the_caller(error: Exception, limited: bool) -> bool:
    """True if an error is the answer to what was asked, and no fault met while answering.

    `limited` says that the caller set limits, which nothing may meet.
    """
    if CALLERS_NOTE in getattr(error, "__notes__", ()):
        return True
    if isinstance(error, CertificateError | UnsoundRuleError):
        return False
    return isinstance(error, _FOR_THE_CALLER) or (limited and isinstance(error, ExtractionError))


def rules_behind(encoding: Encoding, candidate: Candidate, pairs: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The rules by which values of a finalist came to equal the original's; all it uses where that is unknown."""
    assembled = candidate.assembled
    if assembled is None:
        return ()
    nodes, choice = assembled.snapshot.nodes, assembled.choice
    numbers = {name: nodes[choice[k]].number for k, name in assembled.decoded.names.items() if k in choice}
    known = [(encoding.values[b], numbers[a]) for a, b in pairs if a in numbers and b in encoding.values]
    rules = Explainer(encoding.egraph).derive(pair for pair in known if pair[0] != pair[1]).rules
    if rules:
        return rules
    grown = candidate if candidate.pattern is None else candidate.pattern.candidate
    names = (rule for region in regions(encoding, grown) for rule in region.derivation.rules)
    return tuple(dict.fromkeys(names))


def released(error: Exception) -> Exception:
    """An error that holds nothing of the work it ended but where that was.

    Frames hold what was local to them, an e-graph among it, and an e-graph that waits for the collector may be dropped
    in another thread than its own, which egglog forbids.
    """
    seen: list[BaseException] = []
    following: list[BaseException | None] = [error]
    while following:
        one = following.pop()
        if one is not None and one not in seen:
            seen.append(one)
            traceback.clear_frames(one.__traceback__)
            following += [one.__cause__, one.__context__]
    return error


def told(error: Exception) -> str:
    """An error in one line."""
    if isinstance(error, EqsatError):
        return f"{error.where}: {error.what}" if error.where else error.what
    return f"unexpected {type(error).__name__}: {first_line(error)}"


#: The work that a phase leaves undone where there was no time for it.
_UNDONE: dict[Phase, str] = {
    "read": "nothing was looked for",
    "calibrate": "nothing was looked for",
    "bodies": "bodies of If, Loop and Scan were left as they were",
    "parts": "parts were left as they were",
    "saturate": "nothing was looked for",
    "extract": "nothing was chosen from what was found",
    "measure": "what was found was not compared",
    "certify": "what was found was not certified",
    "write": "nothing was written",
}

Answer = TypeVar("Answer")


def guarded(
    attempt: Callable[[RuleSet, bool], Answer],
    rules: RuleSet,
    original: Callable[[], Answer],
    settings: Settings,
    log: Log,
) -> Answer:
    """The answer of an attempt with rules, or the original where it fails.

    Where rules made a region wrong, the attempt begins anew without them, once: the first is told that it may. With
    `strict` every failure is raised.
    """
    warned = list(log.warnings)
    try:
        try:
            return attempt(rules, True)
        except (CertificateError, UnsoundRuleError) as error:
            if settings.options.strict or not error.rules:
                raise
            log.refuted, log.warnings[:] = error.rules, warned
            log.warnings.append(f"{error.what}; begun anew without the rules behind it: {', '.join(error.rules)}")
        return attempt(rules.without(log.refuted), False)
    except TimeUp as late:
        released(late)
        log.skipped.append(f"{_UNDONE[log.current]}: {late}")
        return original()
    except Exception as error:
        if settings.options.strict or is_for_the_caller(error, bool(settings.bounds)):
            raise
        log.failures.append(released(error))
        return original()


def kept_original(given: Given, settings: Settings, log: Log) -> Result:
    """The original as the result of a run that failed, or that there was no time for; nothing in it was computed."""
    with settings.deadline.grace(), seldom_collecting():
        return _kept_original(given, settings, log)


def _kept_original(given: Given, settings: Settings, log: Log) -> Result:
    graph, costs, failures = given.original, settings.costs, log.failures
    warnings, skipped, interrupted = list(log.warnings), list(log.skipped), settings.is_stopped
    try:
        price = costs.graph(graph).price
    except TimeUp as late:
        price = 0.0
        skipped.append(f"the original was not costed: {late}")
    except Exception as fault:  # noqa: BLE001 - costs may be what failed; the report says so
        price = 0.0
        warnings.append(f"the original was not costed: {told(fault)}")
    operators = operators_of(graph)
    report = Report(
        name=graph.name,
        device=costs.device.name,
        nodes_before=given.nodes,
        nodes_after=given.nodes,
        cost_before=price,
        cost_after=price,
        lower_bound=0.0,
        gap=0.0,
        stopped_by="failed" if failures else "interrupted" if interrupted else "time_limit",
        extraction="none",
        objective={} if costs.cost is not None else dict(costs.objective),
        certificate=CertificateSummary("identical", 0.0, text="nothing changed"),
        seconds=dict(log.seconds),
        kept_because=_because(bool(failures), interrupted, settings),
        opaque=[],
        operators_before=operators,
        operators_after=dict(operators),
        warnings=warnings,
        failure=f"{log.current}: {told(failures[-1])}" if failures else "",
        skipped=tuple(skipped),
    )
    name_limit(report, settings)
    describe_call(report, given, settings)
    options = settings.options
    result = Result(
        graph,
        report,
        Explanation(()),
        given.source,
        options.threads,
        options.opset,
        failures=tuple(failures),
        backend=settings.backend,
        quantised=options.quantised,
    )
    return with_asked_inputs(result, given, options)


def with_asked_inputs(result: Result, given: Given, options: Options) -> Result:
    """A result without the inputs that it does not read, where that was asked for; a body has those of its node."""
    return result.without_dead_inputs() if options.prune_inputs and not given.heard else result


def _because(failed: bool, interrupted: bool, settings: Settings) -> str:
    """The reason for which a run chose nothing."""
    if failed:
        return "the run failed"
    if interrupted:
        return "there was an interruption"
    return "the steps were used up" if settings.deadline.counts_steps else "there was no time for more"


def name_limit(report: Report, settings: Settings) -> None:
    """Name the limit of steps in place of the time limit, where steps are counted."""
    if settings.deadline.counts_steps:
        late = "time_limit", "step_limit"
        report.stopped_by = report.stopped_by.replace(*late)
        report.extraction = report.extraction.replace(*late)
