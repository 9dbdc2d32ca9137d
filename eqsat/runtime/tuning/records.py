"""Entries of the cache of tuned kernels, and their text as lines of JSON."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NoReturn

from eqsat.errors import UsageError
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.system.files import reason_of, write_text

#: The first line of an exported file.
HEADER = {"format": "eqsat tuned kernels", "version": 1}
_KEY_FIELDS = ("text", "shapes", "target", "architecture")
_FIELDS = {*_KEY_FIELDS, "options", "seconds", "payload"}


@dataclass(frozen=True, order=True)
class KernelKey:
    """The key of a tuned kernel; equal keys have equal results for equal operands, on devices of one architecture.

    `text` is the canonical text of a comprehension or a graph, `shapes` the text of its sizes and element types,
    `target` the language of the code ("c", "cuda"), and `architecture` names the device with what compiles for it.
    UsageError for texts that UTF-8 cannot state.
    """

    text: str
    shapes: str
    target: str
    architecture: str

    def __post_init__(self) -> None:
        for name, value in zip(_KEY_FIELDS, astuple(self), strict=True):
            _check_text(name, value)


@dataclass(frozen=True)
class KernelEntry:
    """The fastest known options of a kernel, their seconds, and what was compiled, if that is to be kept.

    UsageError for seconds that are not finite and above 0.
    """

    options: TuningCandidate
    seconds: float
    payload: str = ""

    def __post_init__(self) -> None:
        _check_text("payload", self.payload)
        seconds: Any = self.seconds
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 < seconds <= sys.float_info.max:
            raise UsageError(f"seconds = {seconds!r}", expected="a finite number above 0")
        object.__setattr__(self, "seconds", float(seconds))


def row_of(key: KernelKey, entry: KernelEntry) -> tuple[Any, ...]:
    """The row that states an entry, its checksum last."""
    options = entry.options.text
    return (*astuple(key), options, entry.seconds, entry.payload, _checksum(key, options, entry.seconds, entry.payload))


def record_of(row: Sequence[Any]) -> tuple[KernelKey, KernelEntry] | None:
    """The entry that a row states, with texts as bytes; None for a row that is not as it was written."""
    try:
        text, shapes, target, architecture, options, payload = (_decoded(row[place]) for place in (0, 1, 2, 3, 4, 6))
        key = KernelKey(text, shapes, target, architecture)
        entry = KernelEntry(TuningCandidate.from_text(options), row[5], payload)
    except (ValueError, UsageError):
        return None
    return (key, entry) if row[7] == _checksum(key, options, entry.seconds, payload) else None


def _decoded(cell: object) -> str:
    if not isinstance(cell, bytes):
        raise ValueError("a cell of another type")
    return cell.decode()


def _checksum(key: KernelKey, options: str, seconds: float, payload: str) -> bytes:
    """A checksum of an entry: SQLite has none, and a damaged page may still be a valid one."""
    parts = (*astuple(key), options, seconds.hex(), payload)
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).digest()


def write_records(path: Path, entries: Iterable[tuple[KernelKey, KernelEntry]]) -> None:
    """Write entries as lines of JSON after a header, in the order of their keys; UsageError where that fails."""
    lines = [json.dumps(HEADER), *(_line(key, entry) for key, entry in sorted(entries, key=lambda pair: pair[0]))]
    write_text(path, "".join(f"{line}\n" for line in lines))


def read_records(path: Path) -> list[tuple[KernelKey, KernelEntry]]:
    """The entries of an exported file; UsageError, with the line, for a file that is none."""
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the file cannot be read: {reason_of(error)}", where=str(path), expected="a file of exported kernels"
        ) from error
    # Other programs may leave out the last line end; lines are those of JSON, whose strings may hold other line ends.
    lines = content.removesuffix(b"\n").split(b"\n")
    return list(_records(path, lines))


def _records(path: Path, lines: list[bytes]) -> Iterator[tuple[KernelKey, KernelEntry]]:
    for number, line in enumerate(lines, start=1):
        try:
            value = _parsed(line)
            if number > 1:
                yield _record(value)
            elif value != HEADER:
                raise UsageError("a header of another format", expected=json.dumps(HEADER))
        except UsageError as error:
            raise UsageError(
                error.what,
                where=f"{path}:{number}",
                expected=error.expected,
                remedy="export the file again; nothing was imported",
            ) from error


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"a line that is no JSON: {error}", expected="one JSON object a line, in UTF-8") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"the constant {constant}")


def _record(value: Any) -> tuple[KernelKey, KernelEntry]:
    if not isinstance(value, dict) or value.keys() != _FIELDS:
        raise UsageError("a line with other fields than those of an entry", expected=", ".join(sorted(_FIELDS)))
    key = KernelKey(*(value[name] for name in _KEY_FIELDS))
    return key, KernelEntry(TuningCandidate.from_json(value["options"]), value["seconds"], value["payload"])


def _line(key: KernelKey, entry: KernelEntry) -> str:
    fields: dict[str, Any] = dict(zip(_KEY_FIELDS, astuple(key), strict=True))
    fields |= {"options": dict(entry.options), "seconds": entry.seconds, "payload": entry.payload}
    return json.dumps(fields)


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or value.encode(errors="replace").decode() != value:
        raise UsageError(f"{name} = {value!r}", expected="a text that UTF-8 can state")
