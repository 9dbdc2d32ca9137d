"""The fields of a device in JSON, each with the values that it may have."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from eqsat.errors import CostError, nearest
from eqsat.language.ops import OPS
from eqsat.language.terms.blocks import PACKINGS
from eqsat.language.terms.state import LAYOUTS
from eqsat.language.terms.types import DType

#: The name of whatever GPU is here, and how the names of GPUs begin.
CUDA, MAKER = "cuda", "nvidia-"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_ELEMENTS = (*(one.value for one in DType if one.is_float), "tf32", "int8", "float8")


def read_fields(text: str, where: str) -> dict[str, Any]:
    """The fields of a device in JSON; CostError, with the field, for one that is missing, unknown or out of range."""
    try:
        fields = json.loads(text, object_pairs_hook=_distinct)
    except (ValueError, RecursionError) as error:
        raise CostError(
            f"no JSON: {error}", where=where, expected="a device as eqsat.costs.devices.device.write_device writes it"
        ) from error
    if not isinstance(fields, dict):
        raise CostError("no JSON object", where=where, expected="one, with the fields " + ", ".join(CHECKS))
    if unknown := next((name for name in fields if name not in CHECKS), None):
        expected = "fields of " + ", ".join(CHECKS)
        raise CostError(f"a field {unknown!r}", where=where, expected=expected, remedy=nearest(unknown, CHECKS))
    if missing := next((name for name in CHECKS if name not in fields and name not in OPTIONAL), None):
        raise CostError(f"no field {missing!r}", where=where, expected="the fields " + ", ".join(CHECKS))
    check_fields(fields, where)
    fields |= {name: tuple(fields[name]) for name in ("layouts", "integers", "packings") if name in fields}
    return {name: MappingProxyType(value) if isinstance(value, dict) else value for name, value in fields.items()}


def check_fields(fields: Mapping[str, Any], where: str) -> None:
    """CostError, with the field, for a value that a device cannot have."""
    for name, value in fields.items():
        CHECKS[name](f"{where}: {name}", value)
    # The kind of a device is known from its name wherever a table or a report has the name alone.
    if bool(fields.get("gpu")) != fields["name"].startswith(MAKER):
        expected = f"a name that begins with {MAKER} for a device with a gpu, and for no other"
        raise CostError(
            f"{fields['name']!r} with gpu = {fields.get('gpu', '')!r}", where=f"{where}: name", expected=expected
        )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(n for n in names if names.count(n) > 1)!r} twice")
    return fields


def _check_name(where: str, given: Any) -> None:
    if not isinstance(given, str) or not _NAME.fullmatch(given) or given == CUDA or given.endswith(".json"):
        expected = "small letters, digits, '.', '-' and '_', and neither 'cuda' nor an end in .json"
        raise CostError(f"{given!r}", where=where, expected=expected)


def _text(*, empty: bool) -> Callable[[str, Any], None]:
    def check(where: str, given: Any) -> None:
        if not isinstance(given, str) or not (given or empty):
            raise CostError(
                f"{given!r}", where=where, expected="text" if empty else "text, such as where figures come from"
            )

    return check


def _one_of(*known: Any) -> Callable[[str, Any], None]:
    def check(where: str, given: Any) -> None:
        if not any(given == one and type(given) is type(one) for one in known):
            expected = "one of " + ", ".join(json.dumps(one) for one in known)
            raise CostError(f"{given!r}", where=where, expected=expected)

    return check


def _number(unit: str, *, zero: bool = False, whole: bool = False) -> Callable[[str, Any], None]:
    kinds = (int,) if whole else (int, float)

    def check(where: str, given: Any) -> None:
        fits = type(given) in kinds and math.isfinite(given) and (given > 0 or (zero and given == 0))
        if not fits:
            number = "a whole number" if whole else "a finite number"
            raise CostError(
                f"{given!r}", where=where, expected=f"{number} {'of 0 or more' if zero else 'above 0'}: {unit}"
            )

    return check


def _numbers(
    known: Callable[[str], bool], names: Collection[str], kind: str, check: Callable[[str, Any], None], needed: str = ""
) -> Callable[[str, Any], None]:
    def check_all(where: str, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise CostError(f"{given!r}", where=where, expected=f"an object from {kind} to numbers")
        for name, value in given.items():
            if not isinstance(name, str) or not known(name):
                raise CostError(
                    f"no {kind} {name!r}", where=where, expected=f"names of {kind}s", remedy=nearest(name, names)
                )
            check(f"{where}: {name}", value)
        if needed and needed not in given:
            raise CostError(f"no {needed!r}", where=where, expected="it, which stands for all others that are left out")

    return check_all


def _check_layouts(where: str, given: Any) -> None:
    if not isinstance(given, list | tuple) or "row" not in given or any(name not in LAYOUTS for name in given):
        raise CostError(f"{given!r}", where=where, expected="a list of 'row' and others of " + ", ".join(LAYOUTS))


def _check_operators(where: str, given: Any) -> None:
    if not isinstance(given, list | tuple) or any(name not in OPS for name in given):
        raise CostError(f"{given!r}", where=where, expected="a list of operators")


def _check_packings(where: str, given: Any) -> None:
    if not isinstance(given, list | tuple) or any(name not in PACKINGS for name in given):
        raise CostError(f"{given!r}", where=where, expected="a list of some of " + ", ".join(PACKINGS))


def _is_operator(name: str) -> bool:
    """True for an operator, or a variant of one, such as conv/depthwise."""
    return name.partition("/")[0] in OPS


#: The check of each field, by its name: of a place and a value.
CHECKS: Mapping[str, Callable[[str, Any], None]] = MappingProxyType(
    {
        "name": _check_name,
        "kind": _one_of("measured", "roofline"),
        "flops": _numbers(
            _ELEMENTS.__contains__, _ELEMENTS, "element type", _number("operations a second"), needed="float32"
        ),
        "bandwidth": _number("bytes a second"),
        "near_bandwidth": _number("bytes a second"),
        "near_bytes": _number("bytes", zero=True, whole=True),
        "weight_bandwidth": _number("bytes a second"),
        "launch": _number("seconds", zero=True),
        "view": _number("seconds", zero=True),
        "efficiency": _numbers(_is_operator, OPS, "operator", _number("a share of flops")),
        "rates": _numbers(_is_operator, OPS, "operator", _number("seconds an element", zero=True)),
        "layouts": _check_layouts,
        "fuses": _one_of(False, True),
        "source": _text(empty=False),
        "gpu": _text(empty=True),
        "integers": _check_operators,
        "packings": _check_packings,
        "runtime": _one_of("", "onnxruntime", "openvino", "c", "numpy"),
    }
)
#: Fields that may be left out.
OPTIONAL = ("gpu", "integers", "packings", "runtime")
