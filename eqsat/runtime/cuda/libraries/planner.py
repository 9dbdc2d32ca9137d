"""Plans that cuDNN has for a GPU that is not here: by its own planner, behind a driver that only answers.

cuDNN lists, filters and builds plans for a device that is described to it, and asks the driver for little that has to
do with one. A library in the place of the driver's says yes to that, and no kernel can be launched through it.
`python -m eqsat.runtime.cuda.libraries.planner ARCH` is the process that cuDNN is loaded in: it reads calls, pickled,
from standard input, and writes a line of JSON for each.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eqsat.errors import BackendError, EqsatError, first_line
from eqsat.runtime.cuda.libraries.cudnn import Call
from eqsat.runtime.cuda.libraries.cudnn_library import Cudnn

#: Figures of GPUs, from NVIDIA's data sheets and the table of compute capabilities of its programming guide: by
#: architecture multiprocessors, shared memory of a block, cache and memory in bytes, clocks in kHz, bits of the bus.
_FIGURES: Mapping[str, Mapping[str, Any]] = {
    "sm_80": {
        "deviceName": "NVIDIA A100", "deviceVer": 800, "multiProcessorCount": 108, "l2CacheSize": 41_943_040,
        "maxSharedMemoryPerBlockOptin": 166_912, "totalGlobalMem": 85_899_345_920,
        "smClockRateKHz": 1_410_000, "memClockRateKHz": 1_593_000, "memoryBusWidth": 5120,
    },
    "sm_90": {
        "deviceName": "NVIDIA H200", "deviceVer": 900, "multiProcessorCount": 132, "l2CacheSize": 62_914_560,
        "maxSharedMemoryPerBlockOptin": 232_448, "totalGlobalMem": 150_754_820_096,
        "smClockRateKHz": 1_980_000, "memClockRateKHz": 3_201_000, "memoryBusWidth": 6144,
    },
}  # fmt: skip
#: What GPUs of these architectures have in common.
_COMMON: Mapping[str, Any] = {
    "maxGridSize": [2_147_483_647, 65_535, 65_535], "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "maxCtasPerSM": 32, "regsPerBlock": 65_536, "maxRegistersPerSM": 65_536, "warpSize": 32,
    "maxSharedMemoryPerBlock": 49_152, "reservedSharedMemoryPerBlock": 1024, "supportCoopLaunch": 1,
    "driverVer": 13_000, "isTccDriver": 0, "pciDeviceId": 0, "cudaDeviceId": 0, "deviceId": 0, "smCountOrigin": 0,
}  # fmt: skip
ARCHITECTURES = tuple(_FIGURES)
#: Functions of the driver that succeed: those that give a handle, or a number, through their first argument.
_HANDLES = (
    "cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuModuleLoadData", "cuModuleGetFunction",
    "cuCtxGetCurrent",
)  # fmt: skip
_NUMBERS = {
    "cuDriverGetVersion": 13_000, "cuDeviceGetCount": 1, "cuDeviceGet": 0, "cuKernelGetAttribute": 0,
    "cuOccupancyMaxPotentialClusterSize": 8,
}  # fmt: skip
_NOTHING = ("cuLibraryUnload", "cuModuleUnload", "cuKernelSetAttribute")
#: Functions that fail: no context, no memory and no launch is to be had.
_REFUSED = (
    "cuInit", "cuCtxGetLimit", "cuCtxPopCurrent", "cuCtxPushCurrent", "cuGetErrorName", "cuLaunchCooperativeKernel",
    "cuLaunchKernel", "cuLaunchKernelEx", "cuLibraryLoadFromFile", "cuLinkAddData", "cuLinkComplete", "cuLinkCreate",
    "cuLinkDestroy", "cuStreamGetCtx", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeTiled",
)  # fmt: skip
_NO_DEVICE = 100
#: Calls that one process is given: what cuDNN holds for a call is given back with the process.
_AT_ONCE = 40


@dataclass(frozen=True)
class CallPlan:
    """The plan that cuDNN takes for a call first: its name, its workspace in bytes, and how many it lists.

    `fault` says why there is none.
    """

    name: str = ""
    workspace: int = 0
    listed: int = 0
    fault: str = ""


def plans_for(calls: Sequence[Call], arch: str) -> Iterator[CallPlan]:
    """The plan of each call on a GPU of an architecture; BackendError without cuDNN or a C compiler.

    A call that ends the process has that as its fault, and those after it are asked for again.
    """
    left = list(calls)
    with tempfile.TemporaryDirectory() as folder:
        _build_driver(Path(folder))
        while left:
            made = list(_asked(left[:_AT_ONCE], arch, folder))
            yield from made
            left = left[len(made) :]


def _asked(calls: Sequence[Call], arch: str, folder: str) -> Iterator[CallPlan]:
    path = os.pathsep.join(filter(None, (folder, os.environ.get("LD_LIBRARY_PATH", ""))))
    done = subprocess.run(
        [sys.executable, "-P", "-m", "eqsat.runtime.cuda.libraries.planner", arch],
        input=pickle.dumps(list(calls)),
        capture_output=True,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": path, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    lines = [line for line in done.stdout.decode().splitlines() if line.startswith("{")]
    yield from (CallPlan(**json.loads(line)) for line in lines)
    if len(lines) < len(calls):
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        if not lines and "cannot be used" in said:
            raise BackendError(said, remedy="pip install 'eqsat[cuda13]'")
        yield CallPlan(fault=f"the process ended with code {done.returncode}: {said}")


def _build_driver(folder: Path) -> None:
    """A shared library with the functions that are asked for, in the place of the driver's."""
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc")
    if compiler is None:
        raise BackendError("no C compiler, which builds what stands for the driver", remedy="install gcc")
    lines = ['int cuGetErrorString(int code, const char** text) { *text = "no device"; return 0; }']
    lines += [f"int {name}(void** out) {{ *out = (void*)0x1000; return 0; }}" for name in _HANDLES]
    lines += [f"int {name}(int* out) {{ *out = {number}; return 0; }}" for name, number in _NUMBERS.items()]
    lines += [f"int {name}(void) {{ return 0; }}" for name in _NOTHING]
    lines += [f"int {name}(void) {{ return {_NO_DEVICE}; }}" for name in _REFUSED]
    source = folder / "driver.c"
    source.write_text("\n".join(lines) + "\n")
    library = folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)


class CudnnPlanner(Cudnn):
    """cuDNN for a GPU that is described to it; it has no handle, and nothing can be run."""

    def __init__(self, cudnn: Any, arch: str) -> None:
        self._cudnn, self._handle = cudnn, None
        self.version = str(cudnn.backend_version())
        figures = {**_COMMON, **_FIGURES[arch]}
        figures["oversizedSharedMemoryPerBlock"] = figures["maxSharedMemoryPerBlockOptin"]
        self._target = {
            "device_property": cudnn.create_device_properties(json.dumps(figures)),
            "sm_version": figures["deviceVer"] // 10,
            "sm_count": figures["multiProcessorCount"],
        }

    def first(self, call: Call) -> CallPlan:
        """The first plan that can be built."""
        try:
            stated = self._graph(call)
        except EqsatError as error:
            return CallPlan(fault=error.what)
        if stated is None:
            return CallPlan(fault="cuDNN lists no plan")
        listed = int(stated.graph.get_execution_plan_count())
        index = self._built(stated.graph, None)
        if index is None:
            return CallPlan(listed=listed, fault=f"none of {listed} plans can be built")
        name = str(stated.graph.get_plan_name_at_index(index))
        return CallPlan(name, int(stated.graph.get_workspace_size_plan_at_index(index)), listed)

    def device(self) -> dict[str, Any]:
        """The GPU that graphs are stated for."""
        return self._target


def _main(arch: str) -> None:
    try:
        cudnn = importlib.import_module("cudnn")
    except Exception as error:  # noqa: BLE001 - the packages raise errors of their own where a library is missing
        sys.exit(f"cuDNN cannot be used: {first_line(error)}")
    planner = CudnnPlanner(cudnn, arch)
    for call in pickle.loads(sys.stdin.buffer.read()):  # from the process that began this one
        plan = planner.first(call)
        print(json.dumps(asdict(plan)), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
