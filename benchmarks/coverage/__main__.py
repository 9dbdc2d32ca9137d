"""Coverage of models and node tests, with a line for each model as it is done.

`python -m benchmarks.coverage [--only GROUP] [MODEL …]` takes up an interrupted run where it was.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.coverage.sources import GROUPS, Source, sources
from benchmarks.coverage.tables import show, summary
from benchmarks.rows import document
from benchmarks.trained import optimised
from eqsat.report.units import percent

RESULTS = Path(__file__).parents[1] / "results"
#: Seconds that reading and profiling a model may take.
_PROFILE_SECONDS = 300.0
_NODE_TESTS = "node tests"


@click.command()
@click.argument("models", nargs=-1)
@click.option("--only", "groups", type=click.Choice(GROUPS), multiple=True, help="A group alone; may be repeated.")
@click.option("--time-bound", default=300.0, help="Seconds after which a run is ended, and said not to end.")
@click.option("--python", type=click.Path(path_type=Path), help="An interpreter with PyTorch, to export models with.")
@click.option("--again", is_flag=True, help="Begin anew, also where a run was interrupted.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "coverage.json")
def main(
    models: tuple[str, ...], groups: tuple[str, ...], time_bound: float, python: Path | None, again: bool, target: Path
) -> None:
    """Reads, profiles and optimises models, all or those named, and counts ONNX's node tests.

    What is done is in the file after each model, so that Ctrl-C loses one at most; rows of others stay in the file.
    """
    known = json.loads(target.read_text()) if target.exists() else {}
    chosen = groups or (GROUPS if not models else tuple(g for g in GROUPS if g != "nodes"))
    found = {one.name: one for group in chosen for one in sources(group, python)}
    unknown = [name for name in models if name not in found]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(found)}")
    wanted = [*([_NODE_TESTS] if "nodes" in chosen and not models else []), *(models or found)]
    left = [name for name in wanted if name in known.get("pending", ())]
    pending = left if left and not again else wanted
    if left and not again:
        click.echo(f"{len(wanted) - len(left)} of {len(wanted)} are done; --again begins anew")
    report = _Report(target, known)
    try:
        for index, name in enumerate(list(pending), start=1):
            report.save(pending[index - 1 :])
            click.echo(f"[{index}/{len(pending)}] {name} … ", nl=False)
            if name == _NODE_TESTS:
                report.tests = _said_by("benchmarks.coverage.node_tests")
                click.echo(
                    f"{report.tests.get('without an opaque node')} of {report.tests.get('tests')} without opaque"
                )
            else:
                report.rows[name] = row = _row(found[name], time_bound)
                click.echo(_line(row))
    except KeyboardInterrupt:
        click.echo("\ninterrupted; the next run goes on from here")
        sys.exit(130)
    report.save([])
    show(Console(width=200), report.document([]))


class _Report:
    """The file of results, as it stands: what is in it already stays until it is done anew."""

    def __init__(self, target: Path, known: dict[str, Any]) -> None:
        self.target = target
        self.rows: dict[str, dict[str, Any]] = {row["model"]: row for row in known.get("models", [])}
        self.tests: dict[str, Any] = known.get("node_tests", {})

    def document(self, pending: Sequence[str]) -> dict[str, Any]:
        """All of it; `pending` is what the next run goes on with."""
        rows = sorted(self.rows.values(), key=lambda row: (GROUPS.index(row["group"]), row["model"]))
        return {"summary": summary(rows), **document(rows), "node_tests": self.tests, "pending": list(pending)}

    def save(self, pending: Sequence[str]) -> None:
        self.target.parent.mkdir(parents=True, exist_ok=True)
        self.target.write_text(json.dumps(self.document(pending), indent=1) + "\n")


def _row(source: Source, time_bound: float) -> dict[str, Any]:
    """What is opaque in a model, and what `eqsat optimize` makes of it with its defaults."""
    row: dict[str, Any] = {"model": source.name, "group": source.group, "from": source.origin}
    with tempfile.TemporaryDirectory(prefix="eqsat-coverage-") as folder:
        path = source.bring(Path(folder))
        read = _said_by("benchmarks.coverage.times", str(path))
        if not read.get("imported"):
            return {**row, "imported": False, **read}
        made = optimised(path, time_bound)
    # What the report says of opaque nodes is here by operator and reason already.
    opaque = {"nodes_read": read.pop("nodes"), **read}
    return {**row, **{key: value for key, value in made.items() if key != "opaque"}, **opaque}


def _said_by(module: str, *arguments: str) -> dict[str, Any]:
    """The line of JSON that a module prints in a process of its own; its error where it prints none."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROFILE_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"not ended after {_PROFILE_SECONDS:g} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        said = done.stderr.strip().splitlines()
        return {"error": said[-1] if said else f"exit code {done.returncode}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _line(row: dict[str, Any]) -> str:
    """What is said of a model when it is done."""
    if not row["imported"]:
        return f"not read: {row.get('error')}"
    time = "not profiled" if "opaque_time" not in row else f"opaque {percent(row['opaque_time'])} of the time"
    ratio = "" if row.get("new/old") is None else f" {row['new/old']}"
    return f"{time}; {row['outcome']}{ratio}, {row['seconds']} s"


if __name__ == "__main__":
    main()
