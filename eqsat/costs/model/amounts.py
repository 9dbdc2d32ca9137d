"""Amounts of resources, as people write them: "8 GB", "512 MiB", "2 ms", "1.5e9"."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from numbers import Real
from types import MappingProxyType

from eqsat.errors import UsageError, nearest

BYTES: Mapping[str, float] = MappingProxyType(
    {"B": 1.0}
    | {f"{prefix}B": 1000.0**power for power, prefix in enumerate(("k", "M", "G", "T"), start=1)}
    | {f"{prefix}iB": 1024.0**power for power, prefix in enumerate(("K", "M", "G", "T"), start=1)}
)
SECONDS: Mapping[str, float] = MappingProxyType({"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9})
COUNT: Mapping[str, float] = MappingProxyType({"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12})

#: The units that each term of a cost may be given in; a plain number is bytes, seconds, or a count.
UNITS: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "time": SECONDS,
        "flops": COUNT,
        "bytes": BYTES,
        "launches": MappingProxyType({}),
        "weight_memory": BYTES,
        "peak_memory": BYTES,
        "error": MappingProxyType({"%": 0.01}),
    }
)

#: The unit that a plain number of each term is in, with which tables, plots and JSON are labelled.
UNIT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "time": "seconds",
        "flops": "operations",
        "bytes": "bytes",
        "launches": "kernels",
        "weight_memory": "bytes",
        "peak_memory": "bytes",
        "error": "relative",
    }
)

_NUMBER = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*(\S*)\s*")


def check_term(term: object) -> None:
    """UsageError for what is no term of costs."""
    if not isinstance(term, str) or term not in UNITS:
        raise UsageError(f"no term {term!r}", expected="one of " + ", ".join(UNITS), remedy=nearest(term, UNITS))


def amount(term: str, given: float | str) -> float:
    """An amount of a term from a number or text: in bytes, in seconds, or as a count. Raises UsageError for others.

    >>> amount("peak_memory", "1.5 kB"), amount("time", "2 ms"), amount("launches", 12)
    (1500.0, 0.002, 12.0)
    """
    check_term(term)
    if isinstance(given, str):
        return _parsed(term, given)
    if isinstance(given, bool) or not isinstance(given, Real) or math.isnan(given) or given < 0:
        raise UsageError(f"{term}={given!r}", expected=f"a number of 0 or more{_or_text(term)}")
    return float(given)


def _parsed(term: str, given: str) -> float:
    units = UNITS[term]
    match = _NUMBER.fullmatch(given)
    if match is None:
        raise UsageError(f"{term}={given!r} is no amount", expected=f"a number of 0 or more{_or_text(term)}")
    number, unit = float(match[1]), match[2]
    if unit and unit not in units:
        close = next((known for known in units if known.lower() == unit.lower()), "")
        raise UsageError(
            f"{term}={given!r} has the unit {unit!r}",
            expected="one of " + ", ".join(units) if units else "a plain number",
            remedy=f"write {match[1]} {close}" if close else "",
        )
    if not math.isfinite(number):
        raise UsageError(f"{term}={given!r} is infinite", expected="a finite amount")
    return number * units.get(unit, 1.0)


def _or_text(term: str) -> str:
    units = list(UNITS[term])
    return f', or text such as "8 {units[-1]}" in ' + ", ".join(units) if units else ""
