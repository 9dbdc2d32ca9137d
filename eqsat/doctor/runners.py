"""Places where a graph is run for an examination: a GPU, or this processor as a GPU would run it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from eqsat.errors import BackendError
from eqsat.language.terms import Graph
from eqsat.runtime.backend import select
from eqsat.runtime.cuda.compiler.cubins import Cubins
from eqsat.runtime.cuda.compiler.limits import LaunchLimits
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.cuda.program.streams import dependencies
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.compiled import CompiledProgram
from eqsat.runtime.programs.launches import Launch
from eqsat.runtime.programs.program import KernelProgram
from eqsat.testing.cuda.host import HostMachine


@dataclass(frozen=True)
class Ran:
    """The outputs of a run by name, and how many launches of each kind it took."""

    outputs: Mapping[str, Any]
    launches: Mapping[str, int]

    @property
    def told(self) -> str:
        """The launches in words."""
        return ", ".join(f"{count} {kind}" for kind, count in sorted(self.launches.items()))


class Runner(Protocol):
    """A place where graphs run."""

    #: True of a GPU.
    on_gpu: bool

    def run(self, graph: Graph, *inputs: Mapping[str, Any]) -> list[Ran]:
        """Make a graph ready once, and run it on inputs one after the other; EqsatError where it cannot run."""
        ...


class GpuRunner:
    """The GPU that is here."""

    on_gpu = True

    def __init__(self) -> None:
        self._backend: Any = select("cupy")

    def compile(self, graph: Graph) -> CompiledProgram:
        """A graph made ready."""
        compiled: CompiledProgram = self._backend.compile(graph)
        return compiled

    def run(self, graph: Graph, *inputs: Mapping[str, Any]) -> list[Ran]:
        """Make a graph ready once, and run it on inputs one after the other."""
        program = self.compile(graph)
        try:
            (machine,) = program.machines.values()
            kinds = _kinds(machine.program.launches)
            return [Ran(program.run(one), kinds) for one in inputs]
        finally:
            program.close()


class HostRunner:
    """This processor: kernels compiled for a GPU's architecture, and run behind a shim; libraries computed by NumPy.

    Without an architecture, since the compiler for GPUs is not here, kernels are run and no more. Launches are run in
    an order drawn at random among those that wait for what they read.
    """

    on_gpu = False

    def __init__(self, arch: str | None, seed: int = 0) -> None:
        self._arch, self._rng = arch, random.Random(seed)
        self._cubins = Cubins()

    def run(self, graph: Graph, *inputs: Mapping[str, Any]) -> list[Ran]:
        """Compile the kernels of a graph, and run it on inputs one after the other."""
        program = program_of(graph)
        if self._arch is not None:
            self._compile(program, self._arch)
        arrangement = arrange(program)
        before = dependencies(program, arrangement)
        machine = HostMachine(program, arrangement)
        ran = []
        for one in inputs:
            for name in program.inputs:
                machine.put(name, one[name])
            machine.launch_in(self._order(before))
            outputs = {name: machine.get(name) for name in program.outputs}
            ran.append(Ran(outputs, _kinds(program.launches)))
        return ran

    def _compile(self, program: KernelProgram, arch: str) -> None:
        """Compile all kernels; BackendError for one that does not compile, spills, or asks for more than there is."""
        limits = LaunchLimits.of(arch)
        for source in (launch.work for launch in program.launches):
            if not isinstance(source, KernelSource):
                continue
            made = self._cubins.get(source.code, arch)
            limits.check(source, registers=made.registers, static=made.shared)
            if made.spill_bytes:
                raise BackendError(f"a kernel spills {made.spill_bytes} bytes", where=source.comment or source.entry)

    def _order(self, before: Iterable[frozenset[int]]) -> list[int]:
        waiting = dict(enumerate(before))
        order: list[int] = []
        while waiting:
            ready = [index for index, needed in waiting.items() if needed <= {*order}]
            order.append(self._rng.choice(ready))
            del waiting[order[-1]]
        return order


def _kinds(launches: Iterable[Launch]) -> Mapping[str, int]:
    return Counter("kernel" if one.kind == "generated" else one.kind for one in launches)
