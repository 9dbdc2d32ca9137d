"""The figures of docs/compare.md of generated C: operators that are texts, and whole models as one library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.markdown import mean, number, table

#: Contenders for an operator, in the order of the columns; those that a run lacks have no column.
_CONTENDERS = ("numpy", "onnxruntime", "openvino", "torch.compile", "naive", "default", "tuned")


def operators_in_c(results: Mapping[str, Any]) -> str:
    """Median times of operators that are comprehensions, by every contender of the run."""
    found = results.get("comprehensions")
    if found is None:
        return "Not measured yet: there is no `comprehensions.json`."
    rows: Sequence[dict[str, Any]] = found["models"]
    shown = [one for one in _CONTENDERS if any(one in row["microseconds"] for row in rows)]
    cells = [
        [
            row["case"],
            *(number(float(row["microseconds"][one][1])) if one in row["microseconds"] else "" for one in shown),
            number(row["tuned_over_best_peer"]),
            row["best_peer"],
        ]
        for row in rows
    ]
    versions = ", ".join(
        f"{name} {found['versions'][name]}"
        for name in ("numpy", "onnxruntime", "openvino", "torch")
        if name in found["versions"]
    )
    threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    published = [row["tuned_over_best_peer"] for row in rows if row["is_of_the_paper"]]
    return (
        f"Measured {found['when'][:10]} on {found['cpu']}, {threads}, {versions}. Of the {len(published)} operators of "
        f"the paper the tuned kernel is faster than every other on {sum(ratio < 1 for ratio in published)}, and takes "
        f"{number(max(published))} of the time of the fastest at most.\n\n"
        + table(["operator", *(f"{one}, µs" for one in shown), "tuned / fastest other", "which is"], cells)
    )


def models_in_c(results: Mapping[str, Any]) -> str:
    """Median times of whole models as one library of C, with and without regions of ONNX Runtime."""
    if "whole_models" not in results:
        return "Not measured yet: there is no `whole_models.json`."
    found, mixed = results["whole_models"], results.get("whole_models_mixed", {"models": []})
    regions = {row["model"]: row["seconds"]["mixed"] / row["seconds"]["onnxruntime"] for row in mixed["models"]}
    rows = sorted(found["models"], key=lambda row: float(row["ratio"]))
    cells = [
        [
            row["model"],
            number(row["launches"]),
            *(number(1e3 * row["seconds"][one]) for one in ("c", "onnxruntime", "openvino")),
            number(row["ratio"]),
            number(regions[row["model"]]) if row["model"] in regions else "",
        ]
        for row in rows
    ]
    head = ["model", "launches", "C, ms", "ONNX Runtime, ms", "OpenVINO, ms", "C / ONNX Runtime", "with its regions"]
    threads = f"{found['threads']} thread{'s' if found['threads'] > 1 else ''}"
    average = number(mean(float(row["ratio"]) for row in rows))
    return (
        f"On {threads}, medians of rounds in random order on the same optimised graph: the geometric mean of C over "
        f"ONNX Runtime is {average} on {len(rows)} models.\n\n{table(head, cells)}"
    )
