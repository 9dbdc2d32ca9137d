"""Extractors side by side: `python -m benchmarks.extraction [MODEL|FILE|FOLDER …]` prints a table and writes JSON.

Graphs are egraph-serialize files and the e-graphs that the library grows from models, priced as `optimize` prices them
on a cost table in which nothing is measured. Backtracking begins at the original graph of a model, and at the cheapest
tree of a file. A gap is (cost - bound) / cost with the bound that the integer program proved. Seconds are those of the
processor, which other work on the machine does not stretch, though it shortens a search that ends at its time limit.
Every choice is checked.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import platform
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.models import MODELS, load
from eqsat.extract import Problem, Solution, solve
from eqsat.extract.problem.gym import read_gym
from eqsat.extract.solvers.greedy import dag_greedy, tree_greedy

RESULTS = Path(__file__).parent / "results" / "extraction.json"
#: Batch 16 grows the e-graphs of batch 1 again.
DEFAULT = [n for n in MODELS if not n.endswith("_batch16")]
ALPHAS = (0.95, 1.0, 1.05, 1.1)
DEVICE = "onnxruntime-cpu"
#: Relative: what sums of the same costs in another order may differ by.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Job:
    """A graph to extract from: a model by name, or a file with the name that the table gives it."""

    name: str
    path: Path | None = None


@click.command()
@click.argument("graphs", nargs=-1)
@click.option("--time-limit", default=10.0, show_default=True, help="Seconds for each search.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS, show_default=False)
def main(graphs: tuple[str, ...], time_limit: float, target: Path) -> None:
    """Runs every extractor on every graph, each graph in a process of its own on one core.

    Rows of other graphs that the file holds already stay in it. Ends with 1 where the integer program was beaten.
    """
    jobs = [job for name in graphs or DEFAULT for job in _jobs(name)]
    known = json.loads(target.read_text())["graphs"] if target.exists() else []
    rows: list[dict[str, Any]] = []
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=fresh, initializer=_one_core, max_tasks_per_child=1) as pool:
        made = pool.map(partial(_row, time_limit=time_limit), jobs)
        for row in track(made, description="graphs", total=len(jobs)):
            rows.append(row)
            merged = {row["graph"]: row for row in [*known, *rows]}
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(json.dumps(_document(list(merged.values())), indent=1) + "\n")
    console = Console(width=200)
    console.print(_table(rows))
    console.print(_summary_table(_summary(rows)))
    beaten = [f"{row['graph']} by {name}" for row in rows for name in _better(row)]
    if beaten:
        raise click.ClickException("the integer program was beaten on " + ", ".join(beaten))


def _jobs(name: str) -> Iterator[Job]:
    """The graphs that an argument stands for."""
    path = Path(name)
    if name in MODELS:
        yield Job(name)
    elif path.is_dir():
        for found in sorted(path.rglob("*.json")):
            yield Job(f"{path.resolve().name}/{found.relative_to(path)}", found)
    elif path.is_file():
        yield Job(path.name, path)
    else:
        raise click.UsageError(f"no model, file or folder {name!r}; models are {', '.join(MODELS)}")


def _one_core() -> None:
    import highspy  # noqa: F401 - so that no run is charged for loading it

    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


def _row(job: Job, time_limit: float) -> dict[str, Any]:
    """What each extractor found for a graph."""
    problem, start, about = _from_model(job.name) if job.path is None else (read_gym(job.path), None, {})
    runs: dict[str, Callable[[], Solution]] = {
        "ilp": partial(solve, problem, time_limit=time_limit),
        "tree": partial(tree_greedy, problem),
        "dag": partial(dag_greedy, problem),
    }
    if start is not None:
        runs["original"] = partial(solve, problem, extractor="backtracking", start=start, time_limit=0.0)
    for alpha in ALPHAS:
        search = partial(solve, problem, extractor="backtracking", alpha=alpha, start=start, time_limit=time_limit)
        runs[f"alpha {alpha:g}"] = search
    found = {name: _figures(run, problem) for name, run in runs.items()}
    bound = found["ilp"].pop("bound")
    for figures in found.values():
        figures["gap"] = (figures["cost"] - bound) / figures["cost"] if figures["cost"] > bound else 0.0
        figures.pop("bound", None)
    return {
        "graph": job.name,
        "kind": "model" if job.path is None else "file",
        **about,
        "nodes": len(problem.nodes),
        "goals": len(problem.goals),
        "time_limit": time_limit,
        "bound": bound,
        "found": found,
    }


def _figures(run: Callable[[], Solution], problem: Problem) -> dict[str, Any]:
    """What a run found, after a check, and the seconds it took: of the processor, and by the clock."""
    began = time.process_time()
    solution = run()
    spent = time.process_time() - began
    solution.check(problem)
    return {
        "cost": solution.cost,
        "bound": solution.lower_bound,
        "status": solution.status,
        "seconds": spent,
        "wall": solution.seconds,
    }


def _from_model(name: str) -> tuple[Problem, Collection[int], dict[str, Any]]:
    """The problem of a model's e-graph, the nodes of its original graph, and what grew."""
    from eqsat.costs.model.model import CostModel
    from eqsat.costs.table.table import CostTable
    from eqsat.egraph.encode import encode
    from eqsat.egraph.saturate import Saturator
    from eqsat.egraph.saturation import Limits
    from eqsat.egraph.snapshot import snapshot
    from eqsat.extract.tensors.tensors import tensor_problem
    from eqsat.language.onnx.read.importer import load as read
    from eqsat.language.onnx.write.availability import opset_of
    from eqsat.rewrites.rules.loader import load_rules
    from eqsat.runtime.onnxruntime.support import available_on

    graph = read(load(name))
    encoding = encode(graph)
    grown = Saturator(encoding.egraph, load_rules(), Limits(nodes=20_000, seconds=60.0)).run()
    frozen = snapshot(encoding)
    with tempfile.TemporaryDirectory(prefix="eqsat-bench-") as folder:
        costs = CostModel(DEVICE, CostTable(Path(folder) / "empty.sqlite3"), None, {})
        extraction = tensor_problem(frozen, costs, available_on(opset_of(graph)))
    about = {"enodes": len(frozen.nodes), "eclasses": len(frozen.classes), "stopped_by": grown.stopped_by}
    return extraction.problem, extraction.original(), about


def _better(row: dict[str, Any]) -> list[str]:
    """The baselines that found something cheaper than the integer program, which none should."""
    limit = row["found"]["ilp"]["cost"] * (1 - ROUNDING)
    return [name for name, found in row["found"].items() if found["cost"] < limit]


def _summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each kind of graph and each extractor: how often it met the bound, its gaps and seconds."""
    summary = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        those = [row for row in rows if row["kind"] == kind]
        for name in those[0]["found"]:
            found = [row["found"][name] for row in those]
            worse = [
                f["cost"] / row["found"]["ilp"]["cost"] for f, row in zip(found, those, strict=True) if f["cost"] > 0
            ]
            summary.append(
                {
                    "kind": kind,
                    "graphs": len(those),
                    "extractor": name,
                    "at_bound": sum(f["gap"] <= ROUNDING for f in found),
                    "mean_cost_over_ilp": math.exp(math.fsum(map(math.log, worse)) / len(worse)) if worse else 1.0,
                    "worst_gap": max(f["gap"] for f in found),
                    "seconds": math.fsum(f["seconds"] for f in found),
                    "most_seconds": max(f["seconds"] for f in found),
                }
            )
    return summary


def _document(rows: list[dict[str, Any]]) -> dict[str, Any]:
    from importlib.metadata import version

    from eqsat.costs.table.environment import cpu_model

    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": 1,
        "python": platform.python_version(),
        "versions": {p: version(p) for p in ("eqsat", "highspy", "numpy")},
        "summary": _summary(rows),
        "graphs": rows,
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Gap to the proven bound, and seconds of one core")
    table.add_column("graph", max_width=44)
    names = list(dict.fromkeys(name for row in rows for name in row["found"]))
    for heading in ("nodes", "bound", *names):
        table.add_column(heading, justify="right")
    for row in rows:
        cells = (_cell(row["found"].get(name)) for name in names)
        table.add_row(row["graph"], str(row["nodes"]), f"{row['bound']:.6g}", *cells)
    return table


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    gap = "0" if found["gap"] <= ROUNDING else f"{100 * found['gap']:.2g} %"
    return f"{gap}  {found['seconds']:.2f} s"


def _summary_table(summary: list[dict[str, Any]]) -> Table:
    table = Table("graphs", "extractor", title="All graphs of a kind")
    for heading in ("at the bound", "cost / ilp", "worst gap", "seconds", "most seconds"):
        table.add_column(heading, justify="right")
    for line in summary:
        table.add_row(
            f"{line['graphs']} {line['kind']}s",
            line["extractor"],
            str(line["at_bound"]),
            f"{line['mean_cost_over_ilp']:.4f}",
            f"{100 * line['worst_gap']:.2g} %",
            f"{line['seconds']:.2f}",
            f"{line['most_seconds']:.2f}",
        )
    return table


if __name__ == "__main__":
    main()
