"""Putting files in their places: each whole or not at all, and a model never beside tensors that are another's."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from eqsat.errors import ExportModelError
from eqsat.system.files import mode_for, staged

try:
    import fcntl
except ImportError:  # a system without it: two that write one model at once are not kept apart
    fcntl = None  # type: ignore[assignment]

Write = Callable[[BinaryIO], object]


def place_of(path: Path) -> Path:
    """The file that a path leads to, through symbolic links."""
    return Path(os.path.realpath(path))


def data_place(path: Path) -> Path:
    """The file for a model's tensors: beside the file that the path leads to, where whoever reads that looks."""
    target = place_of(path)
    return target.parent / f"{target.name}.data"


def replace(path: Path, write: Write, where: str) -> None:
    """Write a file under a temporary name in the same folder, then put it in its place.

    ExportModelError where that fails; the file that was there before stays.
    """
    target = place_of(path)
    with _errors_told(where):
        _refuse_folder(target)
        with _staged(target, write) as staged:
            staged.replace(target)
            _settle(target.parent)


def replace_both(path: Path, write_model: Callable[[BinaryIO, str], object], write_data: Write, where: str) -> None:
    """Write a model and its tensors; `write_model` is told the name of the file that these are in.

    At every moment the model that is there, the old one or the new one, names the data it belongs to: where there is a
    model already, the new one first names its data by a name of their own, and once those have the usual name too, by
    that. ExportModelError where it fails; both files are then as they were.
    """
    target, data = place_of(path), data_place(path)
    own = target.with_name(f"{target.name}.{secrets.token_hex(8)}.data")
    usual, first = (lambda file: write_model(file, data.name)), (lambda file: write_model(file, own.name))
    with _errors_told(where):
        _refuse_folder(target)
        _refuse_folder(data)
        with (
            _staged(data, write_data) as staged,
            _staged(target, usual) as final,
            _staged(target, first) as between,
            _alone(target.parent) as alone,
        ):
            if os.path.lexists(target):
                _exchange(target, data, own, staged, between, final)
            else:
                _put_both(target, data, staged, final)
            if alone:
                _clear(target, own)


def _put_both(target: Path, data: Path, staged: Path, final: Path) -> None:
    """Put a model and its data where no model is."""
    try:
        staged.replace(data)
        _settle(target.parent)
        final.replace(target)
    except BaseException:  # Ctrl-C is one, and may come just after what it is told of
        if final.exists() and not staged.exists():
            data.unlink()
        raise
    _settle(target.parent)


def _exchange(target: Path, data: Path, own: Path, staged: Path, between: Path, final: Path) -> None:
    """Replace a model and its data, through a model that names the new data by a name that no model had."""
    try:
        staged.replace(own)
        _settle(target.parent)
        between.replace(target)
    except BaseException:  # Ctrl-C is one, and may come when the model that is there names this data already
        if between.exists():
            own.unlink(missing_ok=True)
        raise
    _settle(target.parent)
    # From here on the new model is there and whole. Where the system has no second names, its data keep their own.
    with contextlib.suppress(OSError):
        os.link(own, staged)
        staged.replace(data)
        _settle(target.parent)
        final.replace(target)
        _settle(target.parent)
        own.unlink()


def _clear(target: Path, own: Path) -> None:
    """Remove data under names of their own that processes left behind when they were killed, but not `own`.

    Whoever writes this model does so alone, and the model that is there names `own` or the usual place.
    """
    size = len(own.name)
    for other in target.parent.iterdir():
        name = other.name
        if len(name) == size and name.startswith(f"{target.name}.") and name.endswith(".data") and other != own:
            with contextlib.suppress(OSError, ValueError):
                int(name[len(target.name) + 1 : -len(".data")], 16)
                other.unlink()


@contextmanager
def _staged(target: Path, write: Write) -> Iterator[Path]:
    """A file with the contents and permissions that the target is to have, under a temporary name beside it."""
    with staged(target, ".tmp") as (file, temporary):
        write(file)
        file.flush()
        os.fsync(file.fileno())
        file.close()
        temporary.chmod(mode_for(target))
        yield temporary


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Make others that replace a model and its data in this folder wait; False where the system cannot."""
    if fcntl is None:
        yield False
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:  # some network file systems
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _settle(folder: Path) -> None:
    """Have the system write down the names in a folder before it goes on, where it can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _refuse_folder(target: Path) -> None:
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, "it is a folder")


@contextmanager
def _errors_told(where: str) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise ExportModelError(
            f"the file cannot be written: {fault.strerror or fault}",
            where=where,
            expected="a folder that exists, may be written to, and has room",
            remedy="nothing was written; choose another path, or make room",
        ) from fault
