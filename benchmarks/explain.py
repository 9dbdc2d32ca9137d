"""How much is explained: `python -m benchmarks.explain [MODEL …]` prints a table and writes `results/explain.json`.

For each model: the changes of the cheapest graph, the pairs of equal terms that these rest on, and how many of them a
chain of rules explains; the same for every pair of the whole e-graph; and, where a measured graph is kept, what its
changes were predicted and measured to save. A gap is counted as one.
"""

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
from eqsat.report.units import duration, integer

RESULT = Path(__file__).parent / "results" / "explain.json"


@click.command()
@click.argument("models", nargs=-1)
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULT, show_default=False)
def main(models: tuple[str, ...], target: Path) -> None:
    """Explains the cheapest graphs of models; rows of other models that the file holds already stay in it."""
    unknown = [m for m in models if m not in MODELS]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(MODELS)}")
    known = {r["model"]: r for r in json.loads(target.read_text())["models"]} if target.exists() else {}
    with tempfile.TemporaryDirectory(prefix="eqsat-explain-") as folder:
        for name in track(models or DEFAULT, description="models"):
            known[name] = row(name, Path(folder), ("build", "explain"))
            rows = [known[m] for m in MODELS if m in known]
            target.write_text(json.dumps(document(rows) | {"total": total(rows)}, indent=1) + "\n")
    Console(width=150).print(table(rows))


def total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Pairs and gaps of all models together, and the share that is explained."""
    done = [r for r in rows if "failed" not in r]
    counts = {k: sum(r[k] for r in done) for k in ("changes", "places", "pairs", "gaps", "all_pairs", "all_gaps")}
    return {
        "models": len(done),
        **counts,
        "share": 1 - counts["gaps"] / counts["pairs"] if counts["pairs"] else None,
        "all_share": 1 - counts["all_gaps"] / counts["all_pairs"] if counts["all_pairs"] else None,
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    made = Table(title="pairs of equal terms with a chain of rules")
    made.add_column("model", no_wrap=True)
    for title in ("changes", "places", "rules", "pairs", "gaps", "e-graph pairs", "gaps", "longest", "time", "kept"):
        made.add_column(title, justify="right")
    for r in rows:
        if "failed" in r:
            made.add_row(r["model"], r["failed"])
            continue
        counts = ("changes", "places", "rules", "pairs", "gaps", "all_pairs", "all_gaps", "longest")
        made.add_row(r["model"], *(integer(r[k]) for k in counts), duration(r["seconds"]), r["kept"])
    return made


if __name__ == "__main__":
    main()
