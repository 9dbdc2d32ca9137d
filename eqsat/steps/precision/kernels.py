"""Kernels on integers, and those in float32 that they stand for, measured where a run needs their times."""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.costs.kernels.fusion import Key
from eqsat.costs.measuring.measure import fill
from eqsat.costs.model.model import CostModel
from eqsat.errors import CostError
from eqsat.report.report import Progress
from eqsat.runtime.backend import BACKENDS
from eqsat.steps.log import Log
from eqsat.steps.settings import Settings

#: Seconds that kernels may be measured for: what is left then is known by the next run.
SECONDS = 60.0


def costs_with(keys: Sequence[Key], settings: Settings, log: Log) -> CostModel:
    """The costs of a run with the times of kernels that its table lacks, measured now and kept in the table.

    Nothing is measured where the run is not to measure, counts steps, or the device is not here: kernels without a time
    are not offered then.
    """
    options, costs = settings.options, settings.costs
    if not options.measure or options.steps is not None or not settings.device.is_here:
        return costs
    if BACKENDS[settings.backend].available() is not None:
        return costs

    def progress(done: int, count: int, key: Key) -> None:
        log.say(Progress("calibrate", detail=f"kernel {done + 1} of {count}: {key.op}"))

    table = options.opened_table()
    try:
        outcome = fill(keys, table, progress, SECONDS, threads=options.threads, device=settings.device)
    except CostError as error:  # a full disk or a lock is no reason to optimise nothing
        log.warnings.append(f"kernels on integers were not measured: {error.what}")
        return costs
    if outcome.left:
        log.warnings.append(f"{outcome.left} kernels were not measured in {SECONDS:g} s; the next run goes on there")
    return costs.measured_anew(table.entries(costs.environment))
