"""The functions of BLAS that SciPy exports, for products of matrices within generated C."""

from __future__ import annotations

import ctypes
from functools import cache

#: The functions that are handed over, in their order.
_NAMES = ("sgemm", "dgemm")


@cache
def blas_pointers() -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of SciPy's functions of BLAS, which it documents for use from C through Cython's capsules."""
    from scipy.linalg import cython_blas

    name, address = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    address.restype, address.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsules = [cython_blas.__pyx_capi__[one] for one in _NAMES]
    return (ctypes.c_void_p * len(capsules))(*(address(one, name(one)) for one in capsules))
