"""Files a command writes: checked before any work is done, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from eqsat.errors import UsageError


def check_target(target: Path, sources: Iterable[Path]) -> None:
    """UsageError for a target that cannot be written, or that is one of the sources, by whatever name."""
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "no regular file"
        raise UsageError(f"the target is {kind}", where=str(target), expected="the path of a file to write")
    folder = target.parent
    if not folder.is_dir():
        raise UsageError(
            "the folder of the target does not exist",
            where=str(target),
            expected="a file in an existing folder",
            remedy=f"create it: mkdir -p {folder}",
        )
    for source in sources:
        if is_same_file(target, source):
            raise UsageError(
                f"the target is the input {source}" if target != source else "the target is the input",
                where=str(target),
                expected="a file that nothing is read from",
                remedy="name another file",
            )
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"the target cannot be written: {error.strerror or error}",
            where=str(target),
            expected="a folder that can be written to",
            remedy="name another file, or change the permissions",
        ) from error


def is_same_file(one: Path, other: Path) -> bool:
    """True for one file under two names: paths, symbolic links or hard links."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return one.resolve() == other.resolve()


def data_files(model: Path) -> list[Path]:
    """The files beside a model that hold its tensors; ImportModelError for a file that is no model."""
    from eqsat.language.onnx.protos import tensors
    from eqsat.language.onnx.reader import read

    entries = (e for tensor in tensors(read(model).model.graph) for e in tensor.external_data)
    locations = dict.fromkeys(e.value for e in entries if e.key == "location")
    return [model.parent / location for location in locations]


def data_beside(target: Path) -> Path:
    """The file that takes the tensors of a model too large for one file."""
    return target.with_name(f"{target.name}.data")


def write_text(target: Path, text: str) -> None:
    """Writes a file beside its place, then moves it there; UsageError where that fails."""
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
