"""The time that an operator takes beside its arithmetic: chains of operators on a few elements, of growing length.

`python -m benchmarks.overhead` times chains on each backend as they are, in one run of rounds in random order. The
slope of time over length is the time of one operator, whose arithmetic is some ten nanoseconds.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import eqsat
from benchmarks.whole_models import timed
from eqsat.costs.table.environment import cpu_model
from eqsat.errors import BackendError
from eqsat.language.terms import Graph
from eqsat.runtime.backend import select
from eqsat.runtime.c.toolchain import compiler_version
from eqsat.runtime.examples import example_inputs

RESULT = Path(__file__).parent / "results" / "overhead.json"
LENGTHS = (50, 100, 200, 400)
BACKENDS = ("c", "onnxruntime", "openvino", "numpy")


def products(length: int) -> Graph:
    """Products of a row of four elements with a matrix of its own at each step."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph(f"{length} products")
    y = g.input("x", (1, 4))
    for _ in range(length):
        y = y @ g.constant(np.linalg.qr(rng.standard_normal((4, 4)))[0].astype(np.float32))
    g.output("y", y)
    return g.build()


def cells(length: int) -> Graph:
    """Steps of a recurrent cell of four elements, of three operators each: a product, a sum and a tanh."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph(f"{length} operators of a cell")
    w, b = (g.constant(rng.standard_normal(s).astype(np.float32)) for s in ((4, 4), (4,)))
    y = g.input("x", (1, 4))
    for _ in range(length // 3):
        y = eqsat.tanh(y @ w + b)
    g.output("y", y)
    return g.build()


def movements(length: int) -> Graph:
    """Rows that are turned round and joined to themselves: a slice and a concatenation by turns."""
    g = eqsat.Graph(f"{length} movements")
    y = g.input("x", (2, 4))
    for _ in range(length // 2):
        y = eqsat.concat([y[:, 1:], y[:, :1]], axis=1)
    g.output("y", y)
    return g.build()


CHAINS: dict[str, Callable[[int], Graph]] = {"products": products, "cells": cells, "movements": movements}


def slope(lengths: list[int], seconds: list[float]) -> float:
    """The seconds of one operator more, by least squares.

    >>> round(slope([10, 20, 30], [1.5, 2.5, 3.5]), 9)
    0.1
    """
    return float(np.polyfit(lengths, seconds, 1)[0])


def measured(chain: str, seconds: float) -> dict[str, Any]:
    """The time of an operator of a chain on each backend."""
    medians: dict[str, list[float]] = {}
    refused: dict[str, str] = {}
    lengths: list[int] = []
    for asked in LENGTHS:
        graph = CHAINS[chain](asked)
        inputs = example_inputs(graph, {}, 0)
        calls: dict[str, Callable[[], object]] = {}
        for name in BACKENDS:
            try:
                options: dict[str, Any] = {"regions": ()} if name == "c" else {}
                calls[name] = select(name).compile(graph, threads=1, **options).bind(inputs)
            except BackendError as error:
                refused[name] = error.what
        lengths.append(len(graph.nodes))
        for name, times in timed(calls, seconds).items():
            medians.setdefault(name, []).append(statistics.median(times))
    slopes = {name: slope(lengths, times) for name, times in medians.items() if len(times) == len(lengths)}
    return {"chain": chain, "operators": lengths, "seconds": medians, "an operator": slopes, "refused": refused}


@click.command()
@click.option("--seconds", default=4.0, show_default=True, help="Seconds for which a chain of one length is timed.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, help=f"[{RESULT.name}]")
def main(seconds: float, output: Path) -> None:
    """Prints and writes the time of an operator on a few elements, by backend."""
    records = [measured(chain, seconds) for chain in CHAINS]
    told = {"processor": cpu_model(), "compiler": compiler_version(), "chains": records}
    output.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    shown = Table("nanoseconds an operator", *BACKENDS, "C / ONNX Runtime")
    for record in records:
        slopes = record["an operator"]
        texts = [f"{1e9 * slopes[name]:.0f}" if name in slopes else "-" for name in BACKENDS]
        shown.add_row(record["chain"], *texts, f"{slopes['c'] / slopes['onnxruntime']:.3f}")
    Console().print(shown)


if __name__ == "__main__":
    main()
