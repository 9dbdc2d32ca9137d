"""The environment a measurement holds in: device, processor, runtime, threads, protocol."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path

#: Raised whenever operators are measured in another way, so that figures of two ways never mix.
PROTOCOL = 1


@dataclass(frozen=True)
class Environment:
    """What must agree for a measured time to be used again."""

    device: str
    cpu: str
    runtime: str
    threads: int
    protocol: int = PROTOCOL

    @staticmethod
    def current(device: str = "onnxruntime-cpu", threads: int = 1) -> Environment:
        """The environment of this process on this machine."""
        return Environment(device, cpu_model(), _runtime(), threads)

    @cached_property
    def text(self) -> str:
        """The environment as one line of JSON; equal environments have equal lines."""
        return json.dumps(asdict(self), sort_keys=True)


@cache
def cpu_model() -> str:
    """The processor's model name with family, model and stepping, which tell virtual ones apart."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    name = fields.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{part} {fields[part]}" for part in ("cpu family", "model", "stepping") if part in fields]
    return ", ".join([name, *numbers])


@cache
def _runtime() -> str:
    try:
        return f"onnxruntime {metadata.version('onnxruntime')}"
    except metadata.PackageNotFoundError:
        return "onnxruntime absent"
