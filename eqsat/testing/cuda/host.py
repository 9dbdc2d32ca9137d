"""Programs run on the CPU as a GPU would run them: to prove memory, launches and kernels without one."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.terms.constant import Array, narrowed
from eqsat.runtime.cuda.libraries.calls import Call
from eqsat.runtime.cuda.libraries.emulated import compute
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import BUFFER_ALIGNMENT, View
from eqsat.runtime.programs.arena import Arrangement
from eqsat.runtime.programs.arrays import Bytes, aligned, strided
from eqsat.runtime.programs.fallback import run_fallback
from eqsat.runtime.programs.launches import Fallback, Launch, kernel_failure
from eqsat.runtime.programs.profile import Span, moved_bytes
from eqsat.runtime.programs.program import KernelProgram
from eqsat.testing.cuda.emulator import build, emulate

#: Content of memory before a run: NaN in every float, so that reads of what nothing has written show.
POISON = 0xFF
#: Bytes before and after the memory of every buffer, to show writes beyond it.
_GUARD = 0xA5
_GUARD_BYTES = BUFFER_ALIGNMENT
_FLOATS = Floats()


class HostMachine:
    """A program on host memory: values in one arena, generated kernels emulated, library calls computed in NumPy.

    Before every run the arena and the outputs are poisoned. After each launch the bytes round the buffers it works on,
    and after each run those round all, must be as they were: BackendError names the launch that wrote there.
    """

    def __init__(self, program: KernelProgram, arrangement: Arrangement) -> None:
        self.program = program
        self._guarded: dict[str, Bytes] = {"": _guarded(arrangement.arena)}
        self._memory: dict[str, Bytes] = {}
        arena = _inner(self._guarded[""])
        for name, buffer in program.buffers.items():
            if buffer.role == "value":
                begin = arrangement.offsets[name]
                self._memory[name] = arena[begin : begin + buffer.nbytes]
            else:
                self._guarded[name] = _guarded(buffer.nbytes)
                self._memory[name] = _inner(self._guarded[name])
        if program.flag is not None:
            self.array(program.flag)[...] = 0
        for constant, view in program.weights.values():
            self.array(view)[...] = narrowed(constant.array, view.dtype)
        build([launch.work for launch in program.launches if isinstance(launch.work, KernelSource)])

    def array(self, view: View) -> Array:
        """The elements of a view, where they lie."""
        return strided(self._memory[view.buffer], view)

    @property
    def inputs(self) -> dict[str, Array]:
        """The arrays that inputs are read from, by name."""
        return {name: self.array(view) for name, view in self.program.inputs.items()}

    @property
    def outputs(self) -> dict[str, Array]:
        """The arrays that outputs are written to, by name."""
        return {name: self.array(view) for name, view in self.program.outputs.items()}

    def put(self, name: str, array: Any) -> None:
        """Copy an input in."""
        self.array(self.program.inputs[name])[...] = array

    def get(self, name: str, *, on_device: bool = False) -> Array:
        """A copy of an output; there is no device here that it could stay on."""
        return np.array(self.array(self.program.outputs[name]))

    def launch(self) -> None:
        """Run every launch in order."""
        self.timed()

    def wait(self) -> None:
        """Nothing is left running here."""

    def join(self) -> None:
        """Nothing is left running here."""

    def timed(self) -> list[Span]:
        """Run every launch in order; return the seconds of each."""
        return self.launch_in(range(len(self.program.launches)))

    def launch_in(self, order: Iterable[int]) -> list[Span]:
        """Run the launches, by index, in another order, in which each must follow those that it reads from."""
        for name, buffer in self.program.buffers.items():
            if buffer.role == "output":
                self._memory[name][:] = POISON
        _inner(self._guarded[""])[:] = POISON
        spans = []
        begin = time.perf_counter()
        for index in order:
            launch = self.program.launches[index]
            start = time.perf_counter()
            self._run(launch)
            end = time.perf_counter()
            spans.append(
                Span(launch.label, launch.kind, start - begin, end - start, moved_bytes(launch), launch.values)
            )
            self._check({view.buffer for view in (*launch.reads, *launch.writes)}, launch.label)
        self._check(self._guarded.keys(), "a launch")
        self._check_flag()
        return spans

    def _check_flag(self) -> None:
        """Raise the error of a run in which a kernel failed, and set the flag to 0 again."""
        if self.program.flag is None:
            return
        flag = self.array(self.program.flag)
        failed = bool(flag.any())
        flag[...] = 0
        if failed:
            raise kernel_failure(self.program.name)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The outputs by name for inputs by name."""
        for name in self.program.inputs:
            self.put(name, inputs[name])
        self.launch()
        return {name: self.get(name) for name in self.program.outputs}

    def close(self) -> None:
        """Give the memory back."""
        self._guarded.clear()
        self._memory.clear()

    def _run(self, launch: Launch) -> None:
        if isinstance(launch.work, KernelSource):
            emulate(launch.work, [self._address(view) for view in (*launch.reads, *launch.writes)])
        elif isinstance(launch.work, Fallback):
            self._fall_back(launch, launch.work)
        elif isinstance(launch.work, Call):
            compute(launch.work, self.array)
        else:
            raise AssertionError(f"no work for a GPU: {launch.work}")

    def _address(self, view: View) -> int:
        return int(self._memory[view.buffer].ctypes.data) + view.offset * view.dtype.itemsize

    def _fall_back(self, launch: Launch, work: Fallback) -> None:
        results = run_fallback(work, launch, self.array, _FLOATS)
        for view, array in zip(launch.writes, results, strict=True):
            self.array(view)[...] = array

    def _check(self, names: Any, label: str) -> None:
        for name in names:
            # The buffers of values have the guards of the arena.
            memory = self._guarded.get(name, self._guarded[""])
            if (memory[:_GUARD_BYTES] != _GUARD).any() or (memory[-_GUARD_BYTES:] != _GUARD).any():
                raise BackendError(
                    f"{label} wrote beyond {repr(name) if name in self._guarded and name else 'the arena'}",
                    where=self.program.name,
                    expected="kernels that write their results alone",
                )


def _guarded(nbytes: int) -> Bytes:
    """Memory with guards round it."""
    memory = aligned(nbytes + 2 * _GUARD_BYTES)
    memory[:] = _GUARD
    return memory


def _inner(memory: Bytes) -> Bytes:
    return memory[_GUARD_BYTES:-_GUARD_BYTES]
