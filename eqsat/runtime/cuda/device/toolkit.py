"""A GPU through CuPy, with the libraries that are here and the kernels that were loaded."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from eqsat.errors import BackendError
from eqsat.runtime.cuda.compiler.cubins import Cubins
from eqsat.runtime.cuda.compiler.limits import LaunchLimits
from eqsat.runtime.cuda.compiler.nvrtc import nvrtc
from eqsat.runtime.cuda.libraries import cublaslt_library, cudnn_library
from eqsat.runtime.cuda.libraries.library import Library
from eqsat.runtime.cuda.shortage import driver_fault, old_driver
from eqsat.runtime.kernels.source import KernelSource

#: The libraries that calls go to, by the names that lowering knows them by.
OPENERS: Mapping[str, Callable[[], Library]] = {
    "cublaslt": cublaslt_library.library,
    "cudnn": cudnn_library.library,
}
#: A kernel that asks for more shared memory than this must be allowed to, in bytes.
_PLAIN_SHARED = 48 << 10
#: The number that CUDA's driver has for the bound on dynamic shared memory (CUfunction_attribute).
_MOST_DYNAMIC_SHARED = 8


def opened(openers: Mapping[str, Callable[[], Library]]) -> tuple[dict[str, Library], dict[str, str]]:
    """The libraries that can be used, and for the others why not."""
    libraries: dict[str, Library] = {}
    reasons: dict[str, str] = {}
    for name, opener in openers.items():
        try:
            libraries[name] = opener()
        except BackendError as error:
            reasons[name] = error.what
    return libraries, reasons


class Toolkit:
    """One GPU: `number` is CUDA's, `arch` the architecture that kernels are compiled for.

    `libraries` are those of `openers`, all by default, that can be used; `missing` says of the others why not.
    BackendError where the driver is too old for the packages installed.
    """

    def __init__(self, number: int = 0, openers: Mapping[str, Callable[[], Library]] | None = None) -> None:
        self.number = number
        self.cupy: Any = importlib.import_module("cupy")
        self.special: Any = importlib.import_module("cupyx.scipy.special")
        self.runtime: Any = self.cupy.cuda.runtime
        self.driver: Any = self.cupy.cuda.driver
        fault = driver_fault(int(self.runtime.driverGetVersion()), self._made_for())
        if fault is not None:
            raise old_driver(fault)
        with self.device():
            self.runtime.free(0)  # makes the device's context, in which kernels are loaded
            self.libraries, self.missing = opened(OPENERS if openers is None else openers)
        self.arch = "sm_" + str(self.cupy.cuda.Device(number).compute_capability)
        self._limits = LaunchLimits.of(self.arch)
        #: Weights on this GPU that some program reads.
        self.weights: WeakValueDictionary[Any, Any] = WeakValueDictionary()
        self.cubins = Cubins()
        self._modules: list[int] = []
        self._functions: dict[tuple[str, str], int] = {}

    def _made_for(self) -> dict[str, int]:
        """The versions of CUDA that CuPy and the compiler are made for, as CUDA numbers them."""
        major, minor = (int(part) for part in nvrtc().version.split(".")[:2])
        return {"cupy": int(self.runtime.runtimeGetVersion()), "nvrtc": 1000 * major + 10 * minor}

    def device(self) -> Any:
        """A context manager that makes this GPU the current one."""
        return self.cupy.cuda.Device(self.number)

    def adopt(self, array: Any) -> Any:
        """A CuPy array over the memory of an array on this GPU."""
        cupy = self.cupy
        if isinstance(array, cupy.ndarray):
            return array
        with self.device():
            return cupy.from_dlpack(array) if hasattr(array, "__dlpack__") else cupy.asarray(array)

    def prepare(self, sources: Iterable[KernelSource]) -> None:
        """Compile kernels at once, which then need only be loaded; BackendError where one does not compile."""
        missing = (source.code for source in sources if (source.code, source.entry) not in self._functions)
        self.cubins.prepare(missing, self.arch)

    def function(self, source: KernelSource) -> int:
        """The handle of a kernel, compiled and loaded where it is not yet.

        BackendError where it does not compile, or a launch would ask for more than the GPU gives a block or a grid.
        """
        key = source.code, source.entry
        compiled = self.cubins.get(source.code, self.arch)
        self._limits.check(source, registers=compiled.registers, static=compiled.shared)
        if key not in self._functions:
            module = self.driver.moduleLoadData(compiled.cubin)
            self._modules.append(module)
            self._functions[key] = self.driver.moduleGetFunction(module, source.entry)
        if source.shared + compiled.shared > _PLAIN_SHARED:
            self.driver.funcSetAttribute(self._functions[key], _MOST_DYNAMIC_SHARED, source.shared)
        return self._functions[key]

    def close(self) -> None:
        """Unload the kernels and close the libraries; machines that use them must be closed before."""
        self._functions.clear()
        with self.device():
            while self._modules:
                self.driver.moduleUnload(self._modules.pop())
            for library in self.libraries.values():
                library.close()
        self.libraries = {}
