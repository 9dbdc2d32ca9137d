"""Functions of comprehensions as kernels in CUDA C++."""

from __future__ import annotations

from eqsat.errors import BackendError
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.printing.cuda_printer import cuda_kernel
from eqsat.runtime.kernels.nests.scheduling.gpu_schedule import gpu_scheduled
from eqsat.runtime.kernels.source import KernelSource


def cuda_kernels(computation: Computation, options: GpuMapping) -> tuple[KernelSource, ...]:
    """The kernels of a computation, launched in order; BackendError where they have no form for a GPU.

    Arguments are buffers of the computation by name; the caller allocates those that are temporaries, and one i32 that
    is 0, `failed`, which a kernel sets to 1 where a subscript passes its bounds or an integer is divided by 0.
    """
    try:
        kernels = gpu_scheduled(computation, options)
        return tuple(cuda_kernel(computation, kernel, number) for number, kernel in enumerate(kernels))
    except UnsupportedError as error:
        raise BackendError(
            f"{computation.name} has no kernels: {error}",
            where=computation.name,
            expected="statements of fewer than 2147483648 elements and terms",
            remedy="call the function itself, which NumPy computes",
        ) from None
