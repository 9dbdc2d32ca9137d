"""A model made ready to run: a machine for each size of its named dims, and the calls that run it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.graphs.boundary import interface
from eqsat.language.graphs.interpret import bound_sizes
from eqsat.language.terms import Graph, Plan, Sym, TensorType
from eqsat.runtime.programs.arena import Arrangement
from eqsat.runtime.programs.passed import (
    CudaDevice,
    PassedArrays,
    check_apart,
    check_output,
    is_same,
    overlap,
    span,
    taken,
    write_output,
)
from eqsat.runtime.programs.profile import Profile, Span
from eqsat.runtime.programs.program import KernelProgram

#: For how many sizes of named dims programs are kept, the one used longest ago dropped first.
KEPT_SIZES = 4

Sizes = Mapping[str, int]


class DeviceMemoryError(BackendError):
    """A program that does not fit in the memory that is free on its GPU."""


class Machine(Protocol):
    """A program with the memory it runs in.

    `inputs` and `outputs` are that memory as arrays; `put` copies an input in, `get` an output out, to the host or to
    a new array on the device. `launch` starts all launches, `wait` waits for them here and `join` on the device;
    `timed` runs them one by one.
    """

    program: KernelProgram

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The arrays that inputs are read from, by name."""

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The arrays that outputs are written to, by name."""

    def put(self, name: str, array: Any) -> None:
        """Copy an input in."""

    def get(self, name: str, *, on_device: bool = False) -> Any:
        """A copy of an output."""

    def launch(self) -> None:
        """Start all launches."""

    def wait(self) -> None:
        """Wait until everything started is done."""

    def join(self) -> None:
        """Make the caller's next work on the device wait for the work started here."""

    def timed(self) -> list[Span]:
        """Run every launch by itself; return the seconds of each."""

    def close(self) -> None:
        """Give the memory back."""


class CompiledProgram:
    """A graph or plan that runs on machines that `build` makes, one for each size of its named dims.

    Safe to call from several threads, one at a time. `close` gives all memory back; a later call takes it anew.
    """

    def __init__(
        self, given: Graph | Plan, build: Callable[[Sizes], Machine], device: CudaDevice | None = None
    ) -> None:
        self.graph = interface(given) if isinstance(given, Plan) else given
        self._build, self._device = build, device
        self.machines: OrderedDict[tuple[tuple[str, int], ...], Machine] = OrderedDict()
        self._bound: dict[int, object] = {}
        self._profiles: list[Profile] = []
        self._turn = threading.RLock()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, arrays of the kind that the inputs are; BackendError for inputs that do not fit."""
        given = taken(self.graph, inputs, self._device)
        with self._turn:
            machine = self._fed(given)
            self._launch(machine)
            outputs = {name: machine.get(name, on_device=given.on_device) for name in self.graph.outputs}
        return {name: given.wrap(array) for name, array in outputs.items()}

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, as `run` has it."""
        return self.run(inputs)

    def run_into(self, outputs: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        """Run, and write outputs to arrays of the caller's.

        BackendError for one that is no output, of another shape, element type or device, read-only, whose elements
        share memory, or that shares memory with an input or another output.
        """
        given = taken(self.graph, inputs, self._device)
        sizes, where = bound_sizes(self.graph, given.arrays), self.graph.name
        types: dict[str, TensorType] = {}
        for name in outputs:
            if name not in self.graph.outputs:
                known = "some of " + ", ".join(self.graph.outputs)
                raise BackendError(f"no output {name!r}", where=where, expected=known)
            declared = self.graph.type(self.graph.outputs[name])
            assert isinstance(declared, TensorType), "outputs of programs are tensors"
            types[name] = declared.at(sizes)
        memory = {n: check_output(n, array, types[n], where, self._device) for n, array in outputs.items()}
        check_apart(given.arrays, memory, where)
        with self._turn:
            machine = self._fed(given)
            self._launch(machine)
            for name, array in outputs.items():
                made = machine.get(name, on_device=not isinstance(memory[name], np.ndarray))
                write_output(name, array, made, types[name], where)

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        """A call that runs on these inputs, checked and copied in once, and returns when all is done; for measuring."""
        given = taken(self.graph, inputs, self._device)
        # Another call may come in between, after which these are copied in again: as they are now.
        given = replace(given, arrays={name: array.copy() for name, array in given.arrays.items()})
        mark, sizes = object(), bound_sizes(self.graph, given.arrays)

        def call() -> None:
            with self._turn:
                machine = self._machine(sizes)
                if self._bound.get(id(machine)) is not mark:
                    self._feed(machine, given)
                    self._bound[id(machine)] = mark
                self._launch(machine)
                machine.wait()

        call()
        return call

    def prepare(self, sizes: Sizes) -> None:
        """Make the machine for these sizes of named dims now, and not with the first run."""
        with self._turn:
            self._machine(self._known(sizes))

    def memory(self, sizes: Sizes | None = None) -> Arrangement:
        """The places of the values in one arena, its size, the sum without sharing, and the least possible size."""
        with self._turn:
            return self._machine(self._known(sizes or {})).program.memory()

    def static(self, sizes: Sizes | None = None) -> StaticProgram:
        """The program for one size of its named dims, with buffers that stay in place."""
        with self._turn:
            return StaticProgram(self, self._known(sizes or {}))

    @contextmanager
    def profile(self) -> Iterator[Profile]:
        """Time every launch of the runs within: `with program.profile() as p: program.run(inputs)`.

        Launches then run one by one, not as one captured graph, so that the whole takes longer than it does otherwise.
        """
        profile = Profile(self.graph.name)
        self._profiles.append(profile)
        try:
            yield profile
        finally:
            self._profiles.remove(profile)

    def close(self) -> None:
        """Give the memory of all machines back."""
        with self._turn:
            while self.machines:
                self._drop()

    def _known(self, sizes: Sizes) -> dict[str, int]:
        """The sizes; BackendError for a name that no input's shape has."""
        types = (self.graph.type(name) for name in self.graph.inputs)
        dims = [d for t in types if isinstance(t, TensorType) for d in t.shape or ()]
        names = sorted({name for d in dims if isinstance(d, Sym) for name in d.names()})
        for name in sizes:
            if name not in names:
                raise BackendError(
                    f"no named dim {name!r}",
                    where=self.graph.name,
                    expected="sizes of " + (", ".join(names) or "nothing: every shape is known"),
                )
        return dict(sizes)

    def _fed(self, given: PassedArrays) -> Machine:
        machine = self._machine(bound_sizes(self.graph, given.arrays))
        self._feed(machine, given)
        return machine

    def _feed(self, machine: Machine, given: PassedArrays) -> None:
        self._bound.pop(id(machine), None)
        for name in machine.program.inputs:
            machine.put(name, given.arrays[name])

    def _launch(self, machine: Machine) -> None:
        if not self._profiles:
            machine.launch()
            return
        spans = machine.timed()
        for profile in self._profiles:
            profile.runs.append(spans)

    def _machine(self, sizes: Sizes) -> Machine:
        key = tuple(sorted(sizes.items()))
        machine = self.machines.get(key)
        if machine is None:
            while len(self.machines) >= KEPT_SIZES:
                self._drop()
            machine = self.machines[key] = self._built(sizes)
        self.machines.move_to_end(key)
        return machine

    def _built(self, sizes: Sizes) -> Machine:
        """A machine for these sizes; those for other sizes make room where memory is short."""
        while True:
            try:
                return self._build(sizes)
            except DeviceMemoryError:
                if not self.machines:
                    raise
                self._drop()

    def _drop(self) -> None:
        _, machine = self.machines.popitem(last=False)
        self._bound.pop(id(machine), None)
        machine.close()


class StaticProgram:
    """A program whose inputs and outputs stay in place: fill `inputs`, call, and read `outputs`.

    Both are arrays on the device, by name. A call copies in the arrays it is given and returns `outputs`, which the
    next call writes anew; given NumPy arrays, it returns copies of NumPy's. BackendError for an input that shares
    memory with an output.
    """

    def __init__(self, program: CompiledProgram, sizes: Sizes) -> None:
        self._program = program
        self._taken: Machine | None = program._built(sizes)

    @property
    def _machine(self) -> Machine:
        if self._taken is None:
            raise BackendError(
                "the program was closed",
                where=self._program.graph.name,
                expected="calls before close()",
                remedy="take a new one: program.static()",
            )
        return self._taken

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The arrays that inputs are read from, by name."""
        return self._machine.inputs

    @property
    def outputs(self) -> Mapping[str, Any]:
        """The arrays that outputs are written to, by name."""
        return self._machine.outputs

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """Run on the given inputs, and on the present content of the other input arrays."""
        program, machine = self._program, self._machine
        if inputs:
            self._put(inputs)
        program._launch(machine)
        if all(hasattr(array, "__cuda_array_interface__") for array in inputs.values()):
            machine.join()
            return dict(machine.outputs)
        return {name: machine.get(name) for name in machine.program.outputs}

    def _put(self, inputs: Mapping[str, Any]) -> None:
        program, machine = self._program, self._machine
        given = taken(program.graph, {**self._held(inputs), **inputs}, program._device)
        passed = {name: given.arrays[name] for name in inputs}
        for name, array in passed.items():
            self._check_size(name, array)
        # An array in place already is not copied: an output may be that very input.
        fresh = {name: array for name, array in passed.items() if not is_same(array, machine.inputs[name])}
        for name, array in machine.outputs.items():
            # Outputs may share memory with each other: one may be another, seen in another way.
            check_apart(fresh, {name: array}, program.graph.name)
        for name, array in fresh.items():
            if any(overlap(span(array), span(other)) for other in machine.inputs.values()):
                fresh[name] = array.copy()  # before another input is put there
        for name, array in fresh.items():
            machine.put(name, array)

    def memory(self) -> Arrangement:
        """The places of the values in one arena, its size, the sum without sharing, and the least possible size."""
        return self._machine.program.memory()

    def profile(self) -> AbstractContextManager[Profile]:
        """Time every launch of the calls within: `with program.profile() as p: program()`."""
        return self._program.profile()

    def close(self) -> None:
        """Give the memory back; the arrays must not be used after that."""
        if self._taken is not None:
            self._taken.close()
        self._taken = None

    def _held(self, passed: Mapping[str, Any]) -> dict[str, Any]:
        """Stand-ins for inputs that are not passed: arrays of the declared type, of the size compiled for."""
        stand_ins = {}
        for name, view in self._machine.program.inputs.items():
            declared = self._program.graph.type(name)
            if name not in passed and isinstance(declared, TensorType):
                stand_ins[name] = np.broadcast_to(np.zeros((), declared.dtype.numpy), view.shape)
        return stand_ins

    def _check_size(self, name: str, array: Any) -> None:
        wanted = self._machine.program.inputs[name].shape
        if tuple(array.shape) != wanted:
            raise BackendError(
                f"input {name!r} has shape {list(array.shape)}",
                where=self._program.graph.name,
                expected=f"{list(wanted)}, the size that was compiled for",
                remedy="compile it for that size, or use run()",
            )
