"""Kernels measured on the GPU that is here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from eqsat.costs.devices.device import DEVICES, Device, DeviceArgument, is_device_file
from eqsat.costs.devices.fields import CUDA
from eqsat.costs.kernels.fusion import Key
from eqsat.costs.measuring.campaign import SENTINEL, Measuring
from eqsat.costs.measuring.kernel import planned
from eqsat.costs.measuring.protocol import Subject, steady
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment, kind_of
from eqsat.costs.table.table import CostTable
from eqsat.errors import CostError
from eqsat.language.terms import Graph, Plan
from eqsat.runtime.cuda.device import installation
from eqsat.runtime.cuda.device.stopwatch import CudaStopwatch, open_stopwatch


def here_for(device: DeviceArgument, purpose: str) -> Device:
    """The device of a name or a file, here if it is a GPU; CostError with the requirement that is missing."""
    named = Device.of(device) if is_device_file(device) or isinstance(device, Device) else str(device)
    return present(named, purpose) if kind_of(named) == "gpu" else Device.of(named)


def present(device: DeviceArgument, purpose: str = "be measured") -> Device:
    """The GPU of this name, or whatever GPU is here for "cuda"; CostError with the requirement that is missing."""
    probed = installation.probe()
    reason = probed if isinstance(probed, str) else ""
    if not reason:
        gpu = Device.of(device)
        if gpu.is_here:
            return gpu
        reason = f"the GPU here is {Device.of(CUDA).name}"
    names = " or ".join(name for name, known in DEVICES.usable().items() if known.gpu)
    raise CostError(
        f"{device} is not here to {purpose}: {reason}",
        expected="that GPU with its driver, and CuPy",
        remedy=f"`eqsat measure --device {names} --list FILE MODEL…` writes what is to be measured; where that GPU "
        "is, `eqsat measure --device cuda --keys FILE --export OUT.jsonl` measures it",
    )


@contextmanager
def measuring(device: Device, table: CostTable) -> Iterator[Measuring]:
    """Open a measurement of kernels of a GPU into a table."""
    with closing(open_stopwatch()) as watch:

        def subject(key: Key) -> Subject:
            kernel = planned(key)
            return watch.subject(kernel.plan, kernel.inputs)

        yield Measuring(subject, watch, table, Environment.current(device), SENTINEL)


def measured_whole(watch: CudaStopwatch, plan: Plan | Graph, inputs: Mapping[str, Any], plans: Sequence[str]) -> Entry:
    """The time of a whole plan, run after itself again and again; libraries' calls by the plans that a table has."""
    with closing(watch.subject(plan, inputs, plans)) as subject:
        return steady(subject)
