"""Programs on a GPU: memory taken once, kernels loaded, and the whole captured in CUDA graphs."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.runtime.cuda.device.calls import CallSteps, Choice, PreparedLaunch, Steps
from eqsat.runtime.cuda.device.memory import DeviceMemory
from eqsat.runtime.cuda.device.toolkit import Toolkit
from eqsat.runtime.cuda.libraries.calls import Call
from eqsat.runtime.cuda.libraries.library import PreparedCall, translated
from eqsat.runtime.cuda.libraries.substitute import source_of
from eqsat.runtime.cuda.libraries.tuning import GENERATED, tried
from eqsat.runtime.cuda.program.fallback import DeviceFallback
from eqsat.runtime.cuda.program.streams import Placed, dependencies, enqueue, placed, quickest, segments, width
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arena import Arrangement
from eqsat.runtime.programs.launches import Fallback, Launch, kernel_failure
from eqsat.runtime.programs.profile import Span, moved_bytes
from eqsat.runtime.programs.program import KernelProgram

#: Numbers of streams that are tried where launches need not wait for each other.
STREAM_COUNTS = (1, 2, 4)
#: Replays by which numbers of streams are compared.
_REPLAYS = 20
#: For how long the GPU waits before launches that are timed one by one, so that all are queued by then: in seconds.
_QUEUEING = 2e-5
_WAIT = """extern "C" __global__ void hold() {{
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < {nanoseconds}ull);
}}
"""

_RUN = translated("the GPU fails at a run")


def elapsed(cuda: Any, run: Callable[[], object], stream: Any) -> float:
    """The seconds by the GPU's clock that the work takes which `run` puts on a stream."""
    begin, end = cuda.Event(), cuda.Event()
    begin.record(stream)
    run()
    end.record(stream)
    end.synchronize()
    return float(cuda.get_elapsed_time(begin, end)) * 1e-3


class KernelStep:
    """A generated kernel with its arguments in place."""

    def __init__(self, toolkit: Toolkit, source: KernelSource, addresses: Sequence[int]) -> None:
        self._launch = toolkit.driver.launchKernel
        self._function = toolkit.function(source)
        self._extents = (*source.grid, *source.block, source.shared)
        values = (*addresses, *source.numbers)
        self._values = (ctypes.c_void_p * max(len(values), 1))(*values)
        # The driver takes the address of each argument's value: of an int, that of its low bytes.
        size = ctypes.sizeof(ctypes.c_void_p)
        first = ctypes.addressof(self._values)
        self._arguments = (ctypes.c_void_p * max(len(values), 1))(*(first + i * size for i in range(len(values))))

    def launch(self, stream: int, workspace: int) -> None:
        """Put the kernel on a stream."""
        self._launch(self._function, *self._extents, stream, ctypes.addressof(self._arguments), 0)


class FallbackStep:
    """An operator run by its reference: it takes memory and may wait for the GPU, so that no graph can hold it."""

    def __init__(self, machine: GpuMachine, launch: Launch, work: Fallback) -> None:
        self._machine, self._launch, self._work = machine, launch, work

    def launch(self, stream: int, workspace: int) -> None:
        """Run the operator on the machine's first stream, which is the only one that such launches are put on."""
        machine = self._machine
        with machine.streams[0]:
            machine.fallback.run(self._work, self._launch, machine.memory.array)


class GpuMachine:
    """A program on one GPU.

    All memory is taken, every kernel loaded and every plan built here; a run then replays captured graphs and allocates
    nothing, fallbacks aside. `choose` names the library plan of each call. BackendError where a kernel does not
    compile; DeviceMemoryError where memory is short. Memory taken by then is given back.
    """

    def __init__(
        self, program: KernelProgram, arrangement: Arrangement, toolkit: Toolkit, choose: Choice = lambda call: None
    ) -> None:
        self.program, self.toolkit = program, toolkit
        self._choose = choose
        self._cupy = toolkit.cupy
        self.streams: list[Any] = []
        self._steps: list[PreparedLaunch] = []
        self._replayed: list[Any] = []
        self._workspace, self._workspaces = 0, list[int]()
        self.calls = CallSteps(
            toolkit.libraries, toolkit.missing, choose, self.address, self._try_out, self._kernel_over
        )
        with toolkit.device(), translated("the GPU cannot make the program ready", where=program.name):
            self.memory = DeviceMemory(program, arrangement, toolkit)
            try:
                self._set_up(arrangement)
            except BaseException:
                self.close()
                raise

    def _set_up(self, arrangement: Arrangement) -> None:
        cupy, program, memory = self._cupy, self.program, self.memory
        self.fallback = DeviceFallback(cupy, self.toolkit.special, cupy.asnumpy)
        self.inputs = {name: memory.array(view) for name, view in program.inputs.items()}
        self.outputs = {name: memory.array(view) for name, view in program.outputs.items()}
        self._mark = cupy.cuda.Event(disable_timing=True)
        self.toolkit.prepare(self._sources())
        self._more_streams(1)
        self._steps = [self._step(launch) for launch in program.launches]
        for step, launch in zip(self._steps, program.launches, strict=True):
            with translated("the first launch fails", where=launch.label):
                step.launch(self.streams[0].ptr, self._workspaces[0])  # the set-up of first launches, before capture
        self.wait()
        self._capture(dependencies(program, arrangement))
        self._failed()  # on what lay in memory by then

    def _sources(self) -> Iterator[KernelSource]:
        """The kernels that are known to be run, whatever libraries refuse."""
        for launch in self.program.launches:
            work = launch.work
            if isinstance(work, KernelSource):
                yield work
            elif isinstance(work, Call) and tried(work, self._choose(work))[0] == GENERATED:
                substitute = source_of(work)
                if substitute is not None:
                    yield substitute[0]

    def address(self, view: View) -> int:
        """The address of the first element of a view."""
        return self.memory.address(view)

    def _step(self, launch: Launch) -> PreparedLaunch:
        if isinstance(launch.work, KernelSource):
            with translated("the kernel cannot be loaded", where=launch.label):
                return self._kernel_over(launch.work, (*launch.reads, *launch.writes))
        if isinstance(launch.work, Call):
            return self.calls.step(launch.work, launch.label)
        assert isinstance(launch.work, Fallback)
        return FallbackStep(self, launch, launch.work)

    def _kernel_over(self, source: KernelSource, views: Sequence[View]) -> PreparedLaunch:
        return self._kernel(source, [self.address(view) for view in views])

    def _kernel(self, source: KernelSource, addresses: Sequence[int]) -> PreparedLaunch:
        return Steps() if 0 in source.grid else KernelStep(self.toolkit, source, addresses)

    def _try_out(self, call: PreparedCall) -> None:
        """Launch a library's call once by itself and once captured, and wait: whatever it raises, it raises here."""
        stream = self.streams[0]
        if call.workspace > self._workspace:
            self._workspace = call.workspace
            self._workspaces[0] = self.memory.take("workspace 0", self._workspace)
        call.launch(stream.ptr, self._workspaces[0])
        stream.synchronize()
        self._recorded(partial(call.launch, stream.ptr, self._workspaces[0])).launch(stream)
        stream.synchronize()

    def _more_streams(self, stream_count: int) -> None:
        while len(self.streams) < stream_count:
            self._workspaces.append(self.memory.take(f"workspace {len(self.streams)}", self._workspace))
            self.streams.append(self._cupy.cuda.Stream(non_blocking=True))

    def _capture(self, before: Sequence[frozenset[int]]) -> None:
        """Capture the launches on as many streams as are measured to be quickest."""
        most = width(before)
        captured: dict[int, list[Any]] = {}
        seconds: dict[int, float] = {}
        for stream_count in STREAM_COUNTS:
            if stream_count > 1 and stream_count > most:
                break
            self._more_streams(stream_count)
            captured[stream_count] = self._captured(placed(before, stream_count))
            seconds[stream_count] = self._time(captured[stream_count]) if most > 1 else 0.0
        self.stream_count = quickest(seconds)
        self._replayed = captured[self.stream_count]

    def _captured(self, launches: Sequence[Placed]) -> list[Any]:
        """Graphs of the launches between those that no graph can hold, and those as they are."""
        graphs: list[Any] = []
        for inside, indices in segments([not isinstance(step, FallbackStep) for step in self._steps]):
            if not inside:
                graphs.append(self._steps[indices.start])
                continue
            graphs.append(self._recorded(partial(self._enqueue, [launches[i] for i in indices])))
        return graphs

    def _recorded(self, work: Callable[[], None]) -> Any:
        """A graph of the work put on the first stream, and on those that wait for it."""
        stream = self.streams[0]
        stream.begin_capture()
        try:
            work()
        except BaseException:
            with self._quietly():
                stream.end_capture()
            raise
        graph = stream.end_capture()
        graph.upload(stream)
        return graph

    def _enqueue(self, launches: Sequence[Placed]) -> None:
        workspaces = {stream.ptr: w for stream, w in zip(self.streams, self._workspaces, strict=True)}

        def start(index: int, stream: Any) -> None:
            self._steps[index].launch(stream.ptr, workspaces[stream.ptr])

        enqueue(launches, start, self.streams, lambda: self._cupy.cuda.Event(disable_timing=True))

    def _time(self, graphs: Sequence[Any]) -> float:
        """The median time of a run by these graphs, in seconds."""
        times = []
        for _ in range(_REPLAYS):
            times.append(elapsed(self._cupy.cuda, lambda: self._replay(graphs), self.streams[0]))
        return float(np.median(times))

    def _replay(self, graphs: Sequence[Any]) -> None:
        stream = self.streams[0]
        for graph in graphs:
            if isinstance(graph, FallbackStep):
                graph.launch(stream.ptr, self._workspaces[0])
            else:
                graph.launch(stream)

    @_RUN
    def put(self, name: str, array: Any) -> None:
        """Copy an input in, from the host, or within the GPU once the caller's stream is done with it."""
        with self.toolkit.device():
            if isinstance(array, self._cupy.ndarray):
                self._after(self._cupy.cuda.get_current_stream(), self.streams[0])
                with self.streams[0]:
                    self.inputs[name][...] = array
                return
            self.wait()  # an earlier copy may still read the pinned memory
            self.memory.upload(self.program.inputs[name], array, self.streams[0].ptr)

    @_RUN
    def get(self, name: str, *, on_device: bool = False) -> Any:
        """A copy of an output, on the host, or on the GPU for the caller's stream."""
        with self.toolkit.device():
            if not on_device:
                return self.memory.download(self.program.outputs[name], self.streams[0])
            stream = self._cupy.cuda.get_current_stream()
            self._after(self.streams[0], stream)
            copy = self._cupy.array(self.outputs[name], order="C")
            self._after(stream, self.streams[0])  # the next run writes there once the copy is made
            return copy

    def _after(self, first: Any, then: Any) -> None:
        """Make a stream wait for all work given to another so far."""
        self._mark.record(first)
        then.wait_event(self._mark)

    @_RUN
    def launch(self) -> None:
        """Start a run, once the caller's stream has filled the input arrays.

        A program whose kernels can fail is waited for; BackendError where one did, for no one can say what it made.
        """
        with self.toolkit.device():
            self._after(self._cupy.cuda.get_current_stream(), self.streams[0])
            self._replay(self._replayed)
            self._check()

    def _check(self) -> None:
        if self._failed():
            raise kernel_failure(self.program.name)

    def _failed(self) -> bool:
        """Return whether a kernel set the flag, which is 0 again after that."""
        flag = self.program.flag
        if flag is None or not self.memory.download(flag, self.streams[0]).any():
            return False
        self.memory.upload(flag, np.zeros(flag.shape, flag.dtype.numpy), self.streams[0].ptr)
        self.wait()
        return True

    @_RUN
    def wait(self) -> None:
        """Wait until all runs are done."""
        for stream in self.streams:
            stream.synchronize()

    @_RUN
    def join(self) -> None:
        """Make the caller's stream wait for all runs that were started."""
        with self.toolkit.device():
            self._after(self.streams[0], self._cupy.cuda.get_current_stream())

    @_RUN
    def timed(self) -> list[Span]:
        """Run the launches one by one, queued behind a kernel that waits, and time each by events."""
        cupy, stream = self._cupy, self.streams[0]
        with self.toolkit.device():
            self._hold(len(self._steps)).launch(stream.ptr, 0)
            marks = [cupy.cuda.Event() for _ in range(len(self._steps) + 1)]
            marks[0].record(stream)
            for step, mark in zip(self._steps, marks[1:], strict=True):
                step.launch(stream.ptr, self._workspaces[0])
                mark.record(stream)
            self.wait()
            self._check()
            ends = [cupy.cuda.get_elapsed_time(marks[0], mark) * 1e-3 for mark in marks]
        return [
            Span(launch.label, launch.kind, begin, end - begin, moved_bytes(launch), launch.values)
            for launch, begin, end in zip(self.program.launches, ends[:-1], ends[1:], strict=True)
        ]

    def _hold(self, launches: int) -> PreparedLaunch:
        code = _WAIT.format(nanoseconds=int(1e9 * _QUEUEING * (launches + 1)))
        return self._kernel(KernelSource("hold", code, (), (1, 1, 1), (1, 1, 1)), ())

    def close(self) -> None:
        """Give back graphs, plans, streams and memory; arrays over that memory keep it for as long as they live."""
        with self.toolkit.device():
            with self._quietly():
                self.wait()
            self._replayed = []
            self.calls.close()
            self._steps = []
            self.inputs, self.outputs = {}, {}
            self.memory.close()
            self.streams = []

    def _quietly(self) -> contextlib.suppress:
        """Ignore an error of CUDA's while another is being raised, or resources of a failure are freed."""
        cuda = self._cupy.cuda
        return contextlib.suppress(cuda.runtime.CUDARuntimeError, cuda.driver.CUDADriverError, BackendError)
