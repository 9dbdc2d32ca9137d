"""Programs on the processor: memory taken once, the library loaded, and calls that run it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.terms.constant import Array, narrowed
from eqsat.runtime.c.blas import blas_pointers, blas_threads
from eqsat.runtime.c.library import Entry, libraries
from eqsat.runtime.c.program.kernels import ChoiceMaker
from eqsat.runtime.c.program.library import ProgramText, call_name, own_buffers, program_text
from eqsat.runtime.c.toolchain import loop_threads
from eqsat.runtime.kernels.view import View
from eqsat.runtime.onnxruntime.bound import BoundSession
from eqsat.runtime.programs.arena import Arrangement
from eqsat.runtime.programs.arrays import aligned_parts, strided
from eqsat.runtime.programs.fallback import run_fallback
from eqsat.runtime.programs.launches import Fallback, Launch, SessionRegion, kernel_failure
from eqsat.runtime.programs.profile import Span, moved_bytes
from eqsat.runtime.programs.program import KernelProgram

#: Functions that are called once stay functions: what is compiled together takes longer, and runs no faster.
_FLAGS = ("-fno-inline-functions-called-once",)

#: A call of the library, or a launch that is none: an operator run by its reference, or a session.
Step: TypeAlias = Entry | Launch | BoundSession


class CMachine:
    """A program as a shared library, and the memory that it runs in. BackendError where it does not compile.

    Loops and products take at most `threads` threads, or one for each processor. They are threads of OpenMP, each of
    which calls BLAS for a part, so that no two pools of threads wait for the same processors; without OpenMP they are
    those of BLAS.
    """

    def __init__(
        self, program: KernelProgram, arrangement: Arrangement, choose: ChoiceMaker, threads: int | None = None
    ) -> None:
        self.program = program
        self._threads = threads
        self._blas_threads = 1 if loop_threads(threads) > 1 else threads
        self.library: ProgramText = program_text(program, arrangement.offsets, choose)
        names = list(own_buffers(program))
        sizes = [*(program.buffers[name].nbytes for name in names), *self.library.prepared]
        workspace, arena, *rest = aligned_parts([self.library.workspace, arrangement.arena, *sizes])
        own, prepared = dict(zip(names, rest, strict=False)), rest[len(names) :]
        within = {
            name: arena[offset : offset + program.buffers[name].nbytes] for name, offset in arrangement.offsets.items()
        }
        self._memory = {**own, **within}
        for constant, view in program.weights.values():
            self.array(view)[...] = narrowed(constant.array.reshape(view.shape), view.dtype)
        self._kept = [workspace, arena, *own.values(), *prepared]
        self._pointers = (ctypes.c_void_p * len(self._kept))(*(one.ctypes.data for one in self._kept))
        self._flags = (*_FLAGS, *(("-fopenmp",) if self.library.threads > 1 else ()))
        self._sessions = {
            index: self.session_of(launch)
            for index, launch in enumerate(program.launches)
            if isinstance(launch.work, SessionRegion)
        }
        self._steps = [self._entry(part) if isinstance(part, str) else self._alone(part) for part in self.library.parts]
        for called in self.library.blas:
            self._entry(f"set_{called}")(blas_pointers(called))
        for name in self.library.preparations:
            self._check(self._entry(name)(self._pointers))
        self.inputs: Mapping[str, Array] = {name: self.array(view) for name, view in program.inputs.items()}
        self.outputs: Mapping[str, Array] = {name: self.array(view) for name, view in program.outputs.items()}
        self._floats = Floats()

    def _entry(self, name: str) -> Entry:
        return libraries().entry(self.library.text, name, self._flags)

    @property
    def calls(self) -> int:
        """The calls from Python that one run takes: one where every operator has a kernel."""
        return len(self._steps)

    @property
    def sessions(self) -> int:
        """The sessions of ONNX Runtime that one run calls."""
        return len(self._sessions)

    def array(self, view: View) -> Array:
        """The elements of a view."""
        return strided(self._memory[view.buffer], view)

    def put(self, name: str, array: Any) -> None:
        """Copy an input in."""
        self.inputs[name][...] = array

    def get(self, name: str, *, on_device: bool = False) -> Array:
        """A copy of an output."""
        return np.array(self.outputs[name])

    def launch(self) -> None:
        """Run all kernels; BackendError where one fails, for no one can say what it made."""
        if not self.library.blas:
            self._run()
            return
        with self.blas_held():
            self._run()

    def launch_each(self) -> None:
        """Run all kernels by a call from Python for each of them, to see what one call for all is worth."""
        with self.blas_held():
            for _, call in self._calls:
                self._start(call)

    def window(self, first: int, end: int) -> Callable[[], None]:
        """A call that runs the launches from one index up to another, one by one, on what memory holds."""
        calls = [call for _, call in self._calls[first:end]]

        def run() -> None:
            for call in calls:
                self._start(call)

        return run

    def session_of(self, launch: Launch) -> BoundSession:
        """The session of a launch of ONNX Runtime's, on the memory of this program."""
        assert isinstance(launch.work, SessionRegion)
        reads, writes = ([self.array(view) for view in views] for views in (launch.reads, launch.writes))
        return BoundSession(launch.work.graph, reads, writes, self._threads)

    def blas_held(self) -> AbstractContextManager[None]:
        """A context in which BLAS takes the threads that it is to take in this program."""
        return blas_threads(self._blas_threads)

    @cached_property
    def _calls(self) -> list[tuple[Launch, Step]]:
        """Each launch, and the step that runs it alone."""
        return [
            (launch, self._entry(call_name(index)) if launch.kind == "generated" else self._alone(index))
            for index, launch in enumerate(self.program.launches)
        ]

    def _alone(self, index: int) -> Launch | BoundSession:
        """The step of a launch that has no kernel."""
        return self._sessions.get(index, self.program.launches[index])

    def _run(self) -> None:
        for step in self._steps:
            self._start(step)

    def _start(self, step: Step) -> None:
        if isinstance(step, Launch):
            self._fall_back(step)
        elif isinstance(step, BoundSession):
            step.run()
        else:
            self._check(step(self._pointers))

    def _check(self, failed: int) -> None:
        if failed:
            raise kernel_failure(self.program.name)

    def _fall_back(self, launch: Launch) -> None:
        assert isinstance(launch.work, Fallback)
        arrays = run_fallback(launch.work, launch, self.array, self._floats)
        for view, one in zip(launch.writes, arrays, strict=True):
            self.array(view)[...] = one

    def wait(self) -> None:
        """Return at once: a run has ended when its call returns."""

    def join(self) -> None:
        """Return at once: a run has ended when its call returns."""

    def timed(self) -> list[Span]:
        """Run every launch by itself; return the seconds of each."""
        with self.blas_held():
            return self._spans()

    def _spans(self) -> list[Span]:
        spans, first = [], time.perf_counter()
        for launch, call in self._calls:
            begin = time.perf_counter()
            self._start(call)
            end = time.perf_counter()
            moved = moved_bytes(launch)
            spans.append(Span(launch.label, launch.kind, begin - first, end - begin, moved, launch.values))
        return spans

    def close(self) -> None:
        """Give the memory back."""
        self._memory = {}
        self._kept, self._steps, self._sessions = [], [], {}
        self.__dict__.pop("_calls", None)
