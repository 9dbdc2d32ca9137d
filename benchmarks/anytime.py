"""How cost and bound of large extraction problems close over time, and the memory that takes.

`python -m benchmarks.anytime [--files FOLDER] [MODEL …]` grows e-graphs of real models to tens of thousands of e-nodes,
solves each in a process of its own, and with it every egraph-serialize file of a folder; prints a table, writes JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import platform
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.models import load
from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.egraph.snapshot import snapshot
from eqsat.extract import Problem, solve
from eqsat.extract.problem.gym import read_gym
from eqsat.extract.tensors.tensors import tensor_problem
from eqsat.language.onnx.read.importer import load as read
from eqsat.rewrites.rules.loader import load_rules

RESULTS = Path(__file__).parent / "results"
#: How far each model is grown: merges of what was merged before are what makes the graphs large and cyclic.
GROWN = {
    "nasrnn": Limits(nodes=60_000, rounds=30, generations=8, radius=30, seconds=200.0),
    "nasnet_a": Limits(nodes=45_000, rounds=30, generations=8, radius=30, seconds=300.0),
    "taso_bert": Limits(nodes=60_000, rounds=30, generations=8, radius=30, seconds=200.0),
    "bert_base": Limits(nodes=30_000, rounds=30, generations=8, radius=30, seconds=200.0),
    "resnext50": Limits(nodes=60_000, rounds=30, generations=8, radius=30, seconds=200.0),
    "inception_v3": Limits(nodes=20_000, rounds=30, generations=8, radius=30, seconds=200.0),
}
#: Two points of a curve lie at least this part of the time limit apart.
SPACING = 0.02


@click.command()
@click.argument("models", nargs=-1)
@click.option("--files", type=click.Path(path_type=Path, exists=True, file_okay=False), help="Folder of JSON files.")
@click.option("--time-limit", default=60.0, help="Seconds a problem.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "anytime.json")
def main(models: tuple[str, ...], files: Path | None, time_limit: float, target: Path) -> None:
    """Solves grown models, and files if a folder is given, and tabulates cost, bound, gap, seconds and memory."""
    tasks = {name: partial(grown, name) for name in models or GROWN}
    for path in sorted(files.glob("*.json")) if files else ():
        tasks[path.stem] = partial(read_gym, path)
    rows = []
    for name, build in track(tasks.items(), description="graphs"):
        problem = _apart(build)
        rows.append({"graph": name, **_apart(solved, problem, time_limit)})
    Console(width=160).print(_table(rows))
    target.parent.mkdir(parents=True, exist_ok=True)
    document = {"machine": platform.processor() or platform.machine(), "time_limit": time_limit, "graphs": rows}
    target.write_text(json.dumps(document, indent=1) + "\n")


def _apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def grown(name: str) -> Problem:
    """The problem of a model's e-graph, grown as GROWN says."""
    encoding = encode(read(load(name)))
    Saturator(encoding.egraph, load_rules(), GROWN[name]).run()
    return tensor_problem(snapshot(encoding), CostModel("nvidia-h200")).problem


def solved(problem: Problem, time_limit: float) -> dict[str, Any]:
    """The figures of one problem; peak memory is that of the process, the e-graph not in it."""
    greedy = solve(problem, extractor="greedy").cost
    start = time.monotonic()
    curve: list[tuple[float, float, float]] = []

    def follow(cost: float, bound: float) -> None:
        now = time.monotonic() - start
        if not curve or now - curve[-1][0] >= SPACING * time_limit:
            curve.append((round(now, 2), cost, bound))

    solution = solve(problem, time_limit=time_limit, progress=follow)
    seconds = time.monotonic() - start
    curve.append((round(seconds, 2), solution.cost, solution.lower_bound))
    solution.check(problem)
    return {
        "e-nodes": len(problem.nodes),
        "e-classes": len({node.eclass for node in problem.nodes}),
        "greedy": greedy,
        "cost": solution.cost,
        "bound": solution.lower_bound,
        "gap": solution.gap,
        "status": solution.status,
        "seconds": round(seconds, 2),
        "peak MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "curve": curve,
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    columns = [key for key in rows[0] if key != "curve"]
    table = Table(*columns, "gap over time")
    for row in rows:
        shown = [f"{row[c]:.6g}" if isinstance(row[c], float) else str(row[c]) for c in columns]
        steps = row["curve"][:: max(len(row["curve"]) // 4, 1)]
        table.add_row(*shown, " ".join(f"{(cost - bound) / cost:.1%}@{at:.0f}s" for at, cost, bound in steps if cost))
    return table


if __name__ == "__main__":
    main()
