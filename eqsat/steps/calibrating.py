"""Costs of another environment in the place of those that this machine lacks, scaled to it by a few measurements."""

from __future__ import annotations

from dataclasses import replace

from eqsat.costs.measuring.calibration import calibrate, probes
from eqsat.costs.model.borrowed import Borrowed
from eqsat.costs.model.model import CostModel
from eqsat.costs.table.table import CostTable
from eqsat.errors import CostError
from eqsat.report.report import Progress
from eqsat.runtime.backend import BACKENDS
from eqsat.steps.log import Log
from eqsat.steps.settings import Settings
from eqsat.system.deadline import TimeUp

#: Seconds that measuring may take, its share of the call, and the least that is worth beginning with.
_SECONDS, _SHARE, _LEAST_SECONDS = 8.0, 0.25, 1.0
#: The reason for no scales where nothing was left to measure.
_NONE_RAN = "since none of its operators could be measured here"


def calibrated(settings: Settings, log: Log) -> Settings:
    """The settings with borrowed costs where the table has none of this environment.

    What is measured for the scales is kept in the table, so that it happens once for a machine and a runtime. Nothing
    is measured where the run is not to measure, counts steps, or has too little time: the scales are 1 then. Where
    steps are counted, what was measured earlier is left aside too, since another machine would not have it.
    """
    table = settings.table
    # Dropped here, so that its file is closed before the run ends.
    settings = replace(settings, table=None)
    return settings if table is None else replace(settings, costs=_borrowing(settings, table, log))


def _borrowing(settings: Settings, table: CostTable, log: Log) -> CostModel:
    """The costs of a run with those that are borrowed."""
    costs = settings.costs
    anywhere = settings.options.steps is not None
    borrowed = Borrowed.of(table, costs.device, costs.environment, anywhere=anywhere)
    if borrowed is None:
        if (mismatch := table.mismatch(costs.environment)) is not None:
            log.warnings.append(f"{mismatch}; costs here are estimates")
        return costs
    reason = _reason(settings)
    if not reason:
        reason = _measure(settings, table, borrowed, log)
        borrowed = borrowed.scaled(table.measured_here(costs.environment))
    if not borrowed.scales:
        if table.entries(costs.environment):
            return costs
        differences = "; ".join(borrowed.source.differences(costs.environment))
        log.warnings.append(
            f"costs were measured in another environment: {differences}; not scaled to this one, {reason}"
        )
    return costs.borrowing(borrowed)


def _reason(settings: Settings) -> str:
    """Why nothing may be measured here; empty where it may."""
    if settings.options.steps is not None:
        return "since steps are counted"
    if not settings.options.measure:
        return "since nothing is to be measured"
    if (reason := BACKENDS[settings.backend].available()) is not None:
        return f"since {reason}"
    return ""


def _measure(settings: Settings, table: CostTable, borrowed: Borrowed, log: Log) -> str:
    """Measure what the scales lack, and return why some of it was left."""
    costs, stop = settings.costs, settings.options.should_stop
    known = table.measured_here(costs.environment)
    wanted = [key for key in probes(borrowed.unscaled, costs.device) if key.text not in known]
    end = settings.deadline.part(_SHARE, _SECONDS)
    if not wanted:
        return _NONE_RAN
    if end.seconds < _LEAST_SECONDS:
        return "since there is no time to measure"

    def progress(done: int, count: int) -> None:
        log.say(Progress("calibrate", detail=f"{done} of {count} operators"))

    with log.phase("calibrate"):
        try:
            with end:
                left = calibrate(table, costs.environment, wanted, progress, lambda: end.over or bool(stop and stop()))
        except TimeUp:
            return "since the time to measure was up"
        except CostError as error:  # a full disk or a lock is no reason to optimise nothing
            return f"since {error.what}"
    return f"since {left} of {len(wanted)} operators were left" if left else _NONE_RAN
