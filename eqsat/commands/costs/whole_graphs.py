"""Whole graphs measured, so that predictions of their times can be compared and corrected."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.commands.costs.keys import read_as
from eqsat.errors import MissingExtraError

if TYPE_CHECKING:
    from eqsat.costs.devices.device import Device
    from eqsat.costs.table.entry import Entry
    from eqsat.costs.table.table import CostTable
    from eqsat.report.parts import StepCost
    from eqsat.report.result import Result

#: Packages that the choice of a graph needs, and measuring kernels does not.
_NEEDED = ("egglog", "highspy", "scipy")
_ROUNDS, _SECONDS = 40, 5.0


def measure_whole(
    model: Path,
    device: Device,
    variant: tuple[str, str],
    table: CostTable,
    watch: Any,
    *,
    sizes: Mapping[str, int],
    threads: int,
) -> int:
    """Measures the result for a model by the table as it is, beside its prediction; 0 where it was known, else 1.

    `variant` is the element type in place of float32, and the policy; `watch` is the stopwatch of a GPU, None for the
    CPU. MissingExtraError where no graph can be chosen here.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"{missing[0]} is not installed", expected="all that `eqsat.optimize` needs")
    from eqsat.calls import optimize
    from eqsat.costs.model.whole_graphs import MeasuredGraph, WholeKey, correction, measured_graphs
    from eqsat.costs.table.environment import Environment

    dtype, precision = variant
    result = optimize(
        read_as(model, dtype),
        device=device,
        precision=precision,
        table=table,
        sizes=sizes,
        threads=threads,
        measure=False,
    )
    steps = result.report.steps
    digest = hashlib.blake2b(json.dumps([_identity(s) for s in steps]).encode(), digest_size=8).hexdigest()
    key = WholeKey(model.stem, result.report.kept, precision if dtype == "float32" else dtype, digest)
    environment = Environment.current(device, threads)
    own = table.own(environment)
    if key.text in own:
        return 0
    kernels = sum(step.bytes > 0 for step in steps)
    seconds = sum(step.seconds for step in steps)
    plain = correction(measured_graphs(table.entries(environment))).sum(seconds, kernels) if device.gpu else seconds
    inputs = _inputs(result, sizes)
    if watch is None:
        entry = _timed(result, inputs, threads)
    else:
        entry = _timed_on_gpu(result, inputs, watch, [e.plan for e in own.values()])
    predicted = MeasuredGraph.predicted(plain, kernels, result.report.estimated_share)
    table.put(environment, key, replace(entry, plan=predicted))
    return 1


def _identity(step: StepCost) -> list[Any]:
    """A step without its cost."""
    return [step.op, step.value, step.operands, step.result, step.arithmetic]


def _inputs(result: Result, sizes: Mapping[str, int]) -> dict[str, Any]:
    from eqsat.runtime.examples import example_inputs

    return example_inputs(result.graph, sizes, 0)


def _timed(result: Result, inputs: Mapping[str, Any], threads: int) -> Entry:
    from eqsat.costs.table.entry import Entry
    from eqsat.runtime.measure import clock_for, interleaved

    program = result.compile("onnxruntime")
    calls = {"whole": program.bind(inputs)}
    timings = interleaved(calls, _ROUNDS, clock=clock_for(threads), time_limit=_SECONDS)
    return Entry.of(timings.samples["whole"])


def _timed_on_gpu(result: Result, inputs: Mapping[str, Any], watch: Any, plans: list[str]) -> Entry:
    from eqsat.costs.measuring.gpu import measured_whole

    return measured_whole(watch, result.graph if result.plan is None else result.plan, inputs, plans)
