"""Whether a call ends within its time limit: models that are long, wide, or hold many bodies or large tables.

`python -m benchmarks.limits [--limit SECONDS …] [MODEL …]` optimises each model under each limit, every time in a
process of its own, and prints a table and writes it as JSON. The time is that of the call without reading the model; a
limit may be passed by a fifth or by one second, whichever is more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import onnx
from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsat
from benchmarks.long_models import MODELS
from benchmarks.rows import document
from eqsat.system.deadline import Deadline

RESULTS = Path(__file__).parent / "results"
#: Seconds that a call may take.
LIMITS = (1.0, 5.0, 30.0)
#: Seconds after which a run is ended whatever it does.
BOUND = 600.0


@click.command()
@click.argument("models", nargs=-1)
@click.option("--limit", "limits", type=float, multiple=True, default=LIMITS, help="Seconds of a call; repeatable.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "limits.json")
@click.option("--one", type=click.Path(path_type=Path), help="Optimise this model in this process, and print a row.")
def main(models: tuple[str, ...], limits: tuple[float, ...], target: Path, one: Path | None) -> None:
    """Optimises all models, or those named, under each limit, and tabulates what time they took."""
    if one is not None:
        click.echo(json.dumps(measured(one, limits[0])))
        return
    unknown = [m for m in models if m not in MODELS]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(MODELS)}")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="eqsat-limits-") as folder:
        for name in track(models or tuple(MODELS), description="models"):
            path = Path(folder) / "model.onnx"
            model = MODELS[name]()
            onnx.save(model, path)
            rows += [{"model": name, "nodes": len(model.graph.node), **apart(path, limit)} for limit in limits]
    Console(width=180).print(table(rows))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({**document(rows), "load": os.getloadavg()}, indent=1) + "\n")


def apart(path: Path, limit: float) -> dict[str, Any]:
    """The row of one run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.limits", "--one", str(path), "--limit", str(limit)]
    environment = {**os.environ, "EQSAT_COST_TABLE": ":memory:"}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BOUND, check=False)
    except subprocess.TimeoutExpired:
        return {"limit": limit, "within": False, "outcome": f"not ended after {BOUND:g} s"}
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"limit": limit, "within": False, "outcome": f"failed: {said}"}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def measured(path: Path, limit: float) -> dict[str, Any]:
    """Seconds of a call under a limit from the moment its model was read, and the work it left out."""
    begun: list[float] = []
    begin = Deadline.begin

    def marked(deadline: Deadline) -> None:
        begun.append(time.monotonic())
        begin(deadline)

    Deadline.begin = marked  # type: ignore[method-assign]
    start = time.monotonic()
    result = eqsat.optimize(path, time_limit=limit)
    end = time.monotonic()
    report = result.report
    used = end - begun[0]
    return {
        "limit": limit,
        "seconds": round(used, 2),
        "within": used <= limit + max(0.2 * limit, 1.0),
        "read": round(begun[0] - start, 2),
        "outcome": report.failure or report.kept,
        "growth": report.stopped_by,
        "enodes": report.enodes,
        "phases": {name: round(seconds, 2) for name, seconds in report.seconds.items()},
        "skipped": list(report.skipped),
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows as people read them."""
    shown = Table(title="Calls under a time limit")
    for column in ("model", "nodes", "limit s", "took s", "within", "read s", "outcome", "skipped"):
        shown.add_column(column, justify="right" if column.endswith(" s") or column == "nodes" else "left")
    for row in rows:
        skipped = "; ".join(text.partition(":")[0] for text in row.get("skipped", ()))
        values = (
            row["model"],
            row["nodes"],
            f"{row['limit']:g}",
            row.get("seconds", ""),
            "yes" if row["within"] else "no",
        )
        shown.add_row(*map(str, (*values, row.get("read", ""), row["outcome"], skipped or "nothing")))
    return shown


if __name__ == "__main__":
    main()
