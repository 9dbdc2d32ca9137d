"""Kernels of the GPU that is here, timed by its own events around graphs that are replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eqsat.errors import BackendError
from eqsat.language.terms import DType, Graph, Plan
from eqsat.runtime.cuda.device.calls import PARTED, PreparedLaunch
from eqsat.runtime.cuda.device.installation import found
from eqsat.runtime.cuda.device.machine import GpuMachine, KernelStep, elapsed
from eqsat.runtime.cuda.device.toolkit import Toolkit
from eqsat.runtime.cuda.libraries.calls import Call, Matmul, Normalisation, library_of
from eqsat.runtime.cuda.libraries.cudnn_library import PreparedGraph
from eqsat.runtime.cuda.libraries.library import WORKSPACE_BYTES, Library, PreparedCall, translated
from eqsat.runtime.cuda.libraries.substitute import parted, source_of
from eqsat.runtime.cuda.libraries.tuning import GENERATED, choice, tuned
from eqsat.runtime.cuda.program.functions import PlanSearch, is_mapping
from eqsat.runtime.cuda.program.lowering import mapping_search, program_of
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import View, padded
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.launches import Fallback, Launch
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.search import SearchKind

#: The search for the fastest mapping of a comprehension: a kernel of many is measured in a minute or so.
SEARCH = TunerConfig(generations=4, population=8, elites=2, seconds=60.0, threads=1)
#: The sweep of the second-level cache: how many times it is read, by how many blocks and threads, and how many bytes at
#: once.
_SWEPT, _BLOCKS, _THREADS, _WORD = 3, 264, 256, 4
#: Reads all of x. The sum is no word of it, so that nothing is written, but no compiler knows that.
_SWEEP = """extern "C" __global__ void sweep(const unsigned* x, unsigned* y) {{
  unsigned sum = 0;
  long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
  for (long long i = first; i < {count}ll; i += step) sum += x[i];
  if (sum == 1u) y[0] = sum;
}}
"""


def open_stopwatch() -> CudaStopwatch:
    """The stopwatch of this machine's GPU; BackendError that names the missing parts."""
    return CudaStopwatch(Toolkit(), found().gpu.l2_bytes)


class CudaStopwatch:
    """Times kernels on one GPU, without a change to any of its settings.

    Mappings of comprehensions are searched for as `search` says, by a search of this kind.
    """

    def __init__(
        self, toolkit: Toolkit, l2_bytes: int, search: TunerConfig = SEARCH, kind: SearchKind = "genetic"
    ) -> None:
        self.toolkit, self.l2_bytes, self.search, self.kind = toolkit, l2_bytes, search, kind
        with toolkit.device():
            self.stream = toolkit.cupy.cuda.Stream(non_blocking=True)
            self.workspace = toolkit.cupy.cuda.Memory(WORKSPACE_BYTES)
            count = _SWEPT * l2_bytes // _WORD
            self._swept = toolkit.cupy.cuda.Memory((count + 1) * _WORD)
            toolkit.runtime.memsetAsync(self._swept.ptr, 0, self._swept.size, self.stream.ptr)
            source = KernelSource("sweep", _SWEEP.format(count=count), ("x", "y"), (_BLOCKS, 1, 1), (_THREADS, 1, 1))
            self._sweep = KernelStep(toolkit, source, (self._swept.ptr, self._swept.ptr + count * _WORD))

    def sweep(self) -> None:
        """Read three times the second-level cache, so that its old content is gone."""
        with self.toolkit.device():
            self._sweep.launch(self.stream.ptr, 0)
            self.stream.synchronize()

    def subject(
        self, given: Plan | Graph, inputs: Mapping[str, Any], plans: Sequence[str] | None = None
    ) -> CudaSubject:
        """A plan on this GPU with inputs in place, its library calls by the plans that a table has, or to be tuned."""
        return CudaSubject(self, given, inputs, plans)

    def close(self) -> None:
        """Give the memory back."""
        with suppress(BackendError), translated("the GPU fails"):  # what went wrong on it was raised where it did
            self.stream.synchronize()
        del self._swept, self.workspace


class CudaSubject:
    """A plan whose launches can be captured any number of times, on any number of copies of its weights.

    Where it makes one call of a library, and none is prescribed, `plans` are all that the library has for it; for a
    normalisation the generated kernel is one of them. Of a comprehension they are mappings to blocks and threads, the
    first ones of a search that goes on by their times.
    """

    def __init__(
        self,
        watch: CudaStopwatch,
        given: Plan | Graph,
        inputs: Mapping[str, Any],
        prescribed: Sequence[str] | None,
    ) -> None:
        self._watch, self._given, self._inputs = watch, given, inputs
        self._mapped: dict[str, CudaSubject] = {}
        program = program_of(given, plans=prescribed or ())
        self.machine = GpuMachine(program, arrange(program), watch.toolkit, choice(prescribed or ()))
        self.launches = program.launches
        for name, array in inputs.items():
            self.machine.put(name, array)
        self.machine.wait()
        self.weights = {name: b.nbytes for name, b in program.buffers.items() if b.role == "weight"}
        self.weight_bytes = sum(self.weights.values())
        self._sets: list[Any] = [None]
        self._steps: dict[tuple[str, int], list[PreparedLaunch]] = {}
        self._prepared: list[PreparedCall] = []
        self._built: dict[tuple[Call, str | None], PreparedGraph] = {}
        self._search: PlanSearch | None = None
        self.plans = self._found_plans() if prescribed is None else ()

    def further(self, times: Mapping[str, float]) -> tuple[str, ...]:
        """The next mappings of a comprehension to try, for the seconds of those that ran; no more ways of a library."""
        for one in self._mapped.values():
            one.close()  # of many mappings few are timed again, and each has weights of its own
        self._mapped.clear()
        return () if self._search is None else self._search.further(times)

    def _found_plans(self) -> tuple[str, ...]:
        calls = [launch.work for launch in self.launches if isinstance(launch.work, Call)]
        if not calls:
            self._search = mapping_search(self._given, self._watch.search, self._watch.kind)
            return () if self._search is None else self._search.first()
        library = self._watch.toolkit.libraries.get(library_of(calls[0])) if len(calls) == 1 else None
        if library is None:
            return ()
        try:
            with translated(f"{library.name} fails to list plans", where=self.launches[0].label):
                plans = library.plans(calls[0], self.machine.memory.address)
        except BackendError as error:
            warnings.warn(f"{error.where} is measured by one plan alone: {error.what}", RuntimeWarning, stacklevel=2)
            return ()
        generated = (GENERATED,) if plans and isinstance(calls[0], Normalisation) else ()
        return tuple(tuned(calls[0], plan) for plan in (*plans, *generated))

    def graph(self, plan: str, copies: int, weights: int) -> CudaReplay | MachineReplay:
        """So many copies of the launches, captured one after the other, which take turns on so many sets of weights."""
        if is_mapping(plan):
            if plan not in self._mapped:
                self._mapped[plan] = CudaSubject(self._watch, self._given, self._inputs, (plan,))
            return self._mapped[plan].graph("", copies, weights)
        if any(isinstance(launch.work, Fallback) for launch in self.launches):
            return MachineReplay(self._watch, self.machine, copies)
        with self._watch.toolkit.device():
            self._copy_weights(weights)
            steps = [step for copy in range(copies) for step in self._made(plan, copy % weights)]
            return CudaReplay(self._watch, steps)

    def _copy_weights(self, count: int) -> None:
        """Take memory for more sets of weights, and fill it on the GPU."""
        cupy = self._watch.toolkit.cupy
        while len(self._sets) < count:
            self._sets.append(cupy.cuda.Memory(max(sum(map(padded, self.weights.values())), 1)))
            place = len(self._sets) - 1
            for name, nbytes in self.weights.items():
                runtime, stream = self._watch.toolkit.runtime, self._watch.stream
                to, origin = self.weight_address(name, place), self.weight_address(name, 0)
                runtime.memcpyAsync(to, origin, nbytes, runtime.memcpyDeviceToDevice, stream.ptr)
        self._watch.stream.synchronize()

    def weight_address(self, name: str, place: int) -> int:
        """The offset of a buffer of weights in a set."""
        if place == 0:
            return self.machine.memory.address(View.of(name, DType.UINT8, (self.weights[name],)))
        before = list(self.weights)[: list(self.weights).index(name)]
        return int(self._sets[place].ptr) + sum(padded(self.weights[other]) for other in before)

    def _address(self, place: int) -> Callable[[View], int]:
        def address(view: View) -> int:
            if view.buffer not in self.weights:
                return self.machine.memory.address(view)
            return self.weight_address(view.buffer, place) + view.offset * view.dtype.itemsize

        return address

    def _made(self, plan: str, place: int) -> list[PreparedLaunch]:
        """The launches on one set of weights, a library's call by a plan."""
        if (plan, place) not in self._steps:
            address = self._address(place)
            self._steps[plan, place] = [
                step for launch in self.launches for step in self.prepared_steps(launch, plan, address)
            ]
        return self._steps[plan, place]

    def prepared_steps(self, launch: Launch, plan: str, address: Callable[[View], int]) -> list[PreparedLaunch]:
        """A launch made ready: of a library's call by a plan, with the kernels it takes beside the call."""
        toolkit, work = self._watch.toolkit, launch.work
        if isinstance(work, Fallback):
            raise BackendError(f"{launch.label} cannot be captured", expected="kernels of our own, or of a library")
        if isinstance(work, KernelSource):
            views = (*launch.reads, *launch.writes)
            return [] if 0 in work.grid else [KernelStep(toolkit, work, [address(view) for view in views])]
        assert isinstance(work, Call)
        chosen = choice([plan])(work) if plan else self.machine.calls.decisions[work]
        parts = parted(work) if chosen == PARTED else None
        if parts is not None:
            first, source, views = parts
            rest = KernelStep(toolkit, source, [address(view) for view in views])
            return [*self.prepared_steps(replace(launch, work=first), plan, address), rest]
        library = toolkit.libraries.get(library_of(work))
        if chosen == GENERATED or library is None:
            return [self._generated(work, launch.label, address)]
        with translated(f"{library.name} fails to make a call ready", where=launch.label):
            prepared = self._ready(library, work, address, chosen)
        self._prepared.append(prepared)
        if prepared.workspace > WORKSPACE_BYTES:
            raise BackendError(
                f"a plan of {prepared.workspace} bytes of workspace, of which there are {WORKSPACE_BYTES}",
                where=launch.label,
                expected="a plan that the library runs",
            )
        return [prepared]

    def _ready(self, library: Library, call: Call, address: Callable[[View], int], plan: str | None) -> PreparedCall:
        """A call by a plan; parts that take long to build are built for one set of weights."""
        built = self._built.get((call, plan))
        if built is not None and not isinstance(call, Matmul):
            return built.at(call, address)
        prepared = library.prepare(call, address, plan)
        if isinstance(prepared, PreparedGraph):
            self._built[call, plan] = prepared
        return prepared

    def _generated(self, call: Call, label: str, address: Callable[[View], int]) -> PreparedLaunch:
        """The kernel that a machine runs where a library has none."""
        substitute = source_of(call)
        if substitute is None:
            raise BackendError(f"{label} has no generated kernel", expected=library_of(call))
        source, views = substitute
        return KernelStep(self._watch.toolkit, source, [address(view) for view in views])

    def close(self) -> None:
        """Give back plans and memory."""
        while self._mapped:
            self._mapped.popitem()[1].close()
        self._steps.clear()
        self._built.clear()
        while self._prepared:
            self._prepared.pop().close()
        self._sets.clear()
        self.machine.close()


class CudaReplay:
    """Launches captured as one graph."""

    def __init__(self, watch: CudaStopwatch, steps: Sequence[PreparedLaunch]) -> None:
        self._watch = watch
        stream = watch.stream
        # The set-up of a first launch cannot be captured.
        with translated("the first launch fails"):
            for step in {id(step): step for step in steps}.values():
                step.launch(stream.ptr, watch.workspace.ptr)
            stream.synchronize()
        with translated("the launches cannot be captured"):
            stream.begin_capture()
            try:
                for step in steps:
                    step.launch(stream.ptr, watch.workspace.ptr)
            finally:
                self._graph = stream.end_capture()
            self._graph.upload(stream)

    def seconds(self) -> float:
        """Replay the graph once and return the seconds between its first kernel and its last."""
        return _between(self._watch, lambda: self._graph.launch(self._watch.stream), self._watch.stream)

    def close(self) -> None:
        """Give the graph back."""
        self._graph = None


class MachineReplay:
    """Runs of a machine one after the other, for a program that no graph can hold."""

    def __init__(self, watch: CudaStopwatch, machine: GpuMachine, copies: int) -> None:
        self._watch, self.machine, self._copies = watch, machine, copies

    def seconds(self) -> float:
        """Run all copies and return the seconds that the GPU took."""

        def run() -> None:
            for _ in range(self._copies):
                self.machine.launch()

        return _between(self._watch, run, self.machine.streams[0])

    def close(self) -> None:
        """Nothing is held."""


def _between(watch: CudaStopwatch, run: Callable[[], object], stream: Any) -> float:
    """The seconds by the GPU's clock that the work takes which `run` puts on a stream."""
    with watch.toolkit.device(), translated("the GPU fails at a run"):
        return elapsed(watch.toolkit.cupy.cuda, run, stream)
