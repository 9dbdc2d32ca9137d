"""A folder of files that can be made again, bounded in bytes: those least recently used go first."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from eqsat.system.files import whole


@dataclass(frozen=True)
class BoundedFolder:
    """Files by name, of `most` bytes together; any number of processes may share it.

    A file is written beside its place and moved there, so that it is whole or not there. Nothing here raises an
    OSError: a folder that cannot be read has no files, and one that cannot be written to gets none.
    """

    path: Path
    most: int
    suffix: str

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, which counts as used now; None where there is none."""
        path = self._file(name)
        try:
            content = path.read_bytes()
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)
        return content

    def write(self, name: str, content: bytes) -> bool:
        """Write a file in place of an older one, then remove the least recently used ones beyond the bound.

        False where the file is larger than the bound, or cannot be written.
        """
        if len(content) > self.most:
            return False
        path = self._file(name)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            with whole(path) as file:
                file.write(content)
        except OSError:
            return False
        self._shrink(path)
        return True

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(OSError):
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.path / f"{name}{self.suffix}"

    def _shrink(self, newest: Path) -> None:
        """Remove files until the rest is within the bound; the newest stays."""
        ages: list[tuple[int, int, Path]] = []
        with suppress(OSError):
            for path in self.path.glob(f"*{self.suffix}"):
                with suppress(OSError):  # another process may have removed it
                    state = path.stat()
                    ages.append((state.st_mtime_ns, state.st_size, path))
        total = sum(size for _, size, _ in ages)
        for _, size, path in sorted(ages):
            if total <= self.most:
                return
            if path != newest:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
                total -= size
