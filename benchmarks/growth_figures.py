"""The figures of docs/growth.md: seconds and memory of phases by the size of a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.markdown import number, table

#: The ways of a row by what the page calls them.
_WAYS = {"parts": "no rules", "blocks": "equal blocks", "whole": "every block"}
#: The size that constants are extended to, where no model of that size was measured.
_BEYOND = 1_000_000


def phases(results: Mapping[str, Any]) -> str:
    """Seconds of the processor and megabytes of each phase, for each size and way that was measured."""
    found = results.get("growth")
    if found is None:
        return "Not measured yet: there is no `growth.json`."
    rows = [
        [
            _WAYS[row["way"]],
            number(row["nodes"]),
            number(row["enodes"]),
            phase,
            number(one["seconds"]),
            number(one["peak"] / 1e6),
            row.get("stopped_by", "") if phase == "saturate" else "",
        ]
        for row in found["models"]
        for phase, one in row["phases"].items()
    ]
    head = ["e-graph of", "nodes", "e-nodes", "phase", "seconds", "added at the peak, MB", "growth ended by"]
    return f"Measured {found['when'][:10]} on {found['cpu']}.\n\n{table(head, rows)}"


def growth(results: Mapping[str, Any]) -> str:
    """Seconds and bytes of a phase for each unit at the largest size measured, and what a million nodes would take.

    Calls that returned the original because a limit came first are left out: their phases did not do their work.
    """
    found = results.get("growth")
    if found is None:
        return "Not measured yet: there is no `growth.json`."
    encoded = {row["size"]: row for row in found["models"] if row["way"] == "parts"}
    rows = []
    for way, phase, unit in _CONSTANTS:
        done = [row for row in found["models"] if row["way"] == way and row.get("kept") != "original"]
        measured = [_Amount.of(row, phase, unit, encoded[row["size"]]) for row in done]
        if len(measured) < 2:
            continue
        before, last = measured[-2:]
        power = math.log(last.seconds / before.seconds) / math.log(last.nodes / before.nodes)
        more = _BEYOND / last.nodes
        rows.append(
            [
                f"{phase}, {_WAYS[way]}",
                _UNITS[unit],
                number(last.nodes),
                number(last.units),
                number(1e6 * last.seconds / last.units),
                number(last.bytes / last.units),
                number(power, 2),
                number(last.seconds * more ** max(power, 1.0)),
                number(last.bytes * more / 1e9),
            ]
        )
    head = [
        *("phase", "unit", "nodes, most measured", "units", "µs a unit", "bytes a unit, peak", "exponent"),
        *("seconds at a million nodes, extrapolated", "GB, extrapolated"),
    ]
    return table(head, rows)


#: The way and the phase of each constant, and what it is given for.
_CONSTANTS = (
    ("parts", "read", "nodes"),
    ("parts", "blocks", "nodes"),
    ("parts", "encode", "nodes"),
    ("parts", "export", "enodes"),
    ("whole", "saturate", "grown"),
    ("whole", "extract", "enodes"),
    ("whole", "certify", "nodes"),
    ("blocks", "extract", "nodes"),
    ("blocks", "measure", "nodes"),
    ("blocks", "certify", "nodes"),
    ("parts", "write", "nodes"),
)
_UNITS = {"nodes": "node", "enodes": "e-node", "grown": "e-node that rules made"}


@dataclass(frozen=True)
class _Amount:
    """The seconds and bytes of a phase on a model of so many nodes, and what it did."""

    nodes: int
    units: int
    seconds: float
    bytes: float

    @classmethod
    def of(cls, row: Mapping[str, Any], phase: str, unit: str, encoded: Mapping[str, Any]) -> _Amount:
        """The phase of a row; of saturation without encoding, which is a part of it in a call."""
        one = row["phases"][phase]
        if unit != "grown":
            return cls(row["nodes"], row[unit], one["seconds"], one["peak"])
        begin = encoded["phases"]["encode"]
        grown = row["enodes"] - encoded["enodes"]
        return cls(row["nodes"], grown, one["seconds"] - begin["seconds"], one["peak"] - begin["peak"])
