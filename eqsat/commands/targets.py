"""Files a command writes: checked before any work is done, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from eqsat.errors import UsageError


def check_target(target: Path, sources: Iterable[Path]) -> None:
    """UsageError for a target that cannot be written, or that is one of the sources, by whatever name."""
    try:
        target.lstat()
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # a name beyond what the system allows
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(
            f"the target cannot be written: {reason}",
            where=str(target),
            expected="the path of a file to write",
            remedy="name another file",
        ) from error
    if target.exists() and not target.is_file():
        kind = "a folder" if target.is_dir() else "no regular file"
        raise UsageError(f"the target is {kind}", where=str(target), expected="the path of a file to write")
    folder = Path(os.path.realpath(target)).parent
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
    """True for one file under two names: paths, symbolic links or hard links.

    A path that the system cannot look up, such as links in a circle, is no file.
    """
    try:
        if is_there(one) and is_there(other):
            return one.samefile(other)
        return one.resolve() == other.resolve()
    except (OSError, RuntimeError, ValueError):
        return False


def is_there(path: Path) -> bool:
    """True for a file that exists; False for a name beyond what the system can look up."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def data_files(model: Path) -> list[Path]:
    """The files beside a model that hold its tensors; ImportModelError for a file that is no model."""
    from eqsat.language.onnx.files.protos import tensors
    from eqsat.language.onnx.files.reader import read

    entries = (e for tensor in tensors(read(model).model.graph) for e in tensor.external_data)
    # A name that is not UTF-8 comes as bytes; reading the model refuses it.
    locations = dict.fromkeys(e.value for e in entries if e.key == "location" and isinstance(e.value, str))
    return [model.parent / location for location in locations]
