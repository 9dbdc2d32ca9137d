"""Evidence on the laws of a user's operators, kept from one process to the next."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from eqsat.rewrites.rules.evidence import Evidence, rule_hash
from eqsat.rewrites.rules.rule import Rule
from eqsat.system.cache import cache_folder

#: The environment variable that names another file.
VARIABLE = "EQSAT_EVIDENCE"
#: A file that has grown beyond so many bytes begins anew.
MOST_BYTES = 4_000_000


def evidence_path() -> Path:
    """The file named by EQSAT_EVIDENCE, or one in the user's cache folder."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else cache_folder() / "evidence.jsonl"


def recalled(rules: Sequence[Rule]) -> dict[str, Evidence]:
    """The records that are current for these rules, by name; lines that are no records are skipped."""
    path = evidence_path()
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    wanted = {rule.name: rule_hash(rule) for rule in rules}
    found: dict[str, Evidence] = {}
    for line in lines:
        try:
            record = Evidence(**json.loads(line))
        except (TypeError, ValueError):
            continue
        if wanted.get(record.name) == record.hash:
            found[record.name] = record
    return found


def remember(records: Iterable[Evidence]) -> None:
    """Add records to the file; a folder that cannot be written to costs only time."""
    text = "".join(json.dumps(asdict(r), ensure_ascii=False) + "\n" for r in records)
    if not text:
        return
    path = evidence_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        full = path.exists() and path.stat().st_size > MOST_BYTES
        with path.open("w" if full else "a", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return
