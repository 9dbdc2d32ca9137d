"""The backend for NVIDIA GPUs; CuPy and the libraries are imported when it is first asked for."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

from eqsat.errors import BackendError
from eqsat.language.terms import Graph, Plan, TensorType

if TYPE_CHECKING:
    from eqsat.runtime.cuda.device.toolkit import Toolkit
    from eqsat.runtime.programs.compiled import CompiledProgram, Machine, Sizes

INSTALL = "pip install 'eqsat[cuda13]'"
#: The first version of CuPy that has the streams, graphs and element types used here.
LEAST_CUPY = (14, 0)
#: The loss where a library is absent.
_WITHOUT = {"cublaslt": "matrix products run", "cudnn": "convolutions and attention run"}


class CupyBackend:
    """Plans and graphs on the current GPU: calls of cuBLASLt and cuDNN, generated kernels, captured CUDA graphs."""

    name = "cupy"

    def __init__(self) -> None:
        self._toolkits: dict[int, Toolkit] = {}

    def available(self) -> str | None:
        """The missing part, or None where CuPy finds a GPU, and a driver and compiler that fit."""
        return fault()

    def compile(self, graph: Graph | Plan, *, threads: int | None = None, plans: Iterable[str] = ()) -> CompiledProgram:
        """The graph or plan made ready; `plans` are those that a table of costs has, `threads` is unused.

        Where every dim is known, kernels are compiled and memory is taken at once. BackendError for nodes that cannot
        run on a GPU, a kernel that does not compile, and for too little memory.
        """
        from eqsat.runtime.cuda.libraries.tuning import choice
        from eqsat.runtime.programs.compiled import CompiledProgram

        toolkit = self._toolkit()
        plans = tuple(plans)
        choose = choice(plans)

        def build(sizes: Sizes) -> Machine:
            from eqsat.runtime.cuda.device.machine import GpuMachine
            from eqsat.runtime.cuda.program.lowering import program_of
            from eqsat.runtime.programs.arena import arrange

            program = program_of(graph, sizes, libraries=toolkit.libraries, plans=plans)
            return GpuMachine(program, arrange(program), toolkit, choose)

        compiled = CompiledProgram(graph, build, toolkit)
        if is_static(compiled.graph):
            compiled.prepare({})
        return compiled

    def _toolkit(self) -> Toolkit:
        reason = fault()
        if reason is not None:
            raise BackendError(
                f"backend {self.name!r} cannot be used here: {reason}",
                expected="an NVIDIA GPU, its driver, and CuPy",
                remedy=INSTALL,
            )
        import cupy

        from eqsat.runtime.cuda.device.toolkit import Toolkit

        number = int(cupy.cuda.runtime.getDevice())
        if number not in self._toolkits:
            self._toolkits[number] = Toolkit(number)
            warn_of(self._toolkits[number].missing)
        return self._toolkits[number]


def warn_of(missing: dict[str, str]) -> None:
    """Warn of libraries that cannot be used, with the reason and the operators that run on generated kernels."""
    for name, reason in missing.items():
        warnings.warn(
            f"{reason}; {_WITHOUT[name]} on generated kernels, which are slower: {INSTALL}",
            RuntimeWarning,
            stacklevel=2,
        )


def is_static(graph: Graph) -> bool:
    """Return whether the sizes of all inputs are known."""
    types = (graph.type(name) for name in graph.inputs)
    return all(isinstance(t, TensorType) and t.is_static for t in types)


def fault() -> str | None:
    """Why no GPU can be used here; None where one can."""
    if importlib.util.find_spec("cupy") is None:
        return f"cupy is not installed ({INSTALL})"
    from eqsat.runtime.cuda.device.installation import probe

    probed = probe()
    return probed if isinstance(probed, str) else _version_fault(dict(probed.libraries))


def _version_fault(libraries: dict[str, str]) -> str | None:
    """The library or driver whose version does not fit: its name, the version found, and the version needed."""
    import cupy

    from eqsat.runtime.cuda.compiler.nvrtc import nvrtc
    from eqsat.runtime.cuda.shortage import driver_fault

    numbers = tuple(int(part) for part in libraries["cupy"].split(".")[:2] if part.isdecimal())
    if numbers < LEAST_CUPY:
        needed = ".".join(map(str, LEAST_CUPY))
        return f"cupy is of version {libraries['cupy']}, {needed} or later is needed ({INSTALL})"
    try:
        compiler = nvrtc().version
    except BackendError as error:
        return error.what
    major, minor = (int(part) for part in compiler.split(".")[:2])
    runtime = cupy.cuda.runtime
    made_for = {"cupy": int(runtime.runtimeGetVersion()), "nvrtc": 1000 * major + 10 * minor}
    return driver_fault(int(runtime.driverGetVersion()), made_for)
