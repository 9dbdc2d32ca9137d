"""Views as NumPy arrays over the bytes of a buffer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.terms.constant import Array
from eqsat.runtime.kernels.view import BUFFER_ALIGNMENT, View, padded

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def strided(memory: Bytes, view: View) -> Array:
    """The elements of a view over the bytes of its buffer, without a copy; BackendError where it reaches beyond them.

    >>> from eqsat.language.terms.types import DType
    >>> strided(np.arange(6, dtype=np.uint8), View.of("x", DType.UINT8, (2, 3)).permuted((1, 0)))[2]
    array([2, 5], dtype=uint8)
    """
    dtype = view.dtype.numpy
    if not view.count:
        return np.empty(view.shape, dtype)
    low, high = view.extent
    if low < 0 or high > memory.nbytes:
        raise BackendError(
            f"a view reaches bytes {low} to {high} of {view.buffer!r}", expected=f"bytes from 0 to {memory.nbytes}"
        )
    span = memory[low:high].view(dtype)
    strides = tuple(stride * dtype.itemsize for stride in view.strides)
    first = view.offset * dtype.itemsize - low
    return np.ndarray(view.shape, dtype, span, first, strides)


def aligned(nbytes: int) -> Bytes:
    """Fresh bytes, not set to anything, that begin as a buffer on a GPU does: at a multiple of BUFFER_ALIGNMENT."""
    raw = np.empty(nbytes + BUFFER_ALIGNMENT, np.uint8)
    begin = -raw.ctypes.data % BUFFER_ALIGNMENT
    return raw[begin : begin + nbytes]


def aligned_parts(sizes: Iterable[int]) -> list[Bytes]:
    """Parts of one block of fresh bytes, each of which begins as `aligned` does.

    NumPy asks for large pages for large blocks alone: of weights that lie apart, reading waits for the tables of pages.
    """
    places, total = [], 0
    for nbytes in sizes:
        places.append((total, total + nbytes))
        total = padded(total + nbytes)
    block = aligned(total)
    return [block[begin:end] for begin, end in places]
