"""Files written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from eqsat.errors import UsageError


def write_text(target: Path, text: str) -> None:
    """Write a file beside its place, then move it there; UsageError where that fails."""
    try:
        handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(partial).chmod(0o666 & ~_umask())
            Path(partial).replace(target)
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"the file cannot be written: {error.strerror or error}",
            where=str(target),
            expected="a folder that can be written to, and room on the disk",
            remedy="free space, or name another file",
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
