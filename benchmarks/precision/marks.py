"""The table of precisions, and the marks that its rows are counted by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from benchmarks.precision.contenders import HINTS, OURS, QUANTISERS
from benchmarks.precision.inputs import NETWORKS

Row = Mapping[str, Any]
#: The time over that of the better quantiser, and over float32, that count, and the share of batches that are to be
#: within what was predicted.
PEER, HALF, WITHIN = 0.95, 0.5, 0.95


def table(rows: Sequence[Row]) -> Table:
    """A row for each model: time over float32 on ONNX Runtime, and beside it the worst error on data held back."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    kinds = (*QUANTISERS, *HINTS, *OURS)
    for heading in ("model", "ms", *kinds, "predicted", "gap"):
        shown.add_column(heading, justify="left" if heading == "model" else "right")
    for row in rows:
        if "failed" in row:
            shown.add_row(row["model"], "", row["failed"])
            continue
        right = row["float32"].get("right")
        cells = [row["model"], f"{row['seconds'] * 1e3:.1f}" + ("" if right is None else f", {right:.0%}")]
        cells += [_cell(row.get(kind, {})) for kind in kinds]
        roundings = [row.get(kind, {}).get("rounding") or {} for kind in OURS]
        cells.append(" ".join(f"{r['predicted']:.3f}" if r else "-" for r in roundings))
        cells.append(" ".join(f"{row[kind]['gap']:.1%}" if "gap" in row.get(kind, {}) else "-" for kind in OURS))
        shown.add_row(*cells)
    return shown


def _cell(figures: Row) -> str:
    if not figures.get("ratio"):
        return str(figures.get("said", "-"))[:20]
    right = f", {figures['right']:.0%}" if "right" in figures else ""
    return f"{figures['ratio']:.2f} ({figures['error']:.3f}{right})"


def marks(rows: Sequence[Row]) -> dict[str, Any]:
    """How many rows reach each mark; of eqsat's columns the faster on a row counts."""
    networks = [row for row in rows if row["model"] in NETWORKS and "failed" not in row]
    every = [row for row in rows if "failed" not in row]
    ours = [(row["model"], kind, row[kind]) for row in every for kind in OURS if row.get(kind, {}).get("ratio")]
    batches = [error <= one["rounding"]["predicted"] for _, _, one in ours if one["rounding"] for error in _each(one)]
    lowered = [one for _, _, one in ours if one["rounding"]]
    # The original itself is as fast as it is, whatever its timing says.
    changed = [(name, kind, one) for name, kind, one in ours if one["kept"] != "original"]
    return {
        "networks": len(networks),
        "int8 at most 0.95 of the better quantiser's time, at an error no larger": [
            row["model"] for row in networks if _beats(row)
        ],
        "int8 or mixed at most 0.5 of float32's time": [
            row["model"] for row in networks if min(_ratios(row, OURS), default=1.0) <= HALF
        ],
        "slower than float32 on its runtime (95 % bound above 1)": [
            f"{name}: {kind}" for name, kind, one in changed if one.get("own", one)["bound"] > 1
        ],
        "slower than float32 on ONNX Runtime (95 % bound above 1)": [
            f"{name}: {kind}" for name, kind, one in ours if one["bound"] > 1
        ],
        "share of batches within what was predicted": sum(batches) / len(batches) if batches else None,
        "choices proved optimal": sum(one["gap"] <= 1e-6 for one in lowered),
        "choices": len(lowered),
        "largest gap": max((one["gap"] for one in lowered), default=None),
    }


def _each(figures: Row) -> Sequence[float]:
    return list(figures["errors"]["each"])


def _ratios(row: Row, kinds: Sequence[str] | Mapping[str, object]) -> list[float]:
    return [row[kind]["ratio"] for kind in kinds if row.get(kind, {}).get("ratio")]


def _beats(row: Row) -> bool:
    """Return whether int8 on a device takes the share of the better quantiser's time, at an error no larger."""
    peer = row.get(row["peer"] or "", {})
    return bool(peer) and any(
        "against" in row.get(kind, {}) and row[kind]["against"]["ratio"] <= PEER and row[kind]["error"] <= peer["error"]
        for kind, (_, precision) in OURS.items()
        if precision == "int8"
    )
