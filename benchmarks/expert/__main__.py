"""The command of the benchmark of experts' graphs."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.expert.cases import CASES
from benchmarks.expert.outcomes import CLASSES, DEVICES, NOTHING, counted, is_equal, worst
from benchmarks.expert.worker import begin, row_of
from benchmarks.rows import document

RESULT = Path(__file__).parents[1] / "results" / "expert.json"
GROUPS = tuple(dict.fromkeys(case.group for case in CASES))


@click.command()
@click.argument("words", nargs=-1)
@click.option("--group", "groups", multiple=True, type=click.Choice(GROUPS), help="Only cases of this group.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULT, show_default=True)
@click.option("--jobs", default=1, show_default=True, help="Cases at a time.")
@click.option("--cases/--no-cases", "listed", default=False, help="List each case that is not reached.")
def main(words: tuple[str, ...], groups: tuple[str, ...], target: Path, jobs: int, listed: bool) -> None:
    """Counts how often eqsat reaches the cost of the graph that an expert would write.

    Costs are estimates, on this machine's runtime and on a GPU, with a cost table of nothing but what the package has.
    A case counts by the worse of the devices on which the expert gains. WORDS choose the cases that have one of them in
    their name; rows of other cases that the file holds already stay in it.
    """
    chosen = [n for n, case in enumerate(CASES) if not groups or case.group in groups]
    chosen = [n for n in chosen if not words or any(word in CASES[n].name for word in words)]
    console = Console(width=150)
    known: list[dict[str, Any]] = json.loads(target.read_text())["models"] if target.exists() else []
    rows = {(row["group"], row["name"]): row for row in known}
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(jobs, get_context("spawn"), begin, (folder,)) as pool,
        Progress(console=Console(width=150, stderr=True)) as progress,
    ):
        task = progress.add_task("cases", total=len(chosen))
        for row in pool.map(row_of, chosen):
            rows[row["group"], row["name"]] = row
            _write(rows, target)
            progress.advance(task)
            if "failed" in row:
                progress.console.print(f"{row['group']}: {row['name']}: {row['failed']}")
            elif not is_equal(row):
                progress.console.print(f"{row['group']}: {row['name']}: the sides differ by {row['differs']:.2g}")
    every = _write(rows, target)
    console.print(_table(counted(_good(every))))
    if listed:
        places = {CASES[n].name for n in chosen}
        console.print(_list([r for r in _good(every) if r["name"] in places and worst(r) not in ("reached", NOTHING)]))


def _write(rows: Mapping[tuple[str, str], dict[str, Any]], target: Path) -> list[dict[str, Any]]:
    """Write the rows of cases that there are, in order, and return them."""
    order = {(case.group, case.name): place for place, case in enumerate(CASES)}
    every = sorted((r for key, r in rows.items() if key in order), key=lambda r: order[r["group"], r["name"]])
    target.parent.mkdir(parents=True, exist_ok=True)
    shares = {group: dict(counts) for group, counts in counted(_good(every)).items()}
    target.write_text(json.dumps(document(every) | {"counts": shares}, indent=1) + "\n", encoding="utf-8")
    return every


def _good(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows that count: of cases that failed, or whose sides are equal."""
    return [row for row in rows if "failed" in row or is_equal(row)]


def _table(counts: Mapping[str, Counter[str]]) -> Table:
    table = Table("group", *CLASSES, NOTHING, "share reached")
    for group, classes in counts.items():
        gained = sum(classes[c] for c in CLASSES)
        share = f"{classes['reached'] / gained:.0%}" if gained else "-"
        table.add_row(group, *(str(classes[c]) for c in (*CLASSES, NOTHING)), share)
    return table


def _list(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("group", "case", *(f"{device}: before / after / expert, us" for device in DEVICES))
    for row in rows:
        cells = [row["failed"]] if "failed" in row else [_cell(row[device]) for device in DEVICES]
        table.add_row(row["group"], row["name"], *cells)
    return table


def _cell(costs: Mapping[str, Any]) -> str:
    return f"{costs['class']}: " + " / ".join(f"{1e6 * costs[k]:.4g}" for k in ("before", "after", "expert"))


if __name__ == "__main__":
    main()
