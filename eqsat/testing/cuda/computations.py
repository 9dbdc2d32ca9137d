"""Kernels of computations run on the processor, on arrays of NumPy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.terms import Array
from eqsat.runtime.kernels.nests.computation import Computation, KernelBuffer
from eqsat.runtime.kernels.nests.extents import value_at
from eqsat.runtime.kernels.nests.printing.cuda_printer import FAILED
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.programs.arrays import aligned
from eqsat.testing.cuda.emulator import emulate

#: Bytes round each buffer, which no kernel may write, and their value; results begin as that too.
_GUARD_BYTES, _GUARD = 256, 0xFF


def run_kernels(
    computation: Computation,
    kernels: Sequence[KernelSource],
    tensors: Mapping[str, Array],
    *,
    descending: bool = False,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> tuple[dict[str, Array], bool]:
    """The results by name, and whether a kernel failed; `tensors` are operands, and results that are updated.

    `sizes` are those that the computation leaves free, which the kernels are launched with. Memory that is not given
    begins as NaN; BackendError where a kernel writes beyond a buffer.
    """
    memory: dict[str, Array] = {}
    shapes: dict[str, list[int]] = {}
    for name, buffer in computation.buffers.items():
        shape = [value_at(extent, sizes) for extent in buffer.shape]
        shapes[name] = shape
        memory[name] = aligned(math.prod(shape) * buffer.dtype.itemsize + 2 * _GUARD_BYTES)
        memory[name][:] = _GUARD
        if name in tensors:
            _elements(memory[name], buffer, shape)[...] = tensors[name]
    failed = np.zeros(1, np.int32)
    for kernel in kernels:
        addresses = [
            int(failed.ctypes.data) if name == FAILED else int(memory[name].ctypes.data) + _GUARD_BYTES
            for name in kernel.arguments
        ]
        emulate(kernel, addresses, descending=descending)
        for name in kernel.arguments:
            if name != FAILED and _is_damaged(memory[name]):
                raise BackendError(f"{kernel.entry} wrote beyond {name}", where=computation.name)
    results = {
        name: _elements(memory[name], computation.buffers[name], shapes[name]).copy() for name in computation.results
    }
    return results, bool(failed[0])


def _elements(memory: Array, buffer: KernelBuffer, shape: Sequence[int]) -> Array:
    inner = memory[_GUARD_BYTES : _GUARD_BYTES + math.prod(shape) * buffer.dtype.itemsize]
    return inner.view(buffer.dtype.numpy).reshape(shape)


def _is_damaged(memory: Array) -> bool:
    return bool((memory[:_GUARD_BYTES] != _GUARD).any() or (memory[-_GUARD_BYTES:] != _GUARD).any())
