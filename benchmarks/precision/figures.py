"""The figures of lower precisions on docs/compare.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.precision.inputs import NETWORKS

Row = Mapping[str, Any]
#: The columns of the page by those of the file.
_COLUMNS = {
    "static": "ONNX Runtime static",
    "dynamic": "dynamic",
    "OpenVINO bf16": "OpenVINO bfloat16",
    "eqsat int8": "eqsat int8",
    "eqsat int8 (OpenVINO)": "eqsat int8 on OpenVINO",
    "eqsat mixed (OpenVINO)": "eqsat mixed on OpenVINO",
}


def precisions(results: Mapping[str, Any]) -> str:
    """Times over float32 with errors on data held back, right answers of trained models, and the marks."""
    found = results.get("precision")
    if found is None:
        return "Not measured yet: there is no `precision.json`."
    rows = [row for row in found["models"] if "failed" not in row]
    networks = [row for row in rows if row["model"] in NETWORKS]
    trained = [row for row in rows if row["model"] not in NETWORKS]
    parts = [
        f"Measured {found['when'][:10]} on {found['cpu']}.",
        _table(("model", "float32, ms", *_COLUMNS.values()), [_times(row, right=False) for row in networks]),
        _table(("trained model", "float32, ms", *_COLUMNS.values()), [_times(row, right=True) for row in trained]),
        "\n".join(_marks(found["marks"])),
    ]
    return "\n\n".join(parts)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    ruler = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *rows))


def _times(row: Row, *, right: bool) -> list[str]:
    answers = f", {row['float32']['right']:.0%}" if right else ""
    return [row["model"], f"{row['seconds'] * 1e3:.1f}{answers}", *(_cell(row.get(kind, {})) for kind in _COLUMNS)]


def _cell(figures: Row) -> str:
    if not figures.get("ratio"):
        return "-"
    told = f", {figures['right']:.0%}" if "right" in figures else ""
    kept = "" if figures.get("rounding") or "kept" not in figures else " (float32)"
    return f"{figures['ratio']:.2f} ({figures['error']:.3f}{told}){kept}"


def _marks(marks: Mapping[str, Any]) -> list[str]:
    """The marks as a list: how many models, and their names."""
    lines = []
    for mark, value in marks.items():
        if isinstance(value, list):
            lines.append(f"* {mark}: {len(value)}" + (f" ({', '.join(value)})" if value else ""))
        elif isinstance(value, float):
            lines.append(f"* {mark}: {value:.1%}")
        else:
            lines.append(f"* {mark}: {'none' if value is None else value}")
    return lines
