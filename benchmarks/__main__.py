"""The figures of eqsat: `python -m benchmarks [MODEL …]` prints a table and writes JSON beside it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.models import MODELS
from benchmarks.rows import DEFAULT, document, row

RESULTS = Path(__file__).parent / "results"


@click.command()
@click.argument("models", nargs=-1)
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "models.json")
@click.option("--latency/--no-latency", default=True, help="Time original and result on ONNX Runtime.")
@click.option("--accuracy/--no-accuracy", default=True, help="Compare outputs with float64.")
@click.option("--fill/--no-fill", default=False, help="Measure the operators of each model first.")
def main(models: tuple[str, ...], target: Path, latency: bool, accuracy: bool, fill: bool) -> None:
    """Optimises models, each in a process of its own, and tabulates what came of it.

    Rows of other models that the file holds already stay in it.
    """
    unknown = [m for m in models if m not in MODELS]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(MODELS)}")
    optional = (("fill", fill), ("optimise", True), ("latency", latency), ("accuracy", accuracy))
    steps = ["build", *(step for step, wanted in optional if wanted)]
    rows: list[dict[str, Any]] = []
    kept = json.loads(target.read_text())["models"] if target.exists() else []
    with tempfile.TemporaryDirectory(prefix="eqsat-bench-") as folder:
        for name in track(models or DEFAULT, description="models"):
            rows.append(row(name, Path(folder), steps))
            target.parent.mkdir(parents=True, exist_ok=True)
            done = {one["model"]: one for one in [*kept, *rows]}
            target.write_text(json.dumps(document(list(done.values())), indent=1) + "\n")
    Console(width=200).print(_table(rows))


def _table(rows: list[dict[str, Any]]) -> Table:
    columns = {
        "model": "model",
        "nodes": "nodes",
        "optimise s": "seconds",
        "peak/file": "peak_over_file",
        "e-nodes": "enodes",
        "fired": "fired",
        "stopped by": "stopped_by",
        "extraction": "extraction",
        "extract s": "extract_seconds",
        "kept": "kept",
        "new/old": "ratio",
        "95 % bound": "ratio_bound",
        "error": "error",
        "error/own": "error_over_own",
    }
    table = Table(title="eqsat on ONNX Runtime, one thread")
    for heading in columns:
        table.add_column(heading, justify="left" if heading in ("model", "stopped by", "kept") else "right")
    for one in rows:
        if "failed" in one:
            table.add_row(one["model"], one["failed"])
        else:
            table.add_row(*(_shown(one.get(key)) for key in columns.values()))
    return table


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
