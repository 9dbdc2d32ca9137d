"""Files written whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from eqsat.errors import UsageError

#: The reason why a pipe or a device is not read: opening a pipe waits for whoever writes to it; a device has no end.
NO_FILE = "no regular file"


def unreadable(path: Path) -> str | None:
    """The reason why a file cannot be read, None where it can be."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return NO_FILE
        with path.open("rb"):
            return None
    except (OSError, ValueError) as error:
        return reason_of(error)


def reason_of(error: OSError | ValueError) -> str:
    """The reason why the system refused a path: its own words, or those of Python for a name it cannot look up."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


@contextmanager
def staged(target: Path, suffix: str = "") -> Iterator[tuple[BinaryIO, Path]]:
    """A new file beside a target, open for writing, and its path; it is removed in the end unless it was moved."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-", suffix=suffix)
    path = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, path
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


@contextmanager
def lent(text: str) -> Iterator[Path]:
    """A path under which this process can read a text, for libraries that read files alone; OSError where it has none.

    The file is one of memory where the system has them, else a temporary one.
    """
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("eqsat")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", closefd=False) as file:
                file.write(text)
            if (path := Path(f"/proc/self/fd/{handle}")).exists():
                yield path
                return
        finally:
            os.close(handle)
    with tempfile.TemporaryDirectory(prefix="eqsat-") as folder:
        path = Path(folder) / "lent"
        path.write_text(text, encoding="utf-8")
        yield path


@contextmanager
def whole(target: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of a target once it is whole; OSError leaves the target as it was."""
    with staged(target) as (file, path):
        yield file
        file.close()
        path.chmod(mode_for(target))
        path.replace(target)


def write_text(target: Path, text: str) -> None:
    """Write a file beside its place, then move it there; UsageError where that fails."""
    try:
        with whole(target) as file:
            file.write(text.encode())
    except OSError as error:
        raise UsageError(
            f"the file cannot be written: {error.strerror or error}",
            where=str(target),
            expected="a folder that can be written to, and room on the disk",
            remedy="free space, or name another file",
        ) from error


def mode_for(target: Path) -> int:
    """The permissions of a file that is there, or those of a new one."""
    if target.exists():
        return target.stat().st_mode & 0o7777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
