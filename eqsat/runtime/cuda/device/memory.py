"""The memory of a program on a GPU: taken once, in a block for each role of buffers, weights shared by programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from eqsat.language.terms.constant import Constant, narrowed
from eqsat.runtime.cuda.device.toolkit import Toolkit
from eqsat.runtime.cuda.libraries.library import WORKSPACE_BYTES
from eqsat.runtime.cuda.shortage import shortage
from eqsat.runtime.kernels.view import View, padded
from eqsat.runtime.programs.arena import Arrangement
from eqsat.runtime.programs.arrays import Bytes, strided
from eqsat.runtime.programs.program import KernelProgram

#: cudaErrorMemoryAllocation.
_OUT_OF_MEMORY = 2


def places(program: KernelProgram, arrangement: Arrangement) -> dict[str, tuple[str, int]]:
    """The block each buffer lies in, by role, and its place there: values in the arena, the rest one after another."""
    ends: dict[str, int] = {}
    placed = {}
    for name, buffer in program.buffers.items():
        if buffer.role == "value":
            placed[name] = ("value", arrangement.offsets[name])
            continue
        begin = ends.get(buffer.role, 0)
        placed[name] = (buffer.role, begin)
        ends[buffer.role] = begin + padded(buffer.nbytes)
    return placed


class Weight:
    """A constant in memory of its own, in one layout: as long as any program reads it, and for all that do."""

    def __init__(self, constant: Constant, memory: Any) -> None:
        self.constant, self.memory = constant, memory


class DeviceMemory:
    """Blocks of memory on a GPU with the views of a program in them; DeviceMemoryError where they do not fit.

    Programs for several sizes of one model share its weights.

    Copies from and to the host go through pinned memory, on the stream that is named.
    """

    def __init__(self, program: KernelProgram, arrangement: Arrangement, toolkit: Toolkit) -> None:
        self.program, self.arrangement, self.toolkit = program, arrangement, toolkit
        self._cupy, self._runtime = toolkit.cupy, toolkit.runtime
        self._places = places(program, arrangement)
        self._blocks: dict[str, Any] = {}
        self._pinned: dict[str, Any] = {}
        self._weights: dict[str, Weight] = {}
        try:
            self._fill()
        except BaseException:
            self.close()
            raise

    def _fill(self) -> None:
        sizes = {"value": self.arrangement.arena}
        for name, buffer in self.program.buffers.items():
            role, begin = self._places[name]
            if role != "weight":
                sizes[role] = max(sizes.get(role, 0), begin + buffer.nbytes)
        for role, nbytes in sizes.items():
            address = self.take(role, nbytes)
            if nbytes:
                # Zeros are indices within any bounds, and numbers that no kernel chokes on: first runs find them here.
                self._runtime.memset(address, 0, nbytes)
        for constant, view in self.program.weights.values():
            self._weights[view.buffer] = self._weight(constant, view)
        flags = () if self.program.flag is None else (self.program.flag,)
        for view in (*self.program.inputs.values(), *self.program.outputs.values(), *flags):
            nbytes = max(self.program.buffers[view.buffer].nbytes, 1)
            self._pinned.setdefault(view.buffer, self._cupy.cuda.alloc_pinned_memory(nbytes))
        # The streams of programs do not wait for the one that this was put on.
        self._runtime.deviceSynchronize()

    def _weight(self, constant: Constant, view: View) -> Weight:
        """A constant in the layout of a view, copied there unless another program has it there."""
        key = id(constant), replace(view, buffer="")
        weight: Weight | None = self.toolkit.weights.get(key)
        if weight is None:
            data = np.zeros(self.program.buffers[view.buffer].nbytes, np.uint8)
            strided(data, view)[...] = narrowed(constant.array, view.dtype)
            weight = self.toolkit.weights[key] = Weight(constant, self._memory(data.nbytes) if data.nbytes else None)
            if data.nbytes:
                kind = self._runtime.memcpyHostToDevice
                self._runtime.memcpy(int(weight.memory.ptr), data.ctypes.data, data.nbytes, kind)
        return weight

    def take(self, name: str, nbytes: int) -> int:
        """A block of memory, in place of an earlier one of the name, which goes with the rest; its address."""
        if not nbytes:
            return 0
        self._blocks.pop(name, None)
        self._blocks[name] = self._memory(nbytes)
        return int(self._blocks[name].ptr)

    def _memory(self, nbytes: int) -> Any:
        for attempt in range(2):
            try:
                return self._cupy.cuda.Memory(nbytes)
            except self._cupy.cuda.runtime.CUDARuntimeError as error:
                if error.status != _OUT_OF_MEMORY:
                    raise
                if attempt == 0:
                    self._cupy.get_default_memory_pool().free_all_blocks()
        free, _ = self._runtime.memGetInfo()
        taken = sum(block.size for block in self._blocks.values())
        taken += sum(weight.memory.size for weight in self._weights.values() if weight.memory is not None)
        raise shortage(self.program.name, self.arrangement, WORKSPACE_BYTES, int(free) + taken)

    def _block(self, buffer: str) -> tuple[Any, int]:
        """The memory a buffer lies in, None where it has no bytes, and its place there."""
        if buffer in self._weights:
            return self._weights[buffer].memory, 0
        role, offset = self._places[buffer]
        return self._blocks.get(role), offset

    def _base(self, buffer: str) -> int:
        block, offset = self._block(buffer)
        return 0 if block is None else int(block.ptr) + offset

    def address(self, view: View) -> int:
        """The address of the first element of a view."""
        return self._base(view.buffer) + view.offset * view.dtype.itemsize

    def array(self, view: View) -> Any:
        """The elements of a view, where they lie."""
        (block, offset), size = self._block(view.buffer), view.dtype.itemsize
        if block is None or not view.count:
            return self._cupy.empty(view.shape, view.dtype.numpy)
        pointer = self._cupy.cuda.MemoryPointer(block, offset + view.offset * size)
        return self._cupy.ndarray(view.shape, view.dtype.numpy, pointer, tuple(s * size for s in view.strides))

    def upload(self, view: View, array: Any, stream: int) -> None:
        """Start copying an array of NumPy's to a view; the last copy from the same pinned memory must be done."""
        pinned = self._host(view)
        strided(pinned, view)[...] = array
        if pinned.nbytes:
            kind = self._runtime.memcpyHostToDevice
            self._runtime.memcpyAsync(self._base(view.buffer), pinned.ctypes.data, pinned.nbytes, kind, stream)

    def download(self, view: View, stream: Any) -> Any:
        """A view's elements as an array of NumPy's, once the earlier work of the stream is done."""
        pinned = self._host(view)
        if pinned.nbytes:
            kind = self._runtime.memcpyDeviceToHost
            self._runtime.memcpyAsync(pinned.ctypes.data, self._base(view.buffer), pinned.nbytes, kind, stream.ptr)
        stream.synchronize()
        return np.array(strided(pinned, view))

    def _host(self, view: View) -> Bytes:
        """The pinned bytes through which a buffer is copied."""
        return np.frombuffer(self._pinned[view.buffer], np.uint8, self.program.buffers[view.buffer].nbytes)

    def close(self) -> None:
        """Give the memory back; arrays over it keep it for as long as they live."""
        self._blocks.clear()
        self._weights.clear()
        self._pinned.clear()
