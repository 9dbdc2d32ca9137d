"""The result of a run from the finalist that is kept: its changes explained, and the report of it all."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.extract import Solution
from eqsat.language.onnx.read.model import Given
from eqsat.report.changes import explain, regions
from eqsat.report.decision import finalists_of
from eqsat.report.explanation import Explanation
from eqsat.report.parts import SessionLevel
from eqsat.report.result import Result
from eqsat.report.savings import measured_changes
from eqsat.report.summary import Findings, report_of
from eqsat.steps import fused
from eqsat.steps.blocks.explaining import explained_whole
from eqsat.steps.certifying import Judged, Ruling
from eqsat.steps.choosing import Chosen
from eqsat.steps.failures import name_limit, told, with_asked_inputs
from eqsat.steps.growing import Grown
from eqsat.steps.log import Log
from eqsat.steps.provenance import describe_call
from eqsat.steps.settings import Settings
from eqsat.system.deadline import TimeUp


def explained(grown: Grown, ruling: Ruling, measure: bool, settings: Settings, log: Log) -> Explanation:
    """The changes of the finalist that is kept, and the saving that each is predicted, and measured, to bring."""
    pair = ruling.candidates[0], ruling.best
    original, best = (one if one.pattern is None else one.pattern.candidate for one in pair)
    try:
        changed = regions(grown.encoding, best)
        explanation = explain(grown.encoding, original, best, changed)
    except TimeUp as late:
        log.skipped.append(f"changes are not explained: {late}")
        return Explanation(())
    if not measure or best.assembled is None:
        return explained_whole(explanation, *pair)
    with log.phase("measure"):
        explanation = measured_changes(
            explanation,
            changed,
            grown.encoding.graph,
            best,
            points=settings.points,
            seed=settings.options.seed,
            threads=settings.options.threads,
            backend=settings.backend,
            should_stop=settings.options.should_stop,
        )
    return explained_whole(explanation, *pair)


def result_of(
    given: Given,
    grown: Grown,
    chosen: Chosen,
    ruling: Ruling,
    judged: Judged,
    explanation: Explanation,
    levels: Sequence[SessionLevel],
    settings: Settings,
    log: Log,
) -> Result:
    """The result, with its report."""
    best, options = ruling.best, settings.options
    log.warnings += fused.warnings(best.graph, options.opset)
    solution: Solution = chosen.solution
    findings = Findings(
        given,
        ruling.candidates,
        best,
        ruling.because,
        grown.encoding,
        grown.saturation,
        solution,
        chosen.baselines,
        judged.measured,
        explanation,
        finalists_of(
            judged.finalists, best, ruling.because, judged.measured, ruling.refused, decided=judged.times is not None
        ),
    )
    report = report_of(
        findings, settings.costs, settings.device.name, settings.is_stopped, log.seconds, log.warnings, settings.points
    )
    describe_call(report, given, settings)
    report.limits, report.refuted, report.skipped = dict(settings.bounds), log.refuted, tuple(log.skipped)
    report.levels = tuple(levels)
    name_limit(report, settings)
    if log.failures:
        report.failure = f"certify: {told(log.failures[-1])}"
    elif failed := [body for body in given.inside if body.failure]:
        report.failure = f"{failed[-1].place}: {failed[-1].failure}"
    result = Result(
        best.graph,
        report,
        explanation,
        given.source if best.assembled is None else None,
        options.threads,
        options.opset,
        None if best.assembled is None else best.assembled.plan,
        settings.costs.library_plans if settings.device.gpu else (),
        tuple(log.failures),
        settings.backend,
        options.quantised,
        report.level,
    )
    return with_asked_inputs(result, given, options)
