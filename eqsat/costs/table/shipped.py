"""The measured entries that come with eqsat: one file of JSON lines for each device that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType

from eqsat.costs.table.entry import Entry, TableRecord
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.lines import read_records

#: Folder of the files, which are named after the devices.
FOLDER = resources.files("eqsat.costs") / "devices"


@cache
def shipped_records(device: str) -> tuple[TableRecord, ...]:
    """Every shipped entry of a device, none where it was not measured."""
    file = FOLDER / f"{device}.jsonl"
    return tuple(read_records(file.read_text(encoding="utf-8"), file.name, check=False)) if file.is_file() else ()


@cache
def shipped_entries(environment: Environment) -> Mapping[str, Entry]:
    """The shipped entries of one environment by the text of their keys."""
    records = shipped_records(environment.device)
    return MappingProxyType({r.key: r.entry for r in records if r.environment == environment})
