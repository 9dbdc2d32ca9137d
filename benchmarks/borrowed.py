"""How well borrowed costs predict models on a machine that nothing was measured on: `python -m benchmarks.borrowed`."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.models import MODELS
from eqsat.costs.table.environment import Environment

RESULTS = Path(__file__).parent / "results"
DEFAULT = (
    "sru_text_classifier",
    "light_squeezenet",
    "squeezenet1_1",
    "mobilenet_v2",
    "resnet50",
    "resnext50",
    "bert_base",
)
#: Kinds of predictions, from the plainest.
KINDS = ("roofline", "cold", "sum")

Row = dict[str, Any]


@click.command()
@click.argument("models", nargs=-1, type=click.Choice(list(MODELS)))
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "borrowed.json")
def main(models: tuple[str, ...], target: Path) -> None:
    """Predicts and times models and their results with a cost table that is empty but for a calibration.

    Costs are borrowed from the entries that come with eqsat; on the machine that these were measured on there is
    nothing to borrow.
    """
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="eqsat-borrowed-") as folder:
        environment = dict(os.environ, EQSAT_COST_TABLE=str(Path(folder) / "costs.sqlite3"))
        for name in models or DEFAULT:
            rows.append(_row(name, Path(folder) / name, environment))
            found = {"environment": asdict(Environment.current())}
            found |= {"when": datetime.now(UTC).isoformat(timespec="seconds"), "errors": errors(rows), "models": rows}
            target.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    show(found)


def _row(name: str, folder: Path, environment: Mapping[str, str]) -> Row:
    folder.mkdir()
    for step in ("build", "borrow"):
        command = [sys.executable, "-m", "benchmarks.step", step, name, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return {"model": name, **json.loads(done.stdout.splitlines()[-1])}


def errors(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """By kind of prediction, the factors by which it misses: the median and the largest over graphs, and of new/old."""
    missed: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        graphs = [_factor(form[kind] / form["measured"]) for row in rows for form in row["forms"].values()]
        pairs = [row["forms"] for row in rows if "optimised" in row["forms"]]
        changes = [_factor(_change(forms, kind) / _change(forms, "measured")) for forms in pairs]
        missed[kind] = {"median": float(np.median(graphs)), "most": max(graphs)}
        missed[kind] |= {"new/old": float(np.median(changes)), "new/old, most": max(changes)} if changes else {}
    return missed


def _factor(ratio: float) -> float:
    return math.exp(abs(math.log(ratio)))


def _change(forms: Mapping[str, Any], of: str) -> float:
    return float(forms["optimised"][of] / forms["original"][of])


def show(found: Mapping[str, Any]) -> None:
    """Prints predicted over measured, by kind of prediction."""
    out = Console(width=130)
    table = Table(title="predicted over measured, on a machine that nothing was measured on")
    for heading in ("model", "graph"):
        table.add_column(heading)
    for heading in ("ms", *KINDS, "new/old", *(f"by {kind}" for kind in KINDS)):
        table.add_column(heading, justify="right")
    for row in found["models"]:
        for name, form in row["forms"].items():
            ratios = [f"{form[kind] / form['measured']:.2f}" for kind in KINDS]
            changes = [f"{_change(row['forms'], of):.2f}" for of in ("measured", *KINDS)] if name == "optimised" else []
            first = row["model"] if name == "original" else ""
            table.add_row(first, name, f"{1e3 * form['measured']:.3g}", *ratios, *changes)
    out.print(table)
    for kind, error in found["errors"].items():
        out.print(f"{kind}: missed by a factor of " + ", ".join(f"{value:.2f} {of}" for of, value in error.items()))


if __name__ == "__main__":
    main()
