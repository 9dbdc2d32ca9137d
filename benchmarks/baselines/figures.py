"""The figures of the search over graphs on docs/compare.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.markdown import number, percent, table

#: Relative: what sums of the same costs in another order may differ by.
_ROUNDING = 1e-6


def baselines(results: Mapping[str, Any]) -> str:
    """Eqsat and the searches on each device, and how often each was cheapest; then what was published."""
    found = results.get("baselines")
    if found is None:
        return "Not measured yet: there is no `baselines.json`."
    rows, parts = found["models"], []
    for device in dict.fromkeys(row["device"] for row in rows):
        those = [row for row in rows if row["device"] == device]
        parts.append(f"{_summary(device, those)}\n\n{_costs(those)}\n\n{_usage(those)}")
    return f"Searched {found['when'][:10]} on {found['cpu']}.\n\n" + "\n\n".join([*parts, _published(rows)])


def _summary(device: str, rows: list[Mapping[str, Any]]) -> str:
    better, worse = 0, 0
    for row in rows:
        best = min(one["cost"] for one in row["searches"].values())
        better += row["eqsat"]["cost"] < best * (1 - _ROUNDING)
        worse += row["eqsat"]["cost"] > best * (1 + _ROUNDING)
    equal = len(rows) - better - worse
    low, high = (f(row["estimated"] for row in rows) for f in (min, max))
    return (
        f"**{device}**, {len(rows)} models; of the originals' costs "
        f"{percent(low)} to {percent(high)} are estimates. Against the cheapest search of each model, eqsat is cheaper "
        f"on {better}, equal on {equal}, dearer on {worse}."
    )


def _costs(rows: list[Mapping[str, Any]]) -> str:
    """Costs over those of the originals, with seconds and graphs visited."""
    labels = list(dict.fromkeys(label for row in rows for label in row["searches"]))
    shown = []
    for row in rows:
        whole, ours = row["before"]["cost"], row["eqsat"]
        cells = [
            row["model"],
            number(row["nodes"]),
            number(1e6 * whole),
            number(row["before"]["without_rules"] / whole),
        ]
        cells += [f"{number(ours['cost'] / whole)}, {ours['seconds']:.1f} s", percent(ours["gap"])]
        cells.append(number(row["extractors"]["greedy"] / whole))
        for one in map(row["searches"].get, labels):
            ended = "" if one["ended"] == "time limit" else ", all"
            cells.append(f"{number(one['cost'] / whole)}, {one['seconds']:.1f} s, {number(one['visited'])}{ended}")
        shown.append(cells)
    head = ["model", "nodes", "original, µs", "kernels alone", "eqsat, seconds", "gap", "greedy"]
    return table([*head, *(f"{label}: seconds, graphs" for label in labels)], shown)


def _usage(rows: list[Mapping[str, Any]]) -> str:
    """Launches and peak memory of the original, of eqsat's result and of the cheapest search's."""
    shown = []
    for row in rows:
        best = min(row["searches"].values(), key=lambda one: one["cost"])
        found = (row["before"], row["eqsat"], best)
        shown.append(
            [
                row["model"],
                *(number(int(one["launches"])) for one in found),
                *(number(one["peak"] / 1e6) for one in found),
            ]
        )
    columns = ("original", "eqsat", "cheapest search")
    head = [f"{what}, {which}" for what in ("launches", "peak MB") for which in columns]
    return table(["model", *head], shown)


def _published(rows: list[Mapping[str, Any]]) -> str:
    """Cited figures: those of authors on their machines, beside which ours are predictions."""
    models = {row["model"]: row["published"] for row in rows}
    shown = [
        [name, one["system"], one["speedup"] or "none for it alone", f"under {number(one['seconds'])} s", one["source"]]
        for name, published in models.items()
        for one in published
    ]
    return "Cited:\n\n" + table(["model", "system", "speed-up", "search", "source"], shown)
