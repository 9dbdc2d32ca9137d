"""The rows of the coverage benchmark as people read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from eqsat.report.units import percent

#: The share of time up to which what is opaque does not matter.
LITTLE = 0.02


def is_covered(row: Mapping[str, Any]) -> bool:
    """Whether the opaque nodes of a model take little of its time; a model without a profile counts by its nodes."""
    return bool(row.get("imported")) and (row["opaque"] == 0 or row.get("opaque_time", 1.0) <= LITTLE)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many models there are, how many of them are covered, and those that are not with operators and reasons."""
    covered = [row for row in rows if is_covered(row)]
    return {
        "models": len(rows),
        "imported": sum(bool(row.get("imported")) for row in rows),
        "covered": len(covered),
        "share": round(len(covered) / len(rows), 4) if rows else None,
        "faster": sum(row.get("outcome") == "faster" for row in rows),
        "measured": sum(row.get("new/old") is not None for row in rows),
        "not ended": [row["model"] for row in rows if str(row.get("outcome", "")).startswith("not ended")],
        "failed": [row["model"] for row in rows if row.get("exit", 0) or not row.get("imported")],
        "not covered": {row["model"]: lacking(row) for row in rows if not is_covered(row)},
    }


def lacking(row: Mapping[str, Any]) -> str:
    """Why a model is not covered: its opaque operators by time, with reasons."""
    if not row.get("imported"):
        return str(row.get("error", "not read"))
    parts = [f"not profiled: {row['unprofiled']}"] if "unprofiled" in row else []
    for entry in sorted(row["operators"], key=lambda entry: -entry.get("time", 0.0)):
        name = entry["operator"] if entry["domain"] == "ai.onnx" else f"{entry['domain']}.{entry['operator']}"
        time = f", {percent(entry['time'])} of the time" if "time" in entry else ""
        read = entry.get("nodes_read_within", 0)
        inside = f" besides its bodies, of which {read} nodes are read and optimised" if read else ""
        parts.append(f"{entry['count']} {name}{time}{inside}: {'; '.join(entry['reasons'])}")
    return ". ".join(parts)


def show(console: Console, document: Mapping[str, Any]) -> None:
    """Prints a table of models, the node tests, and the summary."""
    columns = ("model", "group", "read", "opaque nodes", "opaque time", "outcome", "new/old", "bound", "seconds")
    table = Table(title="Models, by what is opaque in them and what becomes of them")
    for column in columns:
        table.add_column(column, justify="left" if column in ("model", "group", "outcome") else "right")
    for row in document["models"]:
        time = row.get("opaque_time")
        table.add_row(
            row["model"],
            row["group"],
            "yes" if row.get("imported") else "no",
            f"{row['opaque']} of {row['nodes_read']}" if row.get("imported") else "–",
            "–" if time is None else percent(time),
            row.get("outcome", "–"),
            *("–" if row.get(key) is None else str(row[key]) for key in ("new/old", "bound", "seconds")),
        )
    console.print(table)
    tests = document.get("node_tests")
    if tests:
        console.print(
            f"node tests: {tests['tests']}; {tests['without an opaque node']} read without an opaque node, "
            f"{tests['correct']} correct"
        )
    found = document["summary"]
    if found["models"]:
        console.print(
            f"{found['covered']} of {found['models']} models ({percent(found['share'])}) have an opaque share of time "
            f"of at most {percent(LITTLE)}; {found['measured']} measured, {found['faster']} faster"
        )
    for model, why in found["not covered"].items():
        console.print(f"  {model}: {why}")
