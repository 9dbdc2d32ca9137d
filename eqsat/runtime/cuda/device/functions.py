"""Calls of comprehensions on the GPU that holds their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.comprehension.evaluation import evaluate
from eqsat.language.comprehension.extents.free import holds_at, with_free
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.pytorch import is_tensor
from eqsat.language.terms import DType
from eqsat.language.terms.dims import evaluate as value_of
from eqsat.runtime.cuda.backend import fault
from eqsat.runtime.cuda.comprehension_kernels import cuda_kernels, free_cuda_kernels
from eqsat.runtime.cuda.device.machine import KernelStep
from eqsat.runtime.cuda.device.toolkit import Toolkit
from eqsat.runtime.cuda.libraries.library import translated
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.nests.comprehensions import lowered
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.extents import value_at
from eqsat.runtime.kernels.nests.gpu_options import MOST_FREE, GpuMapping
from eqsat.runtime.kernels.nests.launches import FreeKernel
from eqsat.runtime.kernels.nests.printing.cuda_printer import FAILED
from eqsat.runtime.kernels.source import KernelSource

#: The device of DLPack that is memory of a GPU of NVIDIA's.
_CUDA = 2


@cache
def toolkit_of(number: int) -> Toolkit:
    """A GPU whose kernels call no library."""
    return Toolkit(number, {})


@cache
def can_launch() -> bool:
    """True where kernels can be launched here: CuPy finds a GPU, and a driver and compiler that fit."""
    return fault() is None


def gpu_of(values: Sequence[Any]) -> int | None:
    """The GPU that holds all arrays among arguments, numbers aside; None where there is none, or several."""
    devices = set()
    for value in values:
        if isinstance(value, bool | int | float | np.generic):
            continue
        device = value.__dlpack_device__() if hasattr(value, "__dlpack_device__") else (0, 0)
        devices.add((int(device[0]), int(device[1])))
    if len(devices) != 1:
        return None
    ((kind, number),) = devices
    return number if kind == _CUDA else None


@dataclass(frozen=True)
class DeviceKernels:
    """The kernels of a function for shapes, or for all values of its free sizes."""

    computation: Computation
    kernels: tuple[KernelSource | FreeKernel, ...]

    def at(self, sizes: Mapping[str, int]) -> list[KernelSource]:
        """The launches for values of the free sizes by their names in the kernels."""
        return [one if isinstance(one, KernelSource) else one.at(sizes) for one in self.kernels]


class DeviceFunction:
    """A function on GPUs: kernels are made and compiled once for the shapes of a call, or for all values of `free`."""

    def __init__(self, function: TensorFunction, free: Sequence[str] = ()) -> None:
        self.function, self.free = function, tuple(free)
        self._made: dict[Any, DeviceKernels | None] = {}

    def takes(self, values: Sequence[Any]) -> int | None:
        """The GPU that a call runs on; None where its arguments are not all there, or it has no kernels for one.

        CuPy has no bfloat16.
        """
        if DType.BFLOAT16 in self.function.types.values():
            return None
        number = gpu_of(values)
        return number if number is not None and can_launch() else None

    def call(self, number: int, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """The results of a call on a GPU, put on CuPy's current stream; None of a function without kernels for it.

        The errors are those of the function; a call whose kernels can fail is waited for.
        """
        toolkit = toolkit_of(number)
        with toolkit.device():
            inferred, tensors = self.function.bind(arguments, named, partial(self._argument, toolkit))
            kernels = self._kernels(inferred, frozenset(one for one in self.function.scope.updated if one in tensors))
            if kernels is None:
                return None
            with translated("the GPU fails at a call", where=self.function.name):
                made = self._launched(toolkit, kernels, inferred, tensors)
        if any(map(is_tensor, (*arguments, *named.values()))):
            from eqsat.language.pytorch.tensors import tensor_of

            made = tuple(map(tensor_of, made))
        return made[0] if len(made) == 1 else made

    def _argument(self, toolkit: Toolkit, name: str, dtype: DType, value: Any) -> Any:
        if isinstance(value, bool | int | float | np.generic):
            return self.function.argument(name, dtype, value)
        array = toolkit.adopt(value.detach() if is_tensor(value) else value)
        return self.function.checked(name, dtype, array)

    def _launched(
        self, toolkit: Toolkit, kernels: DeviceKernels, inferred: Inferred, tensors: Mapping[str, Any]
    ) -> tuple[Any, ...]:
        function, cupy, computation = self.function, toolkit.cupy, kernels.computation
        known = [inferred.known[size] for size in function.scope.sizes if size in self.free]
        sizes = dict(zip(computation.sizes, (value_of(dim, {}) for dim in known), strict=False))
        held: dict[str, Any] = {}
        parameters = [one.name for one in function.scope.function.parameters]
        for name, buffer in zip(parameters, computation.operands, strict=True):
            held[buffer] = cupy.ascontiguousarray(cupy.asarray(tensors[name]))
        for name, buffer in zip(function.results, computation.results, strict=True):
            if name in tensors:
                held[buffer] = cupy.array(tensors[name], order="C")
        for name, one in computation.buffers.items():
            if name not in held:
                held[name] = cupy.empty(tuple(value_at(extent, sizes) for extent in one.shape), one.dtype.numpy)
        sources = kernels.at(sizes)
        if any(FAILED in source.arguments for source in sources):
            held[FAILED] = cupy.zeros((1,), "int32")
        stream = cupy.cuda.get_current_stream()
        toolkit.prepare(sources)
        for source in sources:
            if 0 not in source.grid:
                addresses = [int(held[name].data.ptr) for name in source.arguments]
                KernelStep(toolkit, source, addresses).launch(stream.ptr, 0)
        if FAILED in held and cupy.asnumpy(held[FAILED]).any():
            here = {name: cupy.asnumpy(array) for name, array in tensors.items()}
            evaluate(function.scope, function.types, inferred, here)
            raise BackendError("a kernel that fails where its comprehension does not", where=function.name)
        return tuple(held[name] for name in computation.results)

    def _kernels(self, inferred: Inferred, given: frozenset[str]) -> DeviceKernels | None:
        """The kernels for a call, if there are some: those of all values of free sizes, unless an extent is 0."""
        shapes = inferred
        if self.free:
            opened = with_free(self.function, inferred, self.free)
            shapes = opened if holds_at(opened, inferred, self.free, MOST_FREE) else inferred
        parameters = tuple(shapes.shapes[one.name] for one in self.function.scope.function.parameters)
        key = (parameters, tuple(shapes.known.items()), given)
        if key not in self._made:
            self._made[key] = _made(self.function, shapes, given)
        return self._made[key]


def _made(function: TensorFunction, shapes: Inferred, given: frozenset[str]) -> DeviceKernels | None:
    try:
        computation = lowered(function, shapes, given)
        make = free_cuda_kernels if computation.sizes else cuda_kernels
        return DeviceKernels(computation, make(computation, GpuMapping()))
    except (UnsupportedError, BackendError):
        return None
