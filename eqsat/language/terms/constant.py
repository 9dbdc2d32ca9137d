"""Constant tensors, compared by dtype, shape and bytes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.language.terms.matrices import diagonal_of, rows_attend
from eqsat.language.terms.types import DType, TensorType
from eqsat.system.deadline import check
from eqsat.system.mapped import FilePart

Array = np.ndarray[Any, np.dtype[Any]]
#: Elements of a tensor that are looked at together.
PART = 1 << 22


class Constant:
    """An immutable tensor known before the program runs; its bytes may be read from a file on first use.

    `place` says where they lie in a mapped file, as ONNX stores them, None where they do not. Elements in a mapped file
    need not begin at a multiple of their size.

    Two constants are one when dtype, shape and bytes agree, so -0.0 differs from 0.0 and NaN equals itself.

    >>> Constant.of(np.float32([0.0])).digest == Constant.of(np.float32([-0.0])).digest
    False
    """

    __slots__ = ("_array", "_attends", "_diagonal", "_digest", "_finite", "_load", "place", "type")

    def __init__(self, type: TensorType, load: Callable[[], Array], place: FilePart | None = None) -> None:
        self.type = type
        self.place = place
        self._load: Callable[[], Array] | None = load
        self._array: Array | None = None
        self._digest: bytes | None = None
        self._finite: bool | None = None
        self._attends: bool | None = None
        self._diagonal: tuple[float | None] | tuple[()] = ()

    @staticmethod
    def of(array: Any, dtype: DType | None = None) -> Constant:
        """A constant holding a copy-free, read-only view of an array."""
        data = np.asarray(array) if dtype is None else np.asarray(array, dtype.numpy)
        view = data.view()
        view.flags.writeable = False
        constant = Constant(TensorType(dtype or DType.of(data.dtype), tuple(data.shape)), lambda: view)
        constant._array = view
        return constant

    @property
    def array(self) -> Array:
        """The elements, read-only."""
        if self._array is None:
            if self._load is None:
                raise RuntimeError("a constant without a loader has no elements")
            loaded = np.asarray(self._load()).view()
            loaded.flags.writeable = False
            self._array, self._load = loaded, None
        return self._array

    @property
    def nbytes(self) -> int:
        """Bytes the elements take, known without loading them."""
        return math.prod(self.type.static) * self.type.dtype.itemsize

    @property
    def digest(self) -> bytes:
        """A hash of dtype, shape and bytes; equal constants have equal digests."""
        if self._digest is None:
            head = f"{self.type}".encode()
            array = self.array
            body: Any
            if self.type.dtype is DType.STRING:
                body = repr([bytes(x) if isinstance(x, bytes) else str(x) for x in array.ravel()]).encode()
            else:
                body = _bytes_of(array)
            digest = hashlib.blake2b(digest_size=16, key=hashlib.blake2b(head, digest_size=16).digest())
            for start in range(0, len(body), 4 * PART):
                check(0)
                digest.update(body[start : start + 4 * PART])
            self._digest = digest.digest()
            self.release()
        return self._digest

    def same_as(self, other: Constant) -> bool:
        """True if both are one constant: of one type, and equal by their hashes and then byte for byte."""
        if self is other:
            return True
        if self.type != other.type or self.digest != other.digest:
            return False
        if self.type.dtype is DType.STRING:
            return bool((self.array == other.array).all())
        return _bytes_of(self.array) == _bytes_of(other.array)

    def release(self) -> None:
        """Take the elements out of the memory of the process, if they lie in a mapped file; they come back on use."""
        if self.place is not None:
            self.place.release()

    @property
    def is_finite(self) -> bool:
        """True where no element is an infinity or NaN; elements that are no floats never are."""
        if self._finite is None:
            self._finite = not self.type.dtype.is_float or all(map(_all_finite, self._parts()))
            self.release()
        return self._finite

    @property
    def attends(self) -> bool:
        """True where no row along the last axis, as a mask of attention, hides all keys from its query."""
        if self._attends is None:
            self._attends = rows_attend(self.array)
        return self._attends

    @property
    def diagonal(self) -> float | None:
        """The number on the diagonal of a square matrix with zeros beside it, else None."""
        if not self._diagonal:
            self._diagonal = (diagonal_of(self.array),)
        return self._diagonal[0]

    def _parts(self) -> Iterator[Array]:
        """The elements in parts of some megabytes: a tensor of gigabytes has no copy, and work on it can be ended."""
        flat = self.array.reshape(-1) if self.array.flags.c_contiguous else self.array.ravel()
        for start in range(0, flat.size, PART):
            check(1 + min(flat.size - start, PART) // 4096)
            yield flat[start : start + PART]

    def __repr__(self) -> str:
        return f"Constant({self.type})"


def _bytes_of(array: Array) -> memoryview:
    """The bytes of elements in row-major order, without a copy where they lie so."""
    data: memoryview = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return data


def _all_finite(array: Array) -> bool:
    return bool(np.isfinite(array if array.dtype.kind == "f" else array.astype(np.float32)).all())


def narrowed(array: Array, dtype: DType) -> Array:
    """Elements in another type; a finite float beyond its range becomes the largest that there is, and stays finite.

    >>> [float(x) for x in narrowed(np.float32([-3e38, np.inf]), DType.FLOAT16)]
    [-65504.0, inf]
    """
    if not dtype.is_float or not DType.of(array.dtype).is_float or dtype.itemsize >= array.dtype.itemsize:
        return array.astype(dtype.numpy)
    with np.errstate(over="ignore"):
        narrow = array.astype(dtype.numpy)
    lost = ~np.isfinite(narrow.astype(np.float32)) & np.isfinite(array)
    if not lost.any():
        return narrow
    largest = np.finfo(np.float16).max if dtype is DType.FLOAT16 else ml_dtypes.finfo(dtype.numpy).max
    return np.where(lost, np.copysign(np.asarray(largest, array.dtype), array), array).astype(dtype.numpy)
