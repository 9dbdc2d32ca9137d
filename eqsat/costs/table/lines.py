"""Tables as JSON lines, the form in which they leave a machine: a header, then one line an entry."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NoReturn

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.fusion import FUSED, FusedKey
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.microbenchmark import result_types
from eqsat.costs.model.whole_graphs import WHOLE, WholeKey
from eqsat.costs.table.entry import Entry, TableRecord
from eqsat.costs.table.environment import Environment
from eqsat.errors import CostError
from eqsat.language.ops import OPS

#: The first line of the file.
FORMAT, VERSION = "eqsat cost table", 1
_HEADER = {"format": FORMAT, "version": VERSION}
_REQUIRED = ("environment", "key", "seconds", "p10", "p90", "samples")
_OPTIONAL = ("plan", "hot")


def write_records(records: Iterable[TableRecord]) -> str:
    """Entries as JSON lines, in the order of environment and key: equal tables are equal text."""
    ordered = sorted(records, key=lambda r: (r.environment.text, r.key))
    lines = [json.dumps(_HEADER), *(_line(r) for r in ordered)]
    return "\n".join(lines) + "\n"


def read_records(text: str, where: str, *, check: bool = True, own: Collection[str] = ()) -> Iterator[TableRecord]:
    """The entries in JSON lines, in their order; CostError, with file and line, for the first that is malformed.

    With `check`, each key must be one that this version of eqsat can cost, on a device that it knows or one of `own`,
    the names of devices that have files.
    """
    first_seen: dict[tuple[Environment, str], int] = {}
    environments: dict[str, Environment] = {}
    rows = text.split("\n")
    if rows[-1] == "":
        rows.pop()
    _check_header(rows[0] if rows else "", f"{where}:1")
    for number, row in enumerate(rows[1:], 2):
        try:
            record = _record(_object(row), environments)
            if check:
                check_record(record, own)
        except CostError as error:
            raise error.at(f"{where}:{number}") from error
        earlier = first_seen.setdefault((record.environment, record.key), number)
        if earlier != number:
            raise CostError(
                f"the key {record.key!r} again, as on line {earlier}",
                where=f"{where}:{number}",
                expected="each key once for an environment",
                remedy="remove one of the two lines",
            )
        yield record


def check_record(record: TableRecord, own: Collection[str] = ()) -> None:
    """CostError for an entry that this version of eqsat would never use; `own` are names of devices that have files."""
    if record.environment.device not in own:
        Device.of(record.environment.device)
    if record.key.startswith(WHOLE):
        WholeKey.parse(record.key)
        return
    key = FusedKey.parse(record.key) if FUSED in record.key else OpKey.parse(record.key)
    for member in key.members if isinstance(key, FusedKey) else (key,):
        _check_operator(member, record.key)
    if key.text != record.key:
        raise CostError(f"the key {record.key!r}", expected=f"it as it is written: {key.text!r}")


def _check_operator(key: OpKey, text: str) -> None:
    remedy = "update eqsat, or leave the line out"
    if key.op not in OPS:
        raise CostError(f"no operator {key.op!r}", expected="one of this version of eqsat", remedy=remedy)
    try:
        result_types(key)
    except CostError as error:
        expected = error.expected or "operands that the operator accepts"
        raise CostError(error.what, where=text, expected=expected, remedy=remedy) from error


def _line(record: TableRecord) -> str:
    entry = record.entry
    values: dict[str, Any] = {"environment": json.loads(record.environment.text), "key": record.key}
    values |= {name: getattr(entry, name) for name in ("seconds", "p10", "p90", "samples")}
    values |= {"plan": entry.plan} if entry.plan else {}
    values |= {} if entry.hot is None else {"hot": entry.hot}
    return json.dumps(values, ensure_ascii=False, allow_nan=False)


def _check_header(row: str, where: str) -> None:
    remedy = "write the table anew with `eqsat costs export`"
    try:
        header = _object(row)
    except CostError:
        header = {}
    if header.get("format") != FORMAT:
        raise CostError(f"no header: {row[:80]!r}", where=where, expected=json.dumps(_HEADER), remedy=remedy)
    if header.get("version") != VERSION or header.keys() != _HEADER.keys():
        raise CostError(
            f"a table of version {header.get('version')!r}",
            where=where,
            expected=json.dumps(_HEADER),
            remedy=f"update eqsat, or {remedy} of this version",
        )


def _object(row: str) -> dict[str, Any]:
    """The object that a line holds, where it is JSON without repetitions."""
    try:
        record = json.loads(row, object_pairs_hook=_distinct, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CostError(f"no JSON: {row[:80]!r}: {error}", expected="one JSON object") from error
    if not isinstance(record, dict):
        raise CostError(f"no entry: {row[:80]!r}", expected="one JSON object")
    return record


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError(f"a field twice among {', '.join(name for name, _ in pairs)}")
    return record


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _record(values: dict[str, Any], environments: dict[str, Environment]) -> TableRecord:
    missing = [name for name in _REQUIRED if name not in values]
    unknown = [name for name in values if name not in (*_REQUIRED, *_OPTIONAL)]
    if missing or unknown:
        fault = f"no field {missing[0]!r}" if missing else f"a field {unknown[0]!r}"
        raise CostError(fault, expected=f"{', '.join(_REQUIRED)}, and {', '.join(_OPTIONAL)} where there is one")
    if not isinstance(values["key"], str):
        raise CostError(f"key = {values['key']!r}", expected="the text of an operator key")
    environment = Environment.of(values["environment"])
    # One object for each, whose text is made once.
    environment = environments.setdefault(environment.text, environment)
    times = {name: _float(values[name]) for name in ("seconds", "p10", "p90")}
    entry = Entry(**times, samples=values["samples"], plan=values.get("plan", ""), hot=_float(values.get("hot")))
    return TableRecord(environment, values["key"], entry)


def _float(value: Any) -> Any:
    """A whole number as JSON may write a time; Entry judges all others."""
    return float(value) if type(value) is int and abs(value) < 1 << 1000 else value
