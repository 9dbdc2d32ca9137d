"""The packages, the driver and the compiler that a GPU needs: which are here, and whether they fit."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement

from eqsat.doctor.observation import Observation
from eqsat.errors import BackendError
from eqsat.runtime.cuda.compiler.cubins import Cubins
from eqsat.runtime.cuda.compiler.nvrtc import nvrtc
from eqsat.runtime.cuda.device.installation import EXTRA, Installation, probe

INSTALL = f"pip install '{EXTRA}'"
_GROUP = EXTRA.partition("[")[2].rstrip("]")
#: The architecture that kernels are compiled for where there is no GPU.
ANY_ARCH = "sm_90"
#: A kernel that reads and writes halves, which needs all of the prelude.
_KERNEL = """extern "C" __global__ void probe(f16* x) {
  x[threadIdx.x] = from_float<f16>(2.0f * to_float(x[threadIdx.x]));
}"""


def packages() -> Iterator[Observation]:
    """The packages of the extra for GPUs, each as it is here."""
    try:
        stated = [Requirement(line) for line in requires("eqsat") or ()]
    except PackageNotFoundError:
        yield Observation("packages", "skipped", "eqsat runs from its sources, which state no requirements")
        return
    for one in stated:
        if one.marker is None or one.marker.evaluate({"extra": ""}) or not one.marker.evaluate({"extra": _GROUP}):
            continue
        try:
            here = version(one.name)
        except PackageNotFoundError:
            yield Observation(one.name, "absent", f"not installed, {one.specifier} is needed", INSTALL)
            continue
        if one.specifier.contains(here, prereleases=True):
            yield Observation(one.name, "passed", here)
        else:
            yield Observation(one.name, "failed", f"{here}, {one.specifier} is needed", INSTALL)


def gpu() -> Iterator[Observation]:
    """The driver and the GPU."""
    found = probe()
    if not isinstance(found, Installation):
        remedy = INSTALL if "cupy" in found else "install the driver of the GPU, and look with nvidia-smi"
        yield Observation("GPU", "absent", found, remedy)
        return
    major, minor = found.gpu.capability
    yield Observation("GPU", "passed", f"{found.gpu.name}, compute capability {major}.{minor}, driver {found.driver}")


def arch() -> str | None:
    """The architecture of the GPU that is here, or that which stands for any; None without a compiler for either."""
    try:
        nvrtc()
    except BackendError:
        return None
    return _arch()


def _arch() -> str:
    found = probe()
    return f"sm_{found.gpu.capability[0]}{found.gpu.capability[1]}" if isinstance(found, Installation) else ANY_ARCH


def compiler() -> Iterator[Observation]:
    """NVRTC, and a kernel that it compiles."""
    try:
        made = Cubins().get(_KERNEL, _arch())
    except BackendError as error:
        yield Observation("NVRTC", "absent", error.what, INSTALL)
        return
    yield Observation("NVRTC", "passed", f"{nvrtc().version}, {_arch()}", figures={"registers": made.registers})
