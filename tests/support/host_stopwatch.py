"""A stopwatch without a GPU: programs run on the host's machine, in earnest, while their times are made up.

Their times are those of a clock that knows only bytes, so that a test does not depend on what else the machine does."""

from collections.abc import Mapping, Sequence

import numpy as np

from eqsat.runtime.cuda.device.installation import Gpu, Installation
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.compiled import CompiledProgram
from eqsat.runtime.programs.profile import moved_bytes
from eqsat.testing.cuda.host import HostMachine
from tests.support.repetition import repeated

H200 = Installation(
    Gpu("NVIDIA H200", (9, 0), 132, 1.98e9, 3.2e9, 6144, 50 << 20, 140 << 30),
    "580.95.05, CUDA 13.0",
    {"cupy": "14.2.0", "cublasLt": "13.1.0", "cudnn": "9.28.0", "nvrtc": "13.5"},
)
BANDWIDTH, LAUNCH, REPLAY = 4e12, 1.5e-6, 8e-6


class HostStopwatch:
    l2_bytes = 50 << 20

    def subject(self, given: object, inputs: Mapping[str, object], plans: Sequence[str] | None = None) -> "HostSubject":
        return HostSubject(given, inputs)

    def sweep(self) -> None:
        pass

    def close(self) -> None:
        pass


class HostSubject:
    def __init__(self, given, inputs):
        self.program, self.inputs, self.plans = program_of(given), inputs, ()
        self.weight_bytes = sum(b.nbytes for b in self.program.buffers.values() if b.role == "weight")

    def further(self, times):
        return ()

    def graph(self, plan, copies, weights):
        program = repeated(self.program, 2, min(2, weights))
        machine = HostMachine(program, arrange(program))
        made = machine.run(self.inputs)
        machine.close()
        assert all(np.isfinite(a.astype(np.float64)).all() for a in made.values() if a.dtype.kind in "fV")
        launches = self.program.launches
        return HostReplay(REPLAY + copies * sum(LAUNCH + moved_bytes(one) / BANDWIDTH for one in launches))

    def close(self):
        pass


class HostReplay:
    def __init__(self, seconds):
        self.taken = seconds

    def seconds(self):
        return self.taken

    def close(self):
        pass


class HostBackend:
    """The GPU's backend on the host's machine: the same programs, launch by launch."""

    name = "cupy"

    def __init__(self):
        self.compiled = []

    def available(self):
        return None

    def compile(self, graph, *, threads=None, plans=()):
        self.compiled.append((graph, tuple(plans)))

        def build(sizes):
            program = program_of(graph, sizes)
            return HostMachine(program, arrange(program))

        return CompiledProgram(graph, build)


def absent(monkeypatch):
    """Makes this a machine without a GPU, whatever it is."""
    from eqsat.costs.devices import device
    from eqsat.costs.table import environment
    from eqsat.runtime.cuda.device import installation

    for module in (device, environment, installation):
        monkeypatch.setattr(module, "probe", lambda: "cupy is not installed")


def install(monkeypatch=None):
    """Makes an H200 appear to be here, which measures by this stopwatch."""
    from eqsat.costs.devices import device
    from eqsat.costs.kernels.key import OpKey
    from eqsat.costs.measuring import gpu
    from eqsat.costs.table import environment
    from eqsat.runtime.cuda.device import installation

    changed = {(module, "probe"): lambda: H200 for module in (device, environment, installation)}
    changed[gpu, "open_stopwatch"] = HostStopwatch
    # A product that takes a GPU microseconds takes NumPy seconds.
    changed[gpu, "SENTINEL"] = OpKey.parse("matmul {} float32[8, 8] =float32[8, 8]")
    for (module, name), value in changed.items():
        if monkeypatch is None:
            setattr(module, name, value)
        else:
            monkeypatch.setattr(module, name, value)
