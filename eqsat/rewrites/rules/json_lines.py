"""Files of records, one JSON object a line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from eqsat.errors import RuleError
from eqsat.system.files import write_text

Record = TypeVar("Record")


def read_json_lines(
    path: Path, make: Callable[[dict[str, Any]], Record], kind: str, writer: str, remedy: str
) -> Iterator[Record]:
    """The records of a file, each made of one object; RuleError with the line for one that is none of its kind.

    `writer` is what writes such files.
    """
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            yield make(json.loads(line))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RuleError(
                f"no {kind}: {error}",
                where=f"{path}:{number}",
                expected=f"one JSON object a line{writer and ', written by the '}{writer}",
                remedy=remedy,
            ) from None


def json_lines(records: Iterable[Any]) -> str:
    """Records, dataclasses or mappings, as one JSON object a line."""
    plain = (dict(one) if isinstance(one, Mapping) else asdict(one) for one in records)
    return "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in plain)


def write_json_lines(records: Iterable[Any], path: Path) -> None:
    """Write records in place of a file."""
    write_text(path, json_lines(records))
