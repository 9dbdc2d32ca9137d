"""Cuts of large graphs: `python -m benchmarks.partition [NODES …]` prints a table and writes JSON.

Graphs are random: each node is an activation, a transpose, or a sum or product of the node before and one of the last
four, so that no two blocks are equal. A cut loses the substitutions of the shipped rules through the nodes cut.
Seconds are those of the processor. With `--search SECONDS` the graphs are also optimised in parts, by so many
`--processes`, at estimated costs; those seconds are of the wall.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

import eqsat
from eqsat.language.graphs.partition import PARTITIONERS, partition
from eqsat.language.terms import Graph
from eqsat.rewrites.rules.crossings import crossings
from eqsat.rewrites.rules.loader import load_rules

RESULTS = Path(__file__).parent / "results" / "partition.json"
T = TypeVar("T")


@click.command()
@click.argument("nodes", nargs=-1, type=int)
@click.option("--most", default=500, show_default=True, help="The most nodes of a part.")
@click.option("--seed", default=0, show_default=True)
@click.option("--search", default=0.0, help="Seconds of a call that optimises each graph in parts; none if left out.")
@click.option("--processes", default=2, show_default=True, help="Processes that optimise parts.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS, show_default=False)
def main(nodes: tuple[int, ...], most: int, seed: int, search: float, processes: int, target: Path) -> None:
    """Cuts graphs of these numbers of nodes by every partitioner."""
    rules = load_rules()
    len(rules)  # reading them is no part of counting
    rows: list[dict[str, Any]] = []
    for count in nodes or (2_000, 10_000, 100_000):
        graph = random_graph(count, seed)
        losses, counting = timed(lambda graph=graph: crossings(graph, rules))
        for name in PARTITIONERS:
            found, cutting = timed(lambda graph=graph, losses=losses, name=name: partition(graph, losses, most, name))
            sizes = [len(part) for part in found.parts]
            rows.append(
                {
                    "nodes": count,
                    "method": name,
                    "substitutions": sum(losses),
                    "lost": found.loss,
                    "cut nodes": len({node for cut in found.cuts for node in cut.cut}),
                    "parts": len(sizes),
                    "smallest": min(sizes),
                    "largest": max(sizes),
                    "counting seconds": round(counting, 2),
                    "cutting seconds": round(cutting, 2),
                    **(searched(graph, name, most, search, processes) if search else {}),
                }
            )
    table = Table("", *(str(number + 1) for number in range(len(rows))))
    for figure in rows[0]:
        table.add_row(figure, *(str(row[figure]) for row in rows))
    Console().print(table)
    target.write_text(json.dumps({"most": most, "seed": seed, "graphs": rows}, indent=1) + "\n")


def searched(graph: Graph, method: str, most: int, seconds: float, processes: int) -> dict[str, Any]:
    """The outcome of a call that optimises a graph in parts, cut by a partitioner."""
    begin = time.monotonic()
    report = eqsat.optimize(
        graph,
        partition=method,
        max_nodes=most,
        executor=processes,
        time_limit=seconds,
        measure=False,
        cache=False,
    ).report
    return {
        "kept": report.kept,
        "cost before": report.cost_before,
        "cost after": report.cost_after,
        "searched": len(report.partition),
        "left as given": sum(bool(part.why) for part in report.partition),
        "cheaper": sum(part.costs[1] < part.costs[0] for part in report.partition),
        "seconds of the call": round(time.monotonic() - begin, 1),
    }


def timed(compute: Callable[[], T]) -> tuple[T, float]:
    """A result, and the seconds of the processor that it took."""
    begin = time.process_time()
    return compute(), time.process_time() - begin


def random_graph(count: int, seed: int) -> Graph:
    """A graph of `count` nodes on matrices of 8 by 8, one of which the rest follow from."""
    draw, g = random.Random(seed), eqsat.Graph(f"random {count}")
    made = [g.input("x", (8, 8))]
    for _ in range(count):
        last, other = made[-1], draw.choice(made[-4:])
        kind = draw.choice(("relu", "tanh", "add", "mul", "matmul", "transpose"))
        if kind in ("relu", "tanh"):
            made.append(g.apply(kind, last))
        else:
            made.append(last.transpose(1, 0) if kind == "transpose" else g.apply(kind, last, other))
    g.output("y", made[-1])
    return g.build()


if __name__ == "__main__":
    main()
