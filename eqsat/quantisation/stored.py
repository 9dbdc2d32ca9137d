"""Calibration arrays in files: an `.npz`, or a folder of `.npy`.

A key of the `.npz`, or a path in the folder without its ending, names an input and a batch: `NAME` alone, `NAME_7` or
`7/NAME`. An array under `NAME` alone is one batch if it has the input's rank, and one batch for each index of its first
axis if it has one more.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from eqsat.errors import UsageError, first_line, nearest
from eqsat.language.terms import Graph, TensorType
from eqsat.quantisation.forms import STORED_FORMS

Array = np.ndarray[Any, np.dtype[Any]]
#: Reads an array from a file.
Opener: TypeAlias = Callable[[], Array]

#: What reading an array of a damaged file raises.
_UNREADABLE = (ValueError, OSError, EOFError, KeyError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error)


def stored_batches(path: Path, graph: Graph) -> Iterator[dict[str, Array]]:
    """The batches in a file or folder, in the order of their numbers, each read when it is asked for.

    UsageError for a file that cannot be read or holds pickled objects, for a folder without `.npy` files, and for
    arrays that are of no input, or not of every batch.
    """
    with ExitStack() as files:
        openers = _folder(path) if path.is_dir() else _archive(path, files)
        yield from _batches(openers, graph, path)


def _batches(openers: dict[str, Opener], graph: Graph, path: Path) -> Iterator[dict[str, Array]]:
    """The batches of the arrays under these keys."""
    named = [_place(key, graph, path) for key in openers]
    by_input: dict[str, dict[int | None, Opener]] = {}
    for (name, number), (key, opener) in zip(named, openers.items(), strict=True):
        numbered = by_input.setdefault(name, {})
        if number in numbered or (numbered and (None in numbered) != (number is None)):
            raise UsageError(
                f"{key!r} is a second array of input {name!r}",
                where=str(path),
                expected="one array of all batches, or one of each",
            )
        numbered[number] = opener
    yield from _joined({name: _arrays(graph, name, numbered) for name, numbered in by_input.items()}, path)


def _joined(by_input: dict[str, dict[int, Opener]], path: Path) -> Iterator[dict[str, Array]]:
    """The batches of all inputs; UsageError where an input lacks one that another has."""
    for number in sorted({number for batches in by_input.values() for number in batches}):
        for name, batches in by_input.items():
            if number not in batches:
                held = next(other for other in by_input if number in by_input[other])
                raise UsageError(
                    f"input {held!r} has batch {number}, and input {name!r} has none",
                    where=str(path),
                    expected="the same batches of every input",
                    remedy="stack the batches of an input along a new first axis, or number its arrays from 0",
                )
        yield {name: batches[number]() for name, batches in by_input.items()}


def _arrays(graph: Graph, name: str, numbered: dict[int | None, Opener]) -> dict[int, Opener]:
    """The batches of one input by their number."""
    alone = numbered.get(None)
    if alone is None:
        return {number: opener for number, opener in numbered.items() if number is not None}
    type, array = graph.type(name), alone()
    if isinstance(type, TensorType) and type.shape is not None and array.ndim == len(type.shape) + 1:
        return {number: (lambda number=number: array[number]) for number in range(len(array))}  # type: ignore[misc]
    return {0: lambda: array}


def _place(key: str, graph: Graph, path: Path) -> tuple[str, int | None]:
    """The input that a key names, and the number of the batch."""
    if key in graph.inputs:
        return key, None
    for pattern in (r"(?P<number>\d+)/(?P<name>.+)", r"(?P<name>.+)_(?P<number>\d+)"):
        match = re.fullmatch(pattern, key, re.DOTALL)
        if match and match["name"] in graph.inputs:
            return match["name"], int(match["number"])
    raise UsageError(
        f"{key!r} is no input",
        where=str(path),
        expected="inputs " + (", ".join(graph.inputs) or "none") + ", each as NAME, NAME_0 or 0/NAME",
        remedy=nearest(key, graph.inputs),
    )


def _folder(path: Path) -> dict[str, Opener]:
    """The arrays in a folder by their path in it without its ending."""
    files = sorted(file for file in path.rglob("*.npy") if file.is_file())
    if not files:
        raise UsageError("no .npy file in this folder", where=str(path), expected=STORED_FORMS)

    def opener(file: Path) -> Opener:
        # Mapped: of an array with more batches than are read, the others stay on the disk.
        return lambda: _read(lambda: np.load(file, mmap_mode="r", allow_pickle=False), str(file))

    return {file.relative_to(path).with_suffix("").as_posix(): opener(file) for file in files}


def _archive(path: Path, files: ExitStack) -> dict[str, Opener]:
    """The arrays of an `.npz` by their keys."""
    stored = files.enter_context(_read(lambda: np.load(path, allow_pickle=False), str(path)))
    if not stored.files:
        raise UsageError("an .npz file without arrays", where=str(path), expected=STORED_FORMS)

    def opener(key: str) -> Opener:
        return lambda: _read(lambda: _array_of(stored[key]), f"{path}, {key}")

    return {key: opener(key) for key in stored.files}


def _array_of(member: Any) -> Array:
    """A member of an archive, which is bytes if it is not in NumPy's format."""
    if not isinstance(member, np.ndarray):
        raise ValueError("not in NumPy's format")
    return member


def _read(load: Callable[[], Any], where: str) -> Any:
    try:
        return load()
    except _UNREADABLE as error:
        pickled = "allow_pickle" in str(error)
        raise UsageError(
            "pickled objects, which are not read" if pickled else f"no array can be read: {first_line(error)}",
            where=where,
            expected="an array of numbers as numpy.save or numpy.savez writes it",
        ) from error
