"""Kernels on numbers of a byte as the device of a run has them: which, at what cost, and by which roundings."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat.costs.kernels.precision import INTEGERS
from eqsat.costs.model.model import CostModel
from eqsat.extract.problem.solution import Solution
from eqsat.extract.tensors.assembly import Assembled
from eqsat.extract.tensors.bytes import ByteOptions, byte_kernels
from eqsat.extract.tensors.integers import IntegerKernel, Roundings, integer_kernels, packed_kernels
from eqsat.extract.tensors.quantised import IntegerOptions
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.onnx.write.availability import FLOAT8_CASTS
from eqsat.language.terms import FLOAT8, Graph
from eqsat.steps.log import Log
from eqsat.steps.precision.roundings import Calibration, MeasuredRoundings
from eqsat.steps.precision.schemes import GPUS
from eqsat.steps.settings import Settings

Batch = Mapping[str, Any]


def offered_kernels(
    extraction: TensorProblem, solution: Solution, settings: Settings, log: Log
) -> Iterable[IntegerKernel]:
    """The kernels on numbers of a byte, or packed weights; on a GPU those of products alone, by scales of data."""
    policy, device, static = settings.choices.policy, settings.device, settings.data is not None
    if device.gpu:
        asked = settings.options.opset
        if asked is not None and asked < FLOAT8_CASTS and FLOAT8 in policy.precisions:
            log.warnings.append(f"float8 is left out: opset {asked} has none; pass opset={FLOAT8_CASTS} or newer")
            policy = replace(policy, precisions=tuple(one for one in policy.precisions if one != FLOAT8))
        return byte_kernels(extraction, solution, device.integers, policy) if static else ()
    allowed = [op for op in device.integers if policy.allows(op, INTEGERS)]
    integers = integer_kernels(extraction, solution, allowed, static=static)
    return itertools.chain(integers, packed_kernels(extraction, solution, settings.packings))


def kernels_of(graph: Graph, names: Mapping[int, str], kernels: Iterable[IntegerKernel]) -> list[IntegerKernel]:
    """The kernels all of whose values a chosen graph has; `names` are those that its classes had when it was made.

    Constants of a choice are gone from the graph where they were folded into those that it reads.
    """
    values = {*graph.inputs, *graph.constants, *graph.producers}
    known = {leader for leader, name in names.items() if name in values}
    return [kernel for kernel in kernels if known.issuperset((*kernel.reads, kernel.eclass))]


def options_of(extraction: TensorProblem, kernels: Sequence[IntegerKernel], costs: CostModel) -> IntegerOptions:
    """The place of kernels in a problem: with their measured times, or on a GPU estimates of these."""
    return (ByteOptions if costs.device.gpu else IntegerOptions)(extraction, kernels, costs)


def without_data(settings: Settings) -> str:
    """The warning of a run that has no calibration data."""
    if settings.device.gpu:
        return "no calibration data: int8 and float8, whose scales come from data on a GPU, are left out"
    return "no calibration data: operands are quantised when they are read, and errors measured on random inputs"


def notes_of(settings: Settings) -> tuple[str, ...]:
    """The notes of a report on where its figures come from."""
    if not settings.device.gpu:
        return ()
    backend = settings.portable_backend
    return (
        f"errors of roundings are those of arithmetic, measured with {backend} on this processor, none on a GPU; times "
        f"that no table has are estimates from the figures of {settings.device.name}",
    )


def measured_roundings(
    settings: Settings,
    log: Log,
    assembled: Assembled,
    kernels: Sequence[IntegerKernel],
    batches: Sequence[Batch],
    others: Sequence[Batch],
) -> MeasuredRoundings:
    """Scales from batches and the error of each rounding, in each precision that a kernel has."""
    if not settings.device.gpu:
        return Calibration(settings, log, assembled, kernels).measured(batches, others)
    parts: dict[str, MeasuredRoundings] = {}
    for precision, scheme in GPUS.items():
        some = [kernel for kernel in kernels if kernel.precision == precision]
        if some:
            parts[precision] = Calibration(settings, log, assembled, some, scheme).measured(batches, others)
    every = {precision: one.roundings for precision, one in parts.items()}
    return MeasuredRoundings(
        replace(every.pop(INTEGERS, Roundings()), others=every),
        max(one.interaction for one in parts.values()),
        min(one.batches for one in parts.values()),
        sum(one.unmeasured for one in parts.values()),
    )
