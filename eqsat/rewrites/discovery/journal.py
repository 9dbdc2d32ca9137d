"""Long work in steps or parts whose results are stored, so that interrupted work goes on where it stood."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path
from types import TracebackType
from typing import IO, Any, TypeAlias

import numpy as np

from eqsat.system.files import whole


class Journal:
    """Results by key, kept in a file as they come; without a path they are kept in memory alone.

    `subject` identifies the input: what a file holds of another subject is forgotten. A line that an interruption cut
    off is none.
    """

    def __init__(self, path: Path | None = None, subject: str = "") -> None:
        self.path = path
        self._known: dict[str, Any] = {}
        self._file: IO[str] | None = None
        if path is None:
            return
        head = json.dumps({"subject": subject})
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        if lines[:1] == [head]:
            self._known = dict(_entries(lines[1:]))
        self._file = path.open("w", encoding="utf-8")
        self._file.write(head + "\n")
        for key, value in self._known.items():
            self._write(key, value)

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Any:
        return self._known[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self._known[key] = value
        self._write(key, value)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file; remove it where the work was finished."""
        if self._file is not None:
            self._file.close()
        if kind is None and self.path is not None:
            self.path.unlink(missing_ok=True)

    def _write(self, key: str, value: Any) -> None:
        if self._file is not None:
            self._file.write(json.dumps([key, value]) + "\n")
            self._file.flush()


def _entries(lines: Iterable[str]) -> Iterable[tuple[str, Any]]:
    for line in lines:
        try:
            key, value = json.loads(line)
        except ValueError:
            return
        yield key, value


def subject_of(texts: Iterable[str]) -> str:
    """A digest of the input of some work."""
    digest = hashlib.blake2b(digest_size=12)
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()


#: Called with a stage, how many of its parts are done, and how many there are.
Follow: TypeAlias = Callable[[str, int, int], None]


def silent(stage: str, done: int, total: int) -> None:
    """Progress that no one follows."""


#: The result of one part: arrays by name.
Arrays: TypeAlias = Mapping[str, Any]


class Parts:
    """Results by name in a folder, or in memory where there is none; `subject` tells those of other settings apart."""

    def __init__(self, folder: Path | None, subject: str) -> None:
        self.folder, self.subject = folder, subject
        self._held: dict[str, Arrays] = {}
        if folder is None:
            return
        folder.mkdir(exist_ok=True)
        for path in folder.iterdir():
            # A name with a dot first is of a file that a process was writing when it was killed.
            if path.name.startswith(".") or (path.suffix == ".npz" and not path.name.startswith(subject + "-")):
                path.unlink()

    def __contains__(self, name: str) -> bool:
        return name in self._held or self._load(name) is not None

    def keep(self, name: str, arrays: Arrays) -> None:
        """Store a result, whole or not at all."""
        if self.folder is None:
            self._held[name] = arrays
            return
        with whole(self._path(name)) as file:
            np.savez(file, **arrays)

    def take(self, name: str) -> Arrays:
        """A result that was stored."""
        result = self._held.pop(name, None) or self._load(name)
        if result is None:
            raise KeyError(name)
        return result

    def clear(self) -> None:
        """Remove everything stored, and the folder if nothing else is in it."""
        self._held.clear()
        if self.folder is not None and self.folder.is_dir():
            for path in self.folder.glob(self.subject + "-*"):
                path.unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()

    def _path(self, name: str) -> Path:
        folder = self.folder or Path(os.devnull)
        return folder / f"{self.subject}-{name}.npz"

    def _load(self, name: str) -> Arrays | None:
        if self.folder is None or not self._path(name).is_file():
            return None
        try:
            with np.load(self._path(name)) as stored:
                return {k: stored[k] for k in stored.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None


def finished(
    parts: Parts,
    work: Callable[..., Arrays],
    tasks: Sequence[tuple[str, tuple[Any, ...]]],
    executor: Executor | None,
    advance: Callable[[str], None],
) -> Iterator[Arrays]:
    """The results of all tasks, in their order; those not stored yet are worked out first, over the executor."""
    missing = [(name, given) for name, given in tasks if name not in parts]
    ready = {name for name, _ in missing}
    for name, _ in tasks:
        if name not in ready:
            advance(name)
    if executor is None:
        for name, given in missing:
            parts.keep(name, work(*given))
            advance(name)
    else:
        running = {executor.submit(work, *given): name for name, given in missing}
        try:
            for future in as_completed(running):
                parts.keep(running[future], future.result())
                advance(running[future])
        finally:
            for future in running:
                future.cancel()
    for name, _ in tasks:
        yield parts.take(name)
