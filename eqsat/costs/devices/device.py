"""Devices: the figures a roofline estimate is made of, each with its source."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from eqsat.costs.devices.fields import CUDA, MAKER, check_fields, read_fields
from eqsat.costs.kernels.work import Work
from eqsat.errors import CostError, nearest
from eqsat.language.terms.blocks import PACKINGS
from eqsat.runtime.cuda.device.installation import Gpu, Installation, probe
from eqsat.system.plugins import Registry

#: A device by its name, by the path of a file of JSON, or the device itself.
DeviceArgument: TypeAlias = "str | os.PathLike[str] | Device"


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
    `integers` are the operators of float32 that its backend can run on integers, between quantisation and
    dequantisation, and on floats of 8 bits where it has a speed for `float8`; `packings` are the forms of constant
    weights that its kernels of products read. `runtime` is the backend of a CPU, ONNX Runtime where it is left out.
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
    integers: tuple[str, ...] = ()
    packings: tuple[str, ...] = ()
    runtime: str = ""

    def __hash__(self) -> int:
        """By name and kind alone, since a hash of figures would need them to be hashable; all are compared."""
        return hash((self.name, self.kind, self.source))

    def peak(self, dtype: str) -> float:
        """Arithmetic operations a second on elements of this type; those of float32 where nothing is known."""
        return self.flops.get(dtype, self.flops["float32"])

    def memory_seconds(self, bytes: int, weight_bytes: int) -> float:
        """The time to move `bytes`, of which `weight_bytes` are constant operands, in seconds."""
        moved = bytes - weight_bytes
        near = moved / (self.near_bandwidth if moved <= self.near_bytes else self.bandwidth)
        return near + weight_bytes / self.weight_bandwidth

    def roofline(self, work: Work) -> float:
        """The estimate for one operator, in seconds: launches, and the work in arithmetic, in memory, and on elements.

        The three are combined by their Euclidean norm, between their maximum (all overlap) and their sum (none does).
        """
        return self.launch * work.launches + math.hypot(
            self._arithmetic(work),
            self.memory_seconds(work.bytes, work.weight_bytes),
            work.elements * self.rates.get(work.variant, 0.0),
        )

    def fused(self, works: Sequence[Work], bytes: int, weight_bytes: int) -> float:
        """The estimate for several operators in one kernel that moves so many bytes, in seconds."""
        arithmetic = sum(map(self._arithmetic, works))
        elements = sum(w.elements * self.rates.get(w.variant, 0.0) for w in works)
        launches = 1 + sum(w.launches - 1 for w in works)
        return self.launch * launches + math.hypot(arithmetic, self.memory_seconds(bytes, weight_bytes), elements)

    def _arithmetic(self, work: Work) -> float:
        """The seconds of an operator's arithmetic by itself."""
        return work.flops / (self.peak(work.dtype) * self.efficiency.get(work.variant, 1.0) * work.share)

    @property
    def precisions(self) -> tuple[str, ...]:
        """The element types and arithmetic it has a speed of its own for, beside float32."""
        names = (name for name in self.flops if name not in ("float32", "float64"))
        packed = (PACKINGS[name].kind for name in self.packings)
        return tuple(dict.fromkeys((*names, *(("int8",) if self.integers else ()), *packed)))

    @property
    def is_onnxruntime(self) -> bool:
        """True if ONNX Runtime runs its programs."""
        return self.backend == "onnxruntime"

    @property
    def backend(self) -> str:
        """The backend that runs its programs."""
        return "cupy" if self.gpu else self.runtime or "onnxruntime"

    @property
    def writes_out(self) -> bool:
        """True if operators that ONNX lacks are written out by the laws that define them before a program runs."""
        return self.backend != "c"

    @property
    def has_functions(self) -> bool:
        """True if its programs have kernels for comprehensions, which others run as operators that they are."""
        return self.backend in ("c", "cupy")

    @property
    def strided(self) -> bool:
        """True if its kernels read operands by any strides, so that operators that only change strides are free: on
        GPUs.
        """
        return bool(self.gpu)

    @staticmethod
    def of(given: DeviceArgument) -> Device:
        """The device of that name, "cuda" being the GPU that is here, or the one in a file whose name ends in .json.

        CostError for a name that is unknown, and for a file that is no device, with the field.

        >>> Device.of("nvidia-h200").kind
        'roofline'
        """
        if isinstance(given, Device):
            return given
        if is_device_file(given):
            return _of_file(Path(given))
        name = str(given)
        if name == CUDA:
            return _cuda()
        if name in DEVICES:
            return DEVICES[name]
        if name.startswith(MAKER):
            # A name that the tables lack may still be the GPU that is here.
            present = probe()
            if isinstance(present, Installation) and (device := gpu_device(present.gpu)).name == name:
                return device
        known = (*DEVICES, CUDA)
        raise CostError(
            f"no device {name!r}",
            expected="one of " + ", ".join(known) + ", or a file that ends in .json",
            remedy=nearest(name, known),
        )

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
    known = next((d for d in DEVICES.usable().values() if d.gpu == gpu.name), None)
    if known is not None:
        return known
    lanes, wide, products = next(rates for least, *rates in _CYCLES if gpu.capability >= least)
    cycles = 2 * gpu.multiprocessors * (gpu.clock or _CLOCK)
    tensor = cycles * products
    bandwidth = 2 * gpu.memory_clock * gpu.memory_bits / 8 or _BANDWIDTH
    flops = {"bfloat16": tensor, "float16": tensor, "float32": cycles * lanes, "float64": cycles * wide}
    for name, least in _DOUBLED.items():
        flops |= {name: 2 * tensor} if gpu.capability >= least else {}
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
        integers=MATRIX_PRODUCTS if "int8" in flops else (),
    )


def _cuda() -> Device:
    present = probe()
    if isinstance(present, Installation):
        return gpu_device(present.gpu)
    names = " or ".join(f"device={d.name!r}" for d in DEVICES.usable().values() if d.gpu)
    raise CostError(
        f"no CUDA device is here: {present}",
        expected="an NVIDIA GPU with its driver, and CuPy",
        remedy=f"{names} chooses for that GPU by the costs that come with eqsat, without one",
    )


def is_device_file(given: object) -> bool:
    """True for the path of a device's file, which as text is told from a name by its end."""
    return isinstance(given, os.PathLike) or (isinstance(given, str) and given.endswith(".json"))


def _of_file(path: Path) -> Device:
    """The device in a file; CostError for a file that is none, and for a name that is another device's."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise CostError(
            f"the file cannot be read: {reason}",
            where=str(path),
            expected="the path of a device in JSON, as write_device writes it",
        ) from error
    device = read_device(text, str(path))
    if device.name in DEVICES:
        raise CostError(
            f"{device.name!r} is a device that eqsat or a plug-in has",
            where=f"{path}: name",
            expected="a name of its own, by which its measured costs are kept",
            remedy=f"name it {device.name}-2, or the like",
        )
    return device


def read_device(text: str, where: str = "device") -> Device:
    """A device from the JSON text it is kept as; CostError, with the field, for a text that is none.

    `where` names the text in errors.
    """
    return Device(**read_fields(text, where))


def write_device(device: Device) -> str:
    """The JSON text of a device."""
    fields = {name: dict(v) if isinstance(v, Mapping) else v for name, v in vars(device).items()}
    return json.dumps(fields, indent=2) + "\n"


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
#: Numbers of a byte that tensor cores multiply twice as fast as float16, by the least compute capability.
_DOUBLED = {"int8": (8, 0), "float8": (8, 9)}
#: The operators that run on numbers of a byte on GPUs.
MATRIX_PRODUCTS = ("gemm", "matmul")
#: Stand-ins for a GPU that reports no clock or no memory: hertz, bytes a second; and seconds of a launch.
_CLOCK, _BANDWIDTH, _LAUNCH = 1.5e9, 5e11, 2.5e-6


def _shipped() -> Mapping[str, Device]:
    folder = resources.files("eqsat.costs") / "devices"
    files = sorted((f for f in folder.iterdir() if f.name.endswith(".json")), key=lambda f: f.name)
    devices = [read_device(f.read_text(encoding="utf-8"), f.name) for f in files]
    return {d.name: d for d in devices}


def _checked(name: str, given: object) -> Device:
    if not isinstance(given, Device):
        raise CostError(f"{given!r} is no device", expected="an eqsat.costs.devices.device.Device")
    check_fields(vars(given), name)
    if given.name != name:
        raise CostError(f"a device with the name {given.name!r}", expected="the name of the entry point")
    return given


#: Every device by name; those of other packages are entry points of "eqsat.devices".
DEVICES: Registry[Device] = Registry("eqsat.devices", _shipped(), _checked)
