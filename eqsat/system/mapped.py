"""Files whose bytes are read where they lie, in pages that the system loads when they are touched."""

from __future__ import annotations

import mmap
import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_OPEN: weakref.WeakSet[MappedFile] = weakref.WeakSet()


class MappedFile:
    """A file in the address space of the process; `bytes` is an array over all of it that has no copy.

    It takes no memory of its own: the system may drop its pages at any time, and loads them again where they are
    touched. A file that is moved to its place later changes nothing here; writing over its bytes does. OSError or
    ValueError where it cannot be mapped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._state = _state(os.fstat(file.fileno()))
            self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self.bytes: np.ndarray[Any, np.dtype[np.uint8]] = np.frombuffer(self._map, np.uint8)
        _OPEN.add(self)

    @property
    def is_overwritten(self) -> bool:
        """True if the bytes are no longer those that were mapped."""
        return _state(os.fstat(self._descriptor)) != self._state

    @property
    def is_in_place(self) -> bool:
        """False where the path leads to another file by now, or to none."""
        try:
            return _state(self.path.stat()) == self._state
        except OSError:
            return False

    def release(self, offset: int = 0, length: int | None = None) -> None:
        """Take its pages out of the memory of the process, where the system can be told; they come back on use."""
        if hasattr(mmap, "MADV_DONTNEED"):
            start = offset - offset % mmap.PAGESIZE
            self._map.madvise(
                mmap.MADV_DONTNEED, start, (len(self._map) if length is None else offset + length) - start
            )


@dataclass(frozen=True, slots=True)
class FilePart:
    """So many bytes of a mapped file, from an offset on."""

    file: MappedFile
    offset: int
    length: int

    @property
    def bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The bytes, without a copy."""
        return self.file.bytes[self.offset : self.offset + self.length]

    def release(self) -> None:
        """Take the pages of the bytes out of the memory of the process; they come back on use."""
        self.file.release(self.offset, self.length)


def mapped(path: Path) -> MappedFile:
    """The file as it is mapped already, or mapped now: pages that are mapped twice count twice."""
    resolved = path.resolve()
    there = (file for file in list(_OPEN) if file.path == resolved and file.is_in_place and not file.is_overwritten)
    return next(there, None) or MappedFile(path)


def release_mapped() -> None:
    """Take the pages of all mapped files out of the memory of the process, before another library maps them itself."""
    for file in list(_OPEN):
        file.release()


def _state(stated: os.stat_result) -> tuple[int, ...]:
    """The numbers of a file that change when another one takes its place, or its bytes change."""
    return stated.st_dev, stated.st_ino, stated.st_size, stated.st_mtime_ns
