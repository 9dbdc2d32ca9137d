"""Extraction with states: transformers in two layouts times two precisions, solved from the real e-graph.

`python -m benchmarks.states [MODEL …]` prints a table and writes JSON.
"""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.models import load
from eqsat.costs.kernels.implementations import Choices
from eqsat.costs.kernels.precision import PrecisionPolicy
from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.extract import Problem, solve
from eqsat.extract.tensors.tensors import tensor_problem
from eqsat.language.onnx.read.importer import load as read
from eqsat.rewrites.rules.loader import load_rules

RESULTS = Path(__file__).parent / "results"
MODELS = ("bert_base", "taso_bert", "vit_base", "llama")
#: The rules an e-graph is grown with: none, the library, and the library with laws that multiply ties.
GROWTHS = ("plain", "library", "algebra")
ALGEBRA = """
%phase expand
states-add-commutes: add(x, y) => add(y, x)
states-mul-commutes: mul(x, y) => mul(y, x)
states-add-associates: add(add(x, y), z) => add(x, add(y, z))
states-mul-associates: mul(mul(x, y), z) => mul(x, mul(y, z))
"""
#: What may be chosen besides the graph: nothing; two layouts times two precisions, which are four states a class.
CHOICES = {1: Choices(), 4: Choices(("row", "column"), PrecisionPolicy(("float16",)))}


def grown(name: str, growth: str) -> Snapshot:
    """The e-graph of a model, grown as `growth` says."""
    encoding = encode(read(load(name)))
    if growth != "plain":
        rules = load_rules([ALGEBRA] if growth == "algebra" else [])
        Saturator(encoding.egraph, rules, Limits(seconds=60.0)).run()
    return snapshot(encoding)


@click.command()
@click.argument("models", nargs=-1)
@click.option("--time-limit", default=60.0, help="Seconds a problem.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "states.json")
def main(models: tuple[str, ...], time_limit: float, target: Path) -> None:
    """Solves each model in one state and in four, and tabulates when it came within 1 % and when it was proved."""
    rows: list[dict[str, Any]] = []
    for name in models or MODELS:
        for growth in GROWTHS:
            frozen, model = grown(name, growth), CostModel("nvidia-h200")
            for states, choices in CHOICES.items():
                problem = tensor_problem(frozen, model, choices=choices).problem
                rows.append({"model": name, "rules": growth, "states": states, **_solved(problem, time_limit)})
                click.echo(json.dumps(rows[-1]))
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=160).print(table)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"machine": platform.machine(), "rows": rows}, indent=1) + "\n")


def _solved(problem: Problem, time_limit: float) -> dict[str, Any]:
    start, near = time.monotonic(), float("inf")

    def follow(cost: float, bound: float) -> None:
        nonlocal near
        if bound >= 0.99 * cost:
            near = min(near, time.monotonic() - start)

    solution = solve(problem, time_limit=time_limit, progress=follow)
    solution.check(problem)
    return {
        "implementations": len(problem.nodes),
        "conversions": len(problem.conversions),
        "status": solution.status,
        "cost": solution.cost,
        "bound": solution.lower_bound,
        "greedy": solve(problem, extractor="greedy").cost,
        "within 1 % after s": round(near, 2),
        "seconds": round(solution.seconds, 2),
    }


if __name__ == "__main__":
    main()
