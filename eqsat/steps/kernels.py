"""Kernels measured where a run needs their times and its table lacks them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.costs.kernels.fusion import FusedKey, Key
from eqsat.costs.kernels.precision import is_product
from eqsat.costs.measuring.measure import estimated, fill
from eqsat.costs.model.model import CostModel
from eqsat.egraph.snapshot import Snapshot
from eqsat.errors import CostError, EqsatError
from eqsat.extract.tensors.candidates import candidates
from eqsat.extract.tensors.pricing import Pricing
from eqsat.extract.tensors.stated import stated_keys
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.report.report import Progress
from eqsat.runtime.backend import BACKENDS
from eqsat.steps.log import Log
from eqsat.steps.settings import Settings

#: Seconds that kernels may be measured for: what is left then is known by the next run.
SECONDS = 120.0
_CONVERSIONS = ("cast", "quantize_linear", "dequantize_linear", "transpose")
#: Kernels of several operators that are worth a time of their own.
_MOST_FUSED = 32


def with_kernels(settings: Settings, snapshot: Snapshot, log: Log) -> Settings:
    """The settings with the times of an e-graph's kernels, for a device whose costs no table has.

    The costs of ONNX Runtime are borrowed from the nearest machine and scaled, but for kernels on integers, of which
    times of another processor say nothing; of another runtime none come with eqsat, and the kernels that are estimated
    to take longest are measured first. Like calibration it is no part of the time limit.
    """
    if settings.device.gpu or not may_measure(settings):
        return settings
    keys: list[Key] = stated_keys(snapshot, Pricing(snapshot, settings.costs))
    if not settings.device.is_onnxruntime:
        keys += candidates(snapshot, settings.device, settings.choices, settings.costs.sizes, _MOST_FUSED)
    if settings.device.backend == "c":
        # Programs in C group operators themselves; those element by element cost what their rates say.
        keys = [key for key in keys if is_product(op := FusedKey.of(key).op) or function_of(op) is not None]
    if not keys:
        return settings
    with log.phase("calibrate"), settings.deadline.paused():
        return replace(settings, costs=costs_with([*dict.fromkeys(keys)], settings, log))


def may_measure(settings: Settings) -> bool:
    """True where a run may measure kernels: asked to measure, not by steps, on a device that is here."""
    options = settings.options
    if not options.measure or options.steps is not None or not settings.device.is_here:
        return False
    return BACKENDS[settings.backend].available() is None


def costs_with(keys: Sequence[Key], settings: Settings, log: Log) -> CostModel:
    """The costs of a run with the times of kernels that its table lacks, measured now and kept in the table.

    Conversions come first, without which no kernel can be chosen, then kernels that are estimated to take longest.
    Nothing is measured where the run may not: kernels without a time are estimated, or not offered, then.
    """
    options, costs = settings.options, settings.costs
    if not may_measure(settings):
        return costs

    def progress(done: int, count: int, key: Key) -> None:
        log.say(Progress("calibrate", detail=f"kernel {done + 1} of {count}: {key.op}"))

    ordered = sorted(keys, key=lambda key: (key.op not in _CONVERSIONS, -_estimate(key, settings)))
    table = options.opened_table()
    try:
        outcome = fill(ordered, table, progress, SECONDS, threads=options.threads, device=settings.device)
    except CostError as error:  # a full disk or a lock is no reason to optimise nothing
        log.warnings.append(f"kernels were not measured: {error.what}")
        return costs
    if outcome.left:
        log.warnings.append(f"{outcome.left} kernels were not measured in {SECONDS:g} s; the next run goes on there")
    return costs.measured_anew(table.entries(costs.environment))


def _estimate(key: Key, settings: Settings) -> float:
    """An estimate of the time of a kernel, in seconds; 0 for one that cannot be measured."""
    try:
        return estimated(key, settings.device)
    except EqsatError:
        return 0.0
