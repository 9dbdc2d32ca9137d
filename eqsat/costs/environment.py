"""The environment a measurement holds in: device, processor, runtime, threads, protocol."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass, fields
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

from eqsat.errors import CostError

#: Raised whenever operators are measured in another way, so that figures of two ways never mix.
PROTOCOL = 1
_EXPECTED = "the fields device, cpu and runtime (text), threads and protocol (whole numbers)"


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

    @staticmethod
    def parse(text: str) -> Environment:
        """The environment that a line of JSON stands for; CostError for a line that is none."""
        try:
            return Environment.of(json.loads(text))
        except ValueError as error:
            raise CostError(f"no environment: {text!r}", expected=_EXPECTED) from error

    @staticmethod
    def of(values: Any) -> Environment:
        """The environment with these values by field; CostError where one is missing, unknown or of another type."""
        if not isinstance(values, dict) or values.keys() != {f.name for f in fields(Environment)}:
            raise CostError(f"no environment: {values!r}", expected=_EXPECTED)
        for name, value in values.items():
            if name in ("threads", "protocol"):
                if type(value) is not int or value < 1:
                    raise CostError(f"an environment whose {name} is {value!r}", expected="a whole number of 1 or more")
            elif not isinstance(value, str):
                raise CostError(f"an environment whose {name} is {value!r}", expected="text")
        return Environment(**values)

    def differences(self, here: Environment) -> list[str]:
        """What differs from the environment that is here, field by field.

        >>> one = Environment("onnxruntime-cpu", "a processor", "onnxruntime 1.30", 1)
        >>> one.differences(Environment("onnxruntime-cpu", "a processor", "onnxruntime 1.31", 2))
        ["runtime is 'onnxruntime 1.30', here 'onnxruntime 1.31'", 'threads is 1, here 2']
        """
        pairs = [(f.name, getattr(self, f.name), getattr(here, f.name)) for f in fields(self)]
        return [f"{name} is {there!r}, here {ours!r}" for name, there, ours in pairs if there != ours]


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
