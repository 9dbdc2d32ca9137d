"""Sizes at which a model is costed and measured: those asked for, as far as the model accepts them."""

from __future__ import annotations

from dataclasses import replace

from eqsat.language.onnx.read.model import Given
from eqsat.language.sizes.solve import sizing_of
from eqsat.options.sizes import Sizes
from eqsat.steps.log import Log
from eqsat.steps.settings import Settings
from eqsat.steps.sizes import check_sizes, points_for
from eqsat.system.deadline import TimeUp

#: The share of a call that finding sizes the model runs at may take.
_SHARE = 0.2


def placed(given: Given, sizes: Sizes, settings: Settings, log: Log) -> Settings:
    """The settings at sizes that the model accepts; UsageError for sizes of dims that it does not have."""
    check_sizes(given.graph, sizes)
    run = settings.device.is_here and not settings.device.gpu
    try:
        with settings.deadline.part(_SHARE):
            points, warnings = points_for(given, sizes, settings.options.threads, run=run)
    except TimeUp as late:
        points, warnings = points_for(given, sizes, run=False)
        if run and sizing_of(given.graph).unread is not None:  # else its operators have told all there is to know
            log.skipped.append(f"the model was not run to find sizes that it accepts: {late}")
    log.warnings += warnings
    settings.costs.settle(sum(c.nbytes for c in given.graph.constants.values()), points)
    return replace(settings, points=points)
