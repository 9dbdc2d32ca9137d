"""Files looked up by the parts they were made from: written whole, checked when read, the oldest dropped first."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import warnings
from pathlib import Path

from eqsat.system.cache import cache_folder
from eqsat.system.files import staged

CACHE_VARIABLE = "EQSAT_KERNEL_CACHE"
MEBIBYTE = 1 << 20
#: A store is cut back to nine tenths of this once it holds more.
LIMIT_BYTES = 512 * MEBIBYTE

_MAGIC = b"eqsat kernel 1\n\0"
_DIGEST = 32
_SUFFIX = ".kernel"
_ABANDONED_SECONDS = 3600.0


def kernel_folder() -> Path:
    """The folder of compiled kernels: EQSAT_KERNEL_CACHE, or a folder of the user's cache."""
    named = os.environ.get(CACHE_VARIABLE)
    return Path(named) if named else cache_folder() / "kernels"


def key_of(*parts: str) -> str:
    """A name for an object made from the parts; other parts, or the same text cut elsewhere, have another.

    >>> key_of("a", "bc") == key_of("ab", "c")
    False
    """
    digest = hashlib.blake2b(digest_size=20)
    for part in parts:
        text = part.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()


class Store:
    """Bytes by key in a folder that any number of processes read and write at once.

    An entry that is torn, changed, of another key or no entry at all counts as missing. Where the folder cannot be
    written the store holds nothing, and says so once.
    """

    def __init__(self, folder: Path | None = None, limit: int = LIMIT_BYTES) -> None:
        self.folder = kernel_folder() if folder is None else folder
        self.limit = limit
        self._said = False

    def path(self, key: str) -> Path:
        """The file of a key."""
        return self.folder / f"{key}{_SUFFIX}"

    def get(self, key: str) -> bytes | None:
        """The bytes stored under a key, or None."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head = len(_MAGIC) + _DIGEST
        payload = data[head:]
        if data[:head] != _MAGIC + _checksum(key, payload):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # the entries unused for longest are dropped first
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Keep bytes under a key: all of them or none."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.path(key)
            with staged(path, _SUFFIX) as (file, partial):
                file.write(_MAGIC + _checksum(key, payload) + payload)
                file.close()
                partial.replace(path)
            self._prune()
        except OSError as error:
            self._say(error)

    def _prune(self) -> None:
        now = time.time()
        entries: list[tuple[float, int, Path]] = []
        for path in self.folder.glob(f"*{_SUFFIX}"):
            with contextlib.suppress(FileNotFoundError):  # another process drops entries as well
                state = path.stat()
                if path.name.startswith(".") and now - state.st_mtime < _ABANDONED_SECONDS:
                    continue  # another process is writing it
                entries.append((0.0 if path.name.startswith(".") else state.st_mtime, state.st_size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self.limit:
            return
        for _, size, path in sorted(entries):
            if total <= self.limit * 9 // 10:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _say(self, error: OSError) -> None:
        if self._said:
            return
        self._said = True
        warnings.warn(
            f"compiled kernels are not kept: {error}; set {CACHE_VARIABLE} to a folder that can be written",
            RuntimeWarning,
            stacklevel=4,
        )


def _checksum(key: str, payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_DIGEST, key=hashlib.blake2b(key.encode()).digest()).digest()
