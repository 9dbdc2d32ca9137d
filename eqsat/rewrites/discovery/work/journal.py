"""A journal of finished steps, from which interrupted work goes on where it stood."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any


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
    """A digest of what some work is about."""
    digest = hashlib.blake2b(digest_size=12)
    for text in texts:
        digest.update(text.encode() + b"\0")
    return digest.hexdigest()
