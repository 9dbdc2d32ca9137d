"""Messages where a GPU cannot run a program: too little memory, a driver that is too old."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.errors import BackendError
from eqsat.runtime.programs.arena import Arrangement
from eqsat.runtime.programs.compiled import DeviceMemoryError


def shortage(name: str, arrangement: Arrangement, workspace: int, free: int) -> DeviceMemoryError:
    """The error for a program that needs more bytes than are free: the sizes that would fit, and the largest values."""
    needed = arrangement.total + workspace
    growing = arrangement.arena + arrangement.inputs + arrangement.outputs
    left = free - arrangement.weights - workspace
    if free < arrangement.weights:
        fits = "not even the weights fit"
    elif left <= 0:
        fits = "only the weights fit"
    elif growing > left:
        fits = f"values, inputs and outputs of {left / growing:.0%} of this size would fit beside the weights"
    else:
        fits = "it fits, but not in one piece: other programs hold memory in between"
    largest, nbytes = arrangement.largest
    return DeviceMemoryError(
        f"the GPU's memory is too small: {_size(needed)} are needed, {_size(free)} are free",
        where=name,
        expected=f"{_size(arrangement.weights)} for weights, {_size(growing)} for values, inputs and outputs, and "
        f"{_size(workspace)} for libraries; the largest tensor is {largest!r} with {_size(nbytes)}",
        remedy=f"use smaller inputs, or free memory: {fits}",
    )


def driver_fault(driver: int, runtimes: Mapping[str, int]) -> str | None:
    """Why a driver is too old for libraries, by the versions of CUDA they are made for, as CUDA numbers them; or None.

    A driver runs code made for any minor version of its own major one.

    >>> driver_fault(13000, {"cupy": 13020}) is None
    True
    >>> driver_fault(12080, {"cupy": 13020})
    'the driver speaks CUDA 12.8, but cupy is made for CUDA 13.2'
    """
    newer = {name: version for name, version in runtimes.items() if version // 1000 > driver // 1000}
    if not newer:
        return None
    made_for = ", ".join(f"{name} is made for CUDA {_dotted(version)}" for name, version in newer.items())
    return f"the driver speaks CUDA {_dotted(driver)}, but {made_for}"


def old_driver(fault: str) -> BackendError:
    """The error for a driver that is too old."""
    return BackendError(
        fault,
        expected="a driver at least as new as the libraries",
        remedy="update the NVIDIA driver, or install libraries for its version of CUDA",
    )


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.1f} MiB"
