"""eqsat beside the backtracking search of MetaFlow and TASO, by the same rules and costs.

`python -m benchmarks.baselines [MODEL …]` prints a table and writes JSON: for each model and device the cost of the
original, of eqsat's result with its bound, of greedy extraction, of backtracking in eqsat's e-graph, and of the search
over graphs (`benchmarks/baselines/search.py`) at several values of alpha, and with the graph split, by minimum cuts and
by balanced ones; the seconds of the processor that each took, how many graphs were visited, and launches and peak
memory before and after. What a search finds is priced as eqsat prices it: kernels are chosen by the integer program,
with no rules. Nothing is timed on a device: costs are those that come with eqsat, and each row says which part of the
original's is an estimate. Published figures stand beside, cited.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

import eqsat
from benchmarks.baselines.published import PUBLISHED
from benchmarks.baselines.search import Found, GraphSearch, Question, split_search
from benchmarks.models import MODELS, load
from benchmarks.programs import sizes_of
from benchmarks.rows import document
from eqsat.extract.tensors.tensors import Available, everything
from eqsat.language.graphs.partition import PARTITIONERS
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.onnx.write.availability import opset_of
from eqsat.language.terms import Graph
from eqsat.options.options import Options
from eqsat.report.report import Report
from eqsat.run import Run
from eqsat.runtime.onnxruntime.support import available_on, windowed_dims

RESULT = Path(__file__).parents[1] / "results" / "baselines.json"
DEVICES = ("onnxruntime-cpu", "nvidia-h200")
ALPHAS = (1.0, 1.05)
#: The alpha of the split search, and the nodes above which it cuts a part.
SPLIT_ALPHA, MOST_NODES = 1.05, 40
#: Seconds by the clock that a call of eqsat may take: enough on a busy machine for what takes a third when it is idle.
CALL_SECONDS = 120.0


@click.command()
@click.argument("models", nargs=-1)
@click.option("--device", "devices", type=click.Choice(DEVICES), multiple=True, default=DEVICES, help="Repeatable.")
@click.option("--seconds", default=4.0, show_default=True, help="Least seconds of the processor for a search.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULT, show_default=False)
@click.option("--inside", hidden=True, is_flag=True, help="Print the row of one model in this process.")
def main(models: tuple[str, ...], devices: tuple[str, ...], seconds: float, target: Path, inside: bool) -> None:
    """Optimises models, those that were published if none is named, by eqsat and by searches.

    Rows of other models that the file holds already stay in it.
    """
    unknown = [m for m in models if m not in MODELS]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join(MODELS)}")
    if inside:
        click.echo(json.dumps(compared(models[0], devices[0], seconds)))
        return
    rows = json.loads(target.read_text())["models"] if target.exists() else []
    jobs = [(name, device) for name in models or PUBLISHED for device in devices]
    for name, device in track(jobs, description="models"):
        row = _apart(name, device, seconds)
        rows = [one for one in rows if (one["model"], one["device"]) != (name, device)] + [row]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(document(rows), indent=1) + "\n")
    Console(width=200).print(_table(rows))


def _apart(name: str, device: str, seconds: float) -> dict[str, Any]:
    """A row, made in a process of its own."""
    more = ["--inside", "--device", device, "--seconds", str(seconds), name]
    environment = {**os.environ, "EQSAT_COST_TABLE": ":memory:"}
    command = [sys.executable, "-m", "benchmarks.baselines", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def compared(name: str, device: str, seconds: float) -> dict[str, Any]:
    """The row of one model on one device; each search has as many seconds as eqsat took for all, and no fewer."""
    model = load(name)
    options: dict[str, Any] = {
        "device": device,
        "sizes": sizes_of(read(model)),
        "time_limit": CALL_SECONDS,
        "measure": False,
        "cache": False,
        "threads": 1,
    }
    optimise = partial(eqsat.optimize, **options)
    begin = time.process_time()
    report = optimise(model).report
    spent = time.process_time() - begin
    seconds = max(seconds, spent)
    run = Run.read(model, Options(**options))
    graph, costs = run.given.graph, run.settings.costs
    available: Available = everything
    if not costs.device.gpu:
        available = available_on(opset_of(graph), windowed=windowed_dims(graph))
    question = Question(run.rules, costs, available)
    searches: dict[str, Callable[[], Found]] = {
        f"alpha {alpha:g}": partial(GraphSearch(question, alpha, seconds).run, graph) for alpha in ALPHAS
    }
    for method in PARTITIONERS:
        split = partial(split_search, question, graph, SPLIT_ALPHA, seconds, MOST_NODES, method)
        searches[f"alpha {SPLIT_ALPHA:g}, {method} split"] = split
    bare = optimise(graph, rules=[]).report
    before = {"cost": report.cost_before, "without_rules": bare.cost_after, **_usage(report, "usage_before")}
    return {
        "model": name,
        "device": device,
        "nodes": report.nodes_before,
        "estimated": report.estimated_share,
        "before": before,
        "eqsat": {
            "cost": report.cost_after,
            "bound": report.lower_bound,
            "gap": report.gap,
            "ended": report.extraction,
            "seconds": spent,
            "kept": report.kept,
            "skipped": list(report.skipped),
            **_usage(report, "usage_after"),
        },
        "extractors": {one.name: one.cost for one in report.baselines},
        "searches": {label: _searched(run_one(), optimise, graph) for label, run_one in searches.items()},
        "time_limit": seconds,
        "published": [asdict(one) for one in PUBLISHED.get(name, ())],
    }


def _searched(found: Found, optimise: Callable[..., Any], graph: Graph) -> dict[str, Any]:
    """The figures of a search; kernels of what it found are chosen with no rules."""
    report = optimise(found.graph if found.graph is not graph else graph, rules=[]).report
    return {
        "cost": report.cost_after,
        "operators": [found.begin, found.cost],
        "visited": found.visited,
        "met": found.met,
        "ended": found.ended,
        "seconds": found.seconds,
        "kept": report.kept,
        **_usage(report, "usage_after"),
    }


def _usage(report: Report, which: str) -> dict[str, float | None]:
    """Launches and peak memory, as a report has them."""
    usage = getattr(report, which)
    return {"launches": None if usage is None else usage.launches, "peak": None if usage is None else usage.peak_memory}


def _table(rows: list[dict[str, Any]]) -> Table:
    """The rows as people read them: costs over that of the original."""
    names = list(dict.fromkeys(label for row in rows for label in row["searches"]))
    shown = Table("model", "device", title="Cost over the original's, seconds of the processor, graphs visited")
    for column in ("nodes", "eqsat", "gap", "greedy", *names, "launches", "peak memory"):
        shown.add_column(column, justify="right")
    for row in rows:
        whole = row["before"]["cost"]
        ours, searches = row["eqsat"], row["searches"]
        cells = [f"{s['cost'] / whole:.3f} {s['seconds']:.1f} s {s['visited']}" for s in map(searches.get, names) if s]
        usage = [f"{row['before'][key]:,.0f} → {ours[key]:,.0f}" for key in ("launches", "peak")]
        greedy = row["extractors"].get("greedy")
        first = [f"{ours['cost'] / whole:.3f} {ours['seconds']:.1f} s", f"{100 * ours['gap']:.2g} %"]
        first.append("–" if greedy is None else f"{greedy / whole:.3f}")
        shown.add_row(row["model"], row["device"], str(row["nodes"]), *first, *cells, *usage)
    return shown


if __name__ == "__main__":
    main()
