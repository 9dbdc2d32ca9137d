"""`eqsat bench --ablation`: what each part of a fast program is worth alone, and beside the others."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from eqsat.commands.output import console
from eqsat.report.units import duration, quantity
from eqsat.system.files import write_text

if TYPE_CHECKING:
    from eqsat.bench.ablation import Ablation


def show(done: Sequence[Ablation], failed: Sequence[tuple[str, str]]) -> None:
    """A table for each model, and the models that failed."""
    out = console()
    for one in done:
        out.print(ablation_table(one))
    for name, reason in failed:
        out.print(f"failed: {name}: {reason}", soft_wrap=True)


def write(folder: Path, device: str, about: Mapping[str, object], done: Sequence[Ablation]) -> None:
    """The ablations on a device, and every sample, as JSON."""
    samples = [
        {"model": one.model, "parts": list(row.parts), "samples": list(row.samples), "without": list(row.plain)}
        for one in done
        for row in one.rows
    ]
    document = {**about, "models": [one.as_dict() for one in done], "samples": samples}
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / f"ablation-{device}.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def ablation_table(one: Ablation) -> Table:
    """The variants of a model; ratios are their times over that without any part."""
    origin = "measured" if one.is_measured else "by the figures of the device, not measured"
    table = Table(title=f"{one.model} on {one.device}, {one.threads} thread{'s' if one.threads > 1 else ''}; {origin}")
    table.add_column("parts")
    for heading in ("launches", "calls", "values", "time", "/ none", "error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in one.rows:
        error = "" if row.error is None else f"{row.error:.1e}"
        counts = (str(row.launches), str(row.calls), quantity(row.memory, "B"))
        table.add_row(row.name, *counts, duration(row.median), f"{row.ratio:.2f}", error)
    return table
