"""The most that a launch may ask of a GPU, by its architecture."""

from __future__ import annotations

import pytest

from eqsat.errors import BackendError
from eqsat.runtime.cuda.compiler.limits import LaunchLimits
from eqsat.runtime.kernels.source import KernelSource


def launch(threads: int = 32, shared: int = 0, grid: tuple[int, int, int] = (1, 1, 1)) -> KernelSource:
    return KernelSource("k", "", (), grid, (threads, 1, 1), shared)


@pytest.mark.parametrize(("arch", "kib"), [("sm_80", 163), ("sm_86", 99), ("sm_90a", 227), ("sm_120", 99)])
def test_shared_memory_of_a_block_goes_by_the_architecture(arch, kib):
    limits = LaunchLimits.of(arch)
    limits.check(launch(shared=kib << 10))
    with pytest.raises(BackendError, match=f"{(kib << 10) + 1} bytes of shared memory"):
        limits.check(launch(shared=kib << 10), static=1)


def test_of_an_architecture_that_is_not_known_the_least_is_taken():
    assert LaunchLimits.of("sm_999").shared == LaunchLimits.of("sm_75").shared == 64 << 10


def test_registers_are_counted_in_portions_of_whole_warps():
    """Of 33 threads two warps take registers, 256 at a time."""
    limits = LaunchLimits.of("sm_90")
    limits.check(launch(1024), registers=64)
    with pytest.raises(BackendError, match="65 registers in each of 32 warps: 73728"):
        limits.check(launch(1024), registers=65)
    few = LaunchLimits(shared=0, registers=2 * 33 * 32)
    with pytest.raises(BackendError, match="33 registers in each of 2 warps: 2560"):
        few.check(launch(33), registers=33)


@pytest.mark.parametrize("grid", [(2**31, 1, 1), (1, 65_536, 1), (1, 1, 65_536)])
def test_a_grid_has_a_largest_extent_along_each_axis(grid):
    with pytest.raises(BackendError, match="a grid of"):
        LaunchLimits.of("sm_90").check(launch(grid=grid))
