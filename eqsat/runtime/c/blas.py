"""Libraries with BLAS for products of matrices within generated C: the one that SciPy exports, and oneMKL."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from eqsat.errors import BackendError
from eqsat.runtime.c.toolchain import toolchain
from eqsat.runtime.kernels.nests.options import Blas
from eqsat.system.extras import missing

#: The functions that are handed over, in their order.
_NAMES = ("sgemm", "dgemm", "sgemv", "dgemv")
#: oneMKL's numbers for integers of four bytes (as Intel and as GNU call functions), and for no threads of its own.
_LP64, _GNU_LP64, _SEQUENTIAL = 0, 2, 1


@dataclass(frozen=True)
class InstalledLibrary:
    """A library as a wheel installed it: the version of the wheel, and the files that are to be there, by name."""

    version: str
    files: tuple[Path, ...]

    def file(self, prefix: str) -> Path | None:
        """The file whose name begins so."""
        return next((one for one in self.files if one.name.startswith(prefix)), None)


def installed_mkl(path: Sequence[str] | None = None) -> InstalledLibrary | None:
    """The wheel of oneMKL among the folders that Python imports from, or others; None where there is none."""
    for found in metadata.distributions(name="mkl", path=list(sys.path if path is None else path)):
        listed = [Path(str(one.locate())).resolve() for one in found.files or () if ".so" in one.suffixes]
        return InstalledLibrary(found.version, tuple(listed))
    return None


@cache
def blas_names() -> tuple[Blas, ...]:
    """The libraries whose functions can be called here."""
    return ("scipy",) if _loaded_mkl() is None else ("scipy", "mkl")


def is_callable(name: Blas | None) -> bool:
    """True of a library that is here, and of none at all."""
    return name is None or name in blas_names()


@cache
def installed_libraries() -> tuple[str, ...]:
    """The libraries beside those that eqsat requires, with their versions."""
    found = installed_mkl()
    return () if found is None or "mkl" not in blas_names() else (f"mkl {found.version}",)


def measured_on() -> str:
    """The processor, the compiler and the libraries as text: what is fastest with others is measured anew."""
    return "\n".join([toolchain().architecture, *installed_libraries()])


@cache
def blas_pointers(name: Blas) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of a library's functions; MissingExtraError or BackendError for one that is not here."""
    addresses = _of_scipy() if name == "scipy" else _of_mkl()
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _of_scipy() -> list[int]:
    """Functions that SciPy documents for use from C, through Cython's capsules."""
    from scipy.linalg import cython_blas

    name, address = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsules = [cython_blas.__pyx_capi__[one] for one in _NAMES]
    return [address(one, name(one)) for one in capsules]


def _of_mkl() -> list[int]:
    library = _loaded_mkl()
    if library is not None:
        return [ctypes.cast(getattr(library, f"{one}_"), ctypes.c_void_p).value or 0 for one in _NAMES]
    found = installed_mkl()
    if found is None:
        raise missing("mkl")
    raise BackendError(
        f"oneMKL {found.version} cannot be loaded",
        where=str(found.file("libmkl_rt") or "its wheel, which lists no libmkl_rt"),
        expected="all files of its wheel, with integers of four bytes and no threads of its own",
        remedy="pip install --force-reinstall mkl, or leave products to 'scipy'",
    )


@cache
def _loaded_mkl() -> ctypes.CDLL | None:
    """The library of oneMKL, without threads of its own: those of a program call it; None where it cannot be loaded.

    It ends the process where it misses one of its parts, so that all are looked for first. What else in the process
    chose before, for instance integers of eight bytes, cannot be changed.
    """
    found = installed_mkl()
    first = None if found is None else found.file("libmkl_rt")
    if found is None or first is None or not all(one.is_file() for one in found.files):
        return None
    try:
        library = ctypes.CDLL(str(first))
        interface = library.MKL_Set_Interface_Layer(_LP64)
    except (OSError, AttributeError):
        return None
    is_sequential = library.MKL_Set_Threading_Layer(_SEQUENTIAL) == _SEQUENTIAL
    return library if is_sequential and interface in (_LP64, _GNU_LP64) else None


@cache
def _pools() -> tuple[Any, ...]:
    """The pools of threads of the libraries; one of NumPy's own is none of them."""
    from threadpoolctl import ThreadpoolController

    for name in blas_names():
        blas_pointers(name)
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return tuple(one for one in found if not Path(one.filepath).parent.name.startswith("numpy"))


@contextmanager
def blas_threads(count: int | None) -> Iterator[None]:
    """Let BLAS use so many threads, as long as the block lasts; as many as it likes where left out."""
    changed = [(pool, pool.num_threads) for pool in _pools()] if count is not None else []
    changed = [(pool, before) for pool, before in changed if before != count]
    for pool, _ in changed:
        pool.set_num_threads(count)
    try:
        yield
    finally:
        for pool, before in changed:
            pool.set_num_threads(before)
