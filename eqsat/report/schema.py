"""The JSON Schema of reports, made from the types of their fields: `python -m eqsat.report.schema` writes it anew."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from eqsat.report.parts import BodyCertificate, CertificateSummary
from eqsat.report.record import SCHEMA, Record
from eqsat.system.files import write_text

#: The file in which the schema ships.
FILE = Path(__file__).with_name("schema.json")
#: The forms of plain values; a float that is not finite is null.
_PLAIN: Mapping[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},
    type(None): {"type": "null"},
    Any: {},
}


def report_schema() -> dict[str, Any]:
    """The schema of `Report.json()`; fields that it does not name may come in later versions."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Report of eqsat",
        "description": "Times are in seconds, costs in units of the objective; a number that is not finite is null.",
        **_object({"schema": {"const": SCHEMA}, **_fields(Record)}, ["schema", *(f.name for f in fields(Record))]),
        "$defs": {one.__name__: _record(one) for one in _records()},
    }


def _records() -> list[type]:
    """The dataclasses that reports consist of, by name."""
    known: dict[str, type] = {}
    pending: list[Any] = [Record]
    while pending:
        hints = get_type_hints(pending.pop())
        for hint in hints.values():
            for one in _dataclasses_in(hint):
                if one.__name__ not in known:
                    known[one.__name__] = one
                    pending.append(_written(one))
    return [known[name] for name in sorted(known)]


def _dataclasses_in(hint: Any) -> list[type]:
    if isinstance(hint, type) and is_dataclass(hint):
        return [hint]
    return [one for argument in get_args(hint) for one in _dataclasses_in(argument)]


def _written(one: type) -> Any:
    """The class whose fields are those of a record in JSON."""
    return getattr(one, "JSON", one)


def _record(one: type) -> dict[str, Any]:
    form = _written(one)
    if is_typeddict(form):
        return _object(_fields(form), sorted(form.__required_keys__))
    if one is BodyCertificate:  # the place among the fields of the certificate
        return _object({"place": _PLAIN[str], **_fields(CertificateSummary)}, ["place", *_required(CertificateSummary)])
    return _object(_fields(one), _required(one))


def _required(one: Any) -> list[str]:
    """The fields that a record has in JSON whatever their values are."""
    optional = {f.name for f in fields(one) if f.default is None}
    return [f.name for f in fields(one) if f.name not in optional]


def _object(properties: Mapping[str, Any], required: Sequence[str]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": list(required)}


def _fields(one: Any) -> dict[str, Any]:
    return {name: _form(hint) for name, hint in get_type_hints(one).items() if get_origin(hint) is not ClassVar}


def _form(hint: Any) -> dict[str, Any]:
    """The schema of a value of a type."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_form(argument) for argument in arguments]}
    if origin is tuple and arguments[-1] is not ...:
        count = len(arguments)
        return {"type": "array", "prefixItems": [_form(a) for a in arguments], "minItems": count, "maxItems": count}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _form(arguments[1])}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _form(arguments[0])}
    if is_dataclass(hint) and isinstance(hint, type):
        return {"$ref": f"#/$defs/{hint.__name__}"}
    raise TypeError(f"a report has a field of type {hint}, of which its schema knows no form")


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(report_schema(), indent=1) + "\n"


if __name__ == "__main__":
    write_text(FILE, schema_text())
