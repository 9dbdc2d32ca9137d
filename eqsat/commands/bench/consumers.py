"""`eqsat bench --consumers`: the optimised graph against the original in the runtimes that a model may be given to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from eqsat.commands.output import console
from eqsat.report.units import duration
from eqsat.system.files import write_text

if TYPE_CHECKING:
    from eqsat.bench.consumers import ConsumerComparison


def show(done: Sequence[ConsumerComparison], failed: Sequence[tuple[str, str]]) -> None:
    """A table for each model, and the consumers that took no part."""
    out = console()
    for one in done:
        out.print(consumer_table(one))
        for name, reason in one.skipped.items():
            out.print(f"left out: {name}: {reason}", soft_wrap=True)
    for name, reason in failed:
        out.print(f"failed: {name}: {reason}", soft_wrap=True)


def write(folder: Path, about: Mapping[str, object], done: Sequence[ConsumerComparison]) -> None:
    """The comparisons, and every sample, as JSON."""
    samples = [
        {"model": one.model, "consumer": r.name, "original": list(r.original), "optimised": list(r.optimised)}
        for one in done
        for r in one.results
    ]
    document = {**about, "models": [one.as_dict() for one in done], "samples": samples}
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "consumers.json", json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def consumer_table(one: ConsumerComparison) -> Table:
    """The consumers of a model: medians of both graphs, and the ratio of the optimised to the original."""
    kept = ", ".join(f"{form}: {finalist}" for form, finalist in one.kept.items())
    table = Table(title=f"{one.model} on {one.device}; optimised graph: {kept}")
    table.add_column("consumer", no_wrap=True)
    for heading in ("original", "optimised", "optimised / original", "95 % bound", "error"):
        table.add_column(heading, justify="right")
    for row in one.results:
        ratio, bound = row.ratio
        times = (duration(seconds) for seconds in row.medians)
        table.add_row(row.name, *times, f"{ratio:.2f}", f"{bound:.2f}", f"{row.errors[1]:.1e}")
    return table
