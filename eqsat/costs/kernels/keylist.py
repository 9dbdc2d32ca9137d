"""Lists of kernels to measure, as text files: written where models are optimised, read where they are measured."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from eqsat.costs.kernels.fusion import FUSED, FusedKey, Key
from eqsat.costs.kernels.key import OpKey
from eqsat.errors import CostError
from eqsat.language import ops  # noqa: F401  (registers the operators)

#: The first line of the file.
HEADER = "# eqsat keys, version 1"


def write_keys(keys: Iterable[Key]) -> str:
    """Keys as lines, each once, in their order."""
    return "\n".join([HEADER, *dict.fromkeys(key.text for key in keys)]) + "\n"


def read_keys(path: Path) -> tuple[Key, ...]:
    """The keys of a file in their order; CostError, with file and line, for an invalid one."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8 text"
        raise CostError(f"the file cannot be read: {reason}", where=str(path), expected="a list of keys") from error
    if not lines or lines[0] != HEADER:
        raise CostError(
            f"no list of keys: {lines[0][:80] if lines else ''!r}",
            where=f"{path}:1",
            expected=HEADER,
            remedy="`eqsat measure --list FILE MODEL…` writes one",
        )
    keys: dict[Key, None] = {}
    for number, line in enumerate(lines[1:], 2):
        try:
            key: Key = FusedKey.parse(line) if FUSED in line else OpKey.parse(line)
        except CostError as error:
            raise error.at(f"{path}:{number}") from error
        keys.setdefault(key)
    return tuple(keys)
