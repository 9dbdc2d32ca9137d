"""The GPU that is here, as its driver and the installed libraries report it, or the missing parts."""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eqsat.errors import BackendError
from eqsat.runtime.cuda.compiler.nvrtc import nvrtc

#: The name that `pip` installs everything under that is needed beside the driver.
EXTRA = "eqsat[cuda13]"
#: Origin of generated code: the module that this one imports of the runtime.
_ORIGIN = "cuda.program.lowering"
_ROOM = "eqsat.runtime"
SOURCES = Path(__file__).parents[2]


@dataclass(frozen=True)
class Gpu:
    """A GPU: name, compute capability, multiprocessors, clocks in hertz, width of memory in bits, sizes in bytes."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    clock: float
    memory_clock: float
    memory_bits: int
    l2_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class Installation:
    """A GPU with its driver, and the versions of the libraries that run kernels on it."""

    gpu: Gpu
    driver: str
    libraries: Mapping[str, str]

    @property
    def processor(self) -> str:
        """The GPU and its driver, in one line."""
        return f"{self.gpu.name}, driver {self.driver}"

    @property
    def runtime(self) -> str:
        """The libraries and the hash of the code that generates kernels, in one line."""
        versions = [f"{name} {version}" for name, version in self.libraries.items()]
        return ", ".join([*versions, f"kernels {generator_hash()}"])


def found() -> Installation:
    """The installation; BackendError that names the missing parts where there is none."""
    probed = probe()
    if isinstance(probed, Installation):
        return probed
    raise BackendError(
        f"no CUDA device can be used here: {probed}",
        expected="an NVIDIA GPU with its driver, and CuPy",
        remedy=f"on such a machine: pip install '{EXTRA}'",
    )


@cache
def probe() -> Installation | str:
    """The installation, or the missing parts."""
    try:
        cupy: Any = importlib.import_module("cupy")
    except ImportError as error:
        return f"cupy is not installed ({error})" if isinstance(error, ModuleNotFoundError) else f"cupy fails: {error}"
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except Exception as error:  # noqa: BLE001 - every error of CUDA's says the same here: there is no device
        return f"the driver has no GPU ({str(error).strip()})"
    if not count:
        return "the driver has no GPU"
    return Installation(_gpu(cupy), _driver(runtime), {name: _version(read) for name, read in _LIBRARIES.items()})


def _gpu(cupy: Any) -> Gpu:
    device = cupy.cuda.Device()
    attributes: Mapping[str, int] = device.attributes
    properties = cupy.cuda.runtime.getDeviceProperties(device.id)
    name = properties["name"]
    return Gpu(
        name=name.decode() if isinstance(name, bytes) else str(name),
        capability=_capability(device.compute_capability),
        multiprocessors=attributes["MultiProcessorCount"],
        clock=1e3 * attributes.get("ClockRate", 0),
        memory_clock=1e3 * attributes.get("MemoryClockRate", 0),
        memory_bits=attributes["GlobalMemoryBusWidth"],
        l2_bytes=attributes["L2CacheSize"],
        memory_bytes=int(properties["totalGlobalMem"]),
    )


def _capability(digits: str) -> tuple[int, int]:
    """The major and the minor number of a compute capability as CuPy writes it; its attributes have neither.

    >>> _capability("90"), _capability("103")
    ((9, 0), (10, 3))
    """
    return int(digits[:-1]), int(digits[-1])


def _driver(runtime: Any) -> str:
    """The version of the kernel's driver, and of CUDA that it speaks."""
    number = int(runtime.driverGetVersion())
    cuda = f"CUDA {number // 1000}.{number % 1000 // 10}"
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return cuda
    version = re.search(r"\b\d{3,}\.\d+(?:\.\d+)*\b", text)
    return f"{version[0]}, {cuda}" if version else cuda


def _cupy() -> str:
    return str(importlib.import_module("cupy").__version__)


def _cublaslt() -> str:
    return _dotted(int(importlib.import_module("nvmath.bindings.cublasLt").get_version()))


def _cudnn() -> str:
    return _dotted(int(importlib.import_module("cudnn").backend_version()))


def _nvrtc() -> str:
    """The version of the compiler that kernels are compiled by, whichever package it is called through."""
    return nvrtc().version


_LIBRARIES: Mapping[str, Callable[[], str]] = {"cupy": _cupy, "cublasLt": _cublaslt, "cudnn": _cudnn, "nvrtc": _nvrtc}


def _version(read: Callable[[], str]) -> str:
    """The version that a library reports; operators that need one which is absent have other kernels."""
    try:
        return read()
    except Exception as error:  # noqa: BLE001 - libraries raise errors of their own where the driver does not fit
        return "absent" if isinstance(error, ImportError | BackendError) else f"failing ({type(error).__name__})"


def _dotted(number: int) -> str:
    """A version as a number, in the way of CUDA's libraries.

    >>> _dotted(92800), _dotted(131000)
    ('9.28.0', '13.10.0')
    """
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


@cache
def generator_hash() -> str:
    """A hash of the sources that decide which kernels are generated, so that times of other kernels never mix.

    They are the modules of the runtime that lowering imports, directly or not, and every file of CUDA code beside them.
    """
    digest = hashlib.blake2b(digest_size=6)
    for path in sorted({*_modules(_ORIGIN), *SOURCES.rglob("*.cuh")}):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _modules(origin: str) -> Iterator[Path]:
    """A module of the runtime and those of it that it imports, directly or not."""
    seen: set[str] = set()
    left = [origin]
    while left:
        name = left.pop()
        path = SOURCES / f"{name.replace('.', '/')}.py"
        if name in seen or not path.is_file():
            continue
        seen.add(name)
        yield path
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(f"{_ROOM}."):
                inner = node.module.removeprefix(_ROOM).lstrip(".")
                left += [inner, *(f"{inner}.{alias.name}".lstrip(".") for alias in node.names)]
