"""Functions of comprehensions as kernels in CUDA C++."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from eqsat.errors import BackendError
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.launches import FreeKernel
from eqsat.runtime.kernels.nests.printing.cuda_printer import cuda_kernel, free_cuda_kernel
from eqsat.runtime.kernels.nests.scheduling.gpu_schedule import gpu_scheduled
from eqsat.runtime.kernels.nests.scheduling.gpu_sizes import with_constants
from eqsat.runtime.kernels.nests.tree import GpuKernel, Named
from eqsat.runtime.kernels.source import KernelSource

_Made = TypeVar("_Made", KernelSource, FreeKernel)


def free_cuda_kernels(computation: Computation, options: GpuMapping) -> tuple[FreeKernel, ...]:
    """The kernels of a computation with free sizes, as `cuda_kernels` makes those of one without.

    One compiled kernel serves every value: blocks are counted where it is launched.
    """
    constants: tuple[Named, ...] = ()
    if not options.is_naive:
        computation, constants = with_constants(computation)

    def make(computation: Computation, kernel: GpuKernel, number: int) -> FreeKernel:
        return free_cuda_kernel(computation, constants, kernel, number)

    return _made(computation, options, make)


def cuda_kernels(computation: Computation, options: GpuMapping) -> tuple[KernelSource, ...]:
    """The kernels of a computation, launched in order; BackendError where they have no form for a GPU.

    Arguments are buffers of the computation by name; the caller allocates those that are temporaries, and one i32 that
    is 0, `failed`, which a kernel sets to 1 where a subscript passes its bounds or an integer is divided by 0.
    """
    return _made(computation, options, cuda_kernel)


def _made(
    computation: Computation, options: GpuMapping, make: Callable[[Computation, GpuKernel, int], _Made]
) -> tuple[_Made, ...]:
    try:
        kernels = gpu_scheduled(computation, options)
        return tuple(make(computation, kernel, number) for number, kernel in enumerate(kernels))
    except UnsupportedError as error:
        raise BackendError(
            f"{computation.name} has no kernels: {error}",
            where=computation.name,
            expected="statements of fewer than 2147483648 elements and terms",
            remedy="call the function itself, which NumPy computes",
        ) from None
