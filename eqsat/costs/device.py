"""Devices: the figures a roofline estimate is made of, each with its source."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, Literal

from eqsat.costs.work import Work
from eqsat.errors import CostError


@dataclass(frozen=True)
class Device:
    """What a roofline needs to know of a device, in seconds, bytes, and operations a second.

    `kind` is "measured" where operators can be timed here and kept in a cost table, "roofline" where all costs are
    estimates. `flops` is the arithmetic attained, by element type. `bandwidth` is that of memory, `near_bandwidth` that
    of a working set of at most `near_bytes`, which a producer has just written, and `weight_bandwidth` that at which
    constant operands come in: between two runs the rest of a model has passed through the caches. `launch` is what a
    kernel takes that does nothing, `view` what a node takes that moves nothing. `efficiency` is the share of `flops` an
    operator attains, `rates` the seconds it needs an element where its bytes do not explain them; both know variants of
    operators, such as "conv/depthwise". `layouts` are those its backend has kernels for, and `fuses` says whether it
    makes kernels of several operators. `source` says where the figures come from.
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

    def peak(self, dtype: str) -> float:
        """Arithmetic operations a second on elements of this type; those of float32 where nothing is known."""
        return self.flops.get(dtype, self.flops["float32"])

    def memory_seconds(self, bytes: int, weight_bytes: int) -> float:
        """What moving takes: `bytes`, of which `weight_bytes` are constant operands."""
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

    @staticmethod
    def of(name: str) -> Device:
        """The device of that name; CostError for one that is unknown.

        >>> Device.of("nvidia-h200").kind
        'roofline'
        """
        found = DEVICES.get(name)
        if found is None:
            raise CostError(f"no device {name!r}", expected="one of " + ", ".join(DEVICES))
        return found


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


def _shipped() -> Mapping[str, Device]:
    folder = resources.files("eqsat.costs") / "devices"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    devices = [read_device(f.read_text(encoding="utf-8")) for f in files]
    return MappingProxyType({d.name: d for d in devices})


#: Every device by name.
DEVICES: Mapping[str, Device] = _shipped()
