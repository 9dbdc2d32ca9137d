"""The environment a measurement holds in: device, processor, runtime, threads, protocol."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from eqsat.costs.devices.device import DEVICES, Device, gpu_device
from eqsat.costs.devices.fields import CUDA, MAKER
from eqsat.errors import CostError
from eqsat.runtime.c.blas import installed_libraries
from eqsat.runtime.c.toolchain import compiler_version
from eqsat.runtime.cuda.device.installation import probe

#: Raised whenever operators are measured in another way, so that figures of two ways never mix: on a CPU, on a GPU.
PROTOCOL, GPU_PROTOCOL = 1, 1
#: Ending of the runtime of entries that wait for the end of the window they were measured in.
_WAITING = ", unconfirmed"
#: Ending of the runtime of entries that scale those of other environments, and are no costs themselves.
_CALIBRATION = ", calibration"
Kind: TypeAlias = Literal["cpu", "gpu"]
_EXPECTED = "the fields device, cpu and runtime (text), threads and protocol (whole numbers)"


@dataclass(frozen=True)
class Environment:
    """The conditions that must agree for a measured time to be used again.

    `cpu` is the processor that was measured: for a GPU, its name and driver. `runtime` is the software that ran on it,
    with its version: for a GPU, the libraries, and the hash of the code that generates kernels.
    """

    device: str
    cpu: str
    runtime: str
    threads: int
    protocol: int = PROTOCOL

    @staticmethod
    def current(device: str | Device = "onnxruntime-cpu", threads: int = 1) -> Environment:
        """The environment of this process on this machine; of a GPU that is not here, one that nothing has.

        A device that has a file of its own is given itself, since its name is not known here.
        """
        return PROVIDERS[kind_of(device)](device, threads)

    @property
    def unconfirmed(self) -> Environment:
        """The environment of entries that wait until the window they were measured in is known to have been steady."""
        return replace(self, runtime=self.runtime + _WAITING)

    @property
    def calibration(self) -> Environment:
        """The environment of entries that were measured here to scale those of another by."""
        return replace(self, runtime=self.runtime + _CALIBRATION)

    @property
    def is_measured(self) -> bool:
        """True if entries are costs: they neither wait nor only scale others."""
        return self.is_confirmed and not self.runtime.endswith(_CALIBRATION)

    @property
    def is_confirmed(self) -> bool:
        """True if entries are no longer waiting."""
        return not self.runtime.endswith(_WAITING)

    @cached_property
    def text(self) -> str:
        """The environment as one line of JSON; equal environments have equal lines."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def parse(text: str) -> Environment:
        """The environment that a line of JSON stands for; CostError for a line that is none."""
        try:
            return Environment.of(json.loads(text))
        except (ValueError, TypeError, RecursionError) as error:
            raise CostError(f"no environment: {str(text)[:200]!r}", expected=_EXPECTED) from error

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
        """The differences from the environment that is here, field by field.

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
def _runtime(package: str) -> str:
    """The version of what runs kernels: of a package, or of the compiler of those in C with the libraries they call."""
    if package == "c":
        return ", ".join([f"c by {compiler_version()}", *installed_libraries()])
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return f"{package} absent"


def kind_of(device: str | Device) -> Kind:
    """The kind of a device, by its name, which for a GPU begins with its maker's."""
    name = device if isinstance(device, str) else device.name
    return "gpu" if name == CUDA or name.startswith(MAKER) else "cpu"


def _of_cpu(device: str | Device, threads: int) -> Environment:
    if isinstance(device, str):
        runtime = DEVICES[device].backend if device in DEVICES else "onnxruntime"
        return Environment(device, cpu_model(), _runtime(runtime), threads)
    return Environment(device.name, cpu_model(), _runtime(device.backend), threads)


def _of_gpu(device: str | Device, _threads: int) -> Environment:
    """The GPU with its driver and libraries; a kernel on it has no use for threads of the caller's."""
    present = probe()
    name = device if isinstance(device, str) else device.name
    if isinstance(present, str):
        return Environment(name, "no GPU", present, 1, GPU_PROTOCOL)
    if isinstance(device, str):
        here = gpu_device(present.gpu).name
        is_here, name = device in (here, CUDA), here if device == CUDA else device
    else:
        is_here = device.gpu == present.gpu.name
    if not is_here:
        return Environment(name, f"another GPU: {present.gpu.name}", present.runtime, 1, GPU_PROTOCOL)
    return Environment(name, present.processor, present.runtime, 1, GPU_PROTOCOL)


#: Functions that give the environment in which a device is measured, from the device and the number of threads.
PROVIDERS: Mapping[Kind, Callable[[str | Device, int], Environment]] = MappingProxyType(
    {"cpu": _of_cpu, "gpu": _of_gpu}
)
