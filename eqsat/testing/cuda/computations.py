"""Kernels of computations run on the processor, on arrays of NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.terms import Array
from eqsat.runtime.kernels.nests.computation import Computation, KernelBuffer
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
) -> tuple[dict[str, Array], bool]:
    """The results by name, and whether a kernel failed; `tensors` are operands, and results that are updated.

    Memory that is not given begins as NaN; BackendError where a kernel writes beyond a buffer.
    """
    memory: dict[str, Array] = {}
    for name, buffer in computation.buffers.items():
        memory[name] = aligned(buffer.nbytes + 2 * _GUARD_BYTES)
        memory[name][:] = _GUARD
        if name in tensors:
            _elements(memory[name], buffer)[...] = tensors[name]
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
    results = {name: _elements(memory[name], computation.buffers[name]).copy() for name in computation.results}
    return results, bool(failed[0])


def _elements(memory: Array, buffer: KernelBuffer) -> Array:
    inner = memory[_GUARD_BYTES : _GUARD_BYTES + buffer.nbytes]
    return inner.view(buffer.dtype.numpy).reshape(buffer.shape)


def _is_damaged(memory: Array) -> bool:
    return bool((memory[:_GUARD_BYTES] != _GUARD).any() or (memory[-_GUARD_BYTES:] != _GUARD).any())
