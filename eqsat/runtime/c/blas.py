"""The functions of BLAS that SciPy exports, for products of matrices within generated C."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

#: The functions that are handed over, in their order.
_NAMES = ("sgemm", "dgemm", "sgemv", "dgemv")


@cache
def blas_pointers() -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of SciPy's functions of BLAS, which it documents for use from C through Cython's capsules."""
    from scipy.linalg import cython_blas

    name, address = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsules = [cython_blas.__pyx_capi__[one] for one in _NAMES]
    return (ctypes.c_void_p * len(capsules))(*(address(one, name(one)) for one in capsules))


@cache
def _pools() -> tuple[Any, ...]:
    """The pools of threads of the library behind SciPy's functions; one of NumPy's own is none of them."""
    from threadpoolctl import ThreadpoolController

    blas_pointers()
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
