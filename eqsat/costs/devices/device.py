"""Devices: the figures a roofline estimate is made of, each with its source."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

from eqsat.costs.kernels.work import Work
from eqsat.errors import CostError
from eqsat.runtime.cuda.device.installation import Gpu, Installation, probe


@dataclass(frozen=True)
class Device:
    """A device as a roofline knows it, in seconds, bytes, and operations a second.

    `kind` is "measured" where the figures were fitted to operators that were timed on it, "roofline" where they are
    peaks and overheads; operators can be measured into a cost table on either. `flops` is the arithmetic attained, by
    element type. `bandwidth` is that of memory, `near_bandwidth` that of a working set of at most `near_bytes`, which a
    producer has just written, and `weight_bandwidth` that at which constant operands come in: between two runs the rest
    of a model has passed through the caches. `launch` is the time of a kernel that does nothing, `view` that of a node
    that moves nothing. `efficiency` is the share of `flops` an operator attains, `rates` the seconds it needs an
    element where its bytes do not explain them; both know variants of operators, such as "conv/depthwise". `layouts`
    are those its backend has kernels for, and `fuses` says whether it makes kernels of several operators. `source` says
    where the figures come from. `gpu` is the name that the driver of a CUDA device reports, empty for other devices.
    """

    name: str
    kind: Literal["measured", "roofline"]
    flops: Mapping[str, float]
    bandwidth: float
    near_bandwidth: float
    near_bytes: int
    weight_bandwidth: float
    launch: float
    view: float
    efficiency: Mapping[str, float]
    rates: Mapping[str, float]
    layouts: tuple[str, ...]
    fuses: bool
    source: str
    gpu: str = ""

    def peak(self, dtype: str) -> float:
        """Arithmetic operations a second on elements of this type; those of float32 where nothing is known."""
        return self.flops.get(dtype, self.flops["float32"])

    def memory_seconds(self, bytes: int, weight_bytes: int) -> float:
        """The time to move `bytes`, of which `weight_bytes` are constant operands, in seconds."""
        moved = bytes - weight_bytes
        near = moved / (self.near_bandwidth if moved <= self.near_bytes else self.bandwidth)
        return near + weight_bytes / self.weight_bandwidth

    def roofline(self, work: Work) -> float:
        """The estimate for one kernel, in seconds: a launch, and the work in arithmetic, in memory, and on elements.

        The three are combined by their Euclidean norm, between their maximum (all overlap) and their sum (none does).
        """
        arithmetic = work.flops / (self.peak(work.dtype) * self.efficiency.get(work.variant, 1.0))
        return self.launch + math.hypot(
            arithmetic,
            self.memory_seconds(work.bytes, work.weight_bytes),
            work.elements * self.rates.get(work.variant, 0.0),
        )

    def fused(self, works: Sequence[Work], bytes: int, weight_bytes: int) -> float:
        """The estimate for several operators in one kernel that moves so many bytes, in seconds."""
        arithmetic = sum(w.flops / (self.peak(w.dtype) * self.efficiency.get(w.variant, 1.0)) for w in works)
        elements = sum(w.elements * self.rates.get(w.variant, 0.0) for w in works)
        return self.launch + math.hypot(arithmetic, self.memory_seconds(bytes, weight_bytes), elements)

    @property
    def precisions(self) -> tuple[str, ...]:
        """The element types and arithmetic it has a speed of its own for, beside float32."""
        return tuple(name for name in self.flops if name not in ("float32", "float64"))

    @property
    def strided(self) -> bool:
        """True if its kernels read operands by any strides, so that operators that only change strides are free: on
        GPUs.
        """
        return bool(self.gpu)

    @staticmethod
    def of(name: str) -> Device:
        """The device of that name, "cuda" being the GPU that is here; CostError for one that is unknown.

        >>> Device.of("nvidia-h200").kind
        'roofline'
        """
        if name == CUDA:
            return _cuda()
        device = DEVICES.get(name)
        if device is None and name.startswith(MAKER):
            # A name that the tables lack may still be the GPU that is here.
            present = probe()
            device = None if isinstance(present, str) else gpu_device(present.gpu)
            device = device if device is not None and device.name == name else None
        if device is None:
            raise CostError(f"no device {name!r}", expected="one of " + ", ".join((*DEVICES, CUDA)))
        return device

    @property
    def is_here(self) -> bool:
        """True if it is this machine's: the CPU always, a GPU where the driver reports it."""
        if not self.gpu:
            return True
        present = probe()
        return isinstance(present, Installation) and present.gpu.name == self.gpu


def gpu_device(gpu: Gpu) -> Device:
    """The device a GPU is: the shipped one of its name, or a roofline of the properties that it reports.

    Peaks follow from the multiprocessors and their clock, by what those of a compute capability do in a cycle (CUDA
    C++ Programming Guide, arithmetic instructions; NVIDIA's architecture papers for tensor cores), the bandwidth from
    the memory's clock and width. The overhead of a launch is that of the shipped devices.
    """
    shipped = next((d for d in DEVICES.values() if d.gpu == gpu.name), None)
    if shipped is not None:
        return shipped
    lanes, wide, products = next(rates for least, *rates in _CYCLES if gpu.capability >= least)
    cycles = 2 * gpu.multiprocessors * (gpu.clock or _CLOCK)
    tensor = cycles * products
    bandwidth = 2 * gpu.memory_clock * gpu.memory_bits / 8 or _BANDWIDTH
    flops = {"bfloat16": tensor, "float16": tensor, "float32": cycles * lanes, "float64": cycles * wide}
    return Device(
        name=MAKER + re.sub(r"[^a-z0-9]+", "-", gpu.name.lower().removeprefix("nvidia")).strip("-"),
        kind="roofline",
        flops=MappingProxyType(flops | ({"tf32": tensor / 2} if gpu.capability >= (8, 0) else {})),
        bandwidth=bandwidth,
        near_bandwidth=bandwidth,
        near_bytes=gpu.l2_bytes,
        weight_bandwidth=bandwidth,
        launch=_LAUNCH,
        view=0.0,
        efficiency=MappingProxyType({}),
        rates=MappingProxyType({}),
        layouts=("row", "column", "nhwc"),
        fuses=True,
        source=f"An estimate: peaks of {gpu.name} by the clocks, multiprocessors and memory that its driver reports.",
        gpu=gpu.name,
    )


def _cuda() -> Device:
    present = probe()
    if isinstance(present, Installation):
        return gpu_device(present.gpu)
    names = " or ".join(f"device={d.name!r}" for d in DEVICES.values() if d.gpu)
    raise CostError(
        f"no CUDA device is here: {present}",
        expected="an NVIDIA GPU with its driver, and CuPy",
        remedy=f"{names} chooses for that GPU by the costs that come with eqsat, without one",
    )


def read_device(text: str) -> Device:
    """A device from the JSON text it is kept as."""
    fields: dict[str, Any] = json.loads(text)
    fields["layouts"] = tuple(fields["layouts"])
    for field in ("flops", "efficiency", "rates"):
        fields[field] = MappingProxyType(fields[field])
    return Device(**fields)


def write_device(device: Device) -> str:
    """The JSON text of a device."""
    fields = {name: dict(v) if isinstance(v, Mapping) else v for name, v in vars(device).items()}
    return json.dumps(fields, indent=2) + "\n"


#: The name of whatever GPU is here, and how the names of GPUs begin.
CUDA, MAKER = "cuda", "nvidia-"
#: Multiply-adds in a cycle of one multiprocessor, from a compute capability on, the newest first: of float32, of
#: float64, and of float16 by tensor cores.
_CYCLES: tuple[tuple[tuple[int, int], float, float, float], ...] = (
    ((12, 0), 128, 2, 512),
    ((10, 0), 128, 64, 4096),
    ((9, 0), 128, 64, 2048),
    ((8, 6), 128, 2, 512),
    ((8, 0), 64, 32, 1024),
    ((7, 5), 64, 2, 512),
    ((7, 0), 64, 32, 512),
    ((0, 0), 64, 2, 64),
)
#: Stand-ins for a GPU that reports no clock or no memory: hertz, bytes a second; and seconds of a launch.
_CLOCK, _BANDWIDTH, _LAUNCH = 1.5e9, 5e11, 2.5e-6


def _shipped() -> Mapping[str, Device]:
    folder = resources.files("eqsat.costs") / "devices"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    devices = [read_device(f.read_text(encoding="utf-8")) for f in files]
    return MappingProxyType({d.name: d for d in devices})


#: Every device by name.
DEVICES: Mapping[str, Device] = _shipped()
