"""How the e-graph scales: encoding and export rates, and 12 against 48 layers of BERT.

`python -m benchmarks.scaling` prints a table and writes JSON; each round measures every quantity once, in turn.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import eqsat
from benchmarks.models import load
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.egraph.snapshot import snapshot
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.terms.graph import Graph
from eqsat.rewrites.rules.loader import load_rules

RESULTS = Path(__file__).parent / "results"
LAYERS = {12: "bert_base", 48: "bert_48_layers"}


@click.command()
@click.option("--rounds", default=5, help="How often each quantity is measured.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "scaling.json")
def main(rounds: int, target: Path) -> None:
    """Measures encoding, export, and the whole of growing and choosing at 12 and 48 layers."""
    graphs = {layers: read(load(name)) for layers, name in LAYERS.items()}
    samples: dict[str, list[float]] = {}
    for _ in range(rounds):
        for layers, graph in graphs.items():
            for name, value in _round(graph).items():
                samples.setdefault(f"{name} at {layers} layers", []).append(value)
    figures = {name: statistics.median(values) for name, values in samples.items()}
    ratios = [
        a / b for a, b in zip(samples["optimise s at 48 layers"], samples["optimise s at 12 layers"], strict=True)
    ]
    figures["48 layers / 12 layers"] = statistics.median(ratios)
    table = Table("quantity", "median", "least", "most", title=f"{rounds} rounds")
    for name, values in [*samples.items(), ("48 layers / 12 layers", ratios)]:
        table.add_row(name, *(f"{f(values):,.3g}" for f in (statistics.median, min, max)))
    Console().print(table)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"rounds": rounds, "medians": figures, "samples": samples}, indent=1) + "\n")


def _round(graph: Graph) -> dict[str, Any]:
    start = time.perf_counter()
    encoding = encode(graph)
    encoded = time.perf_counter()
    Saturator(encoding.egraph, load_rules(), Limits()).run()
    grown = time.perf_counter()
    frozen = snapshot(encoding)
    exported = time.perf_counter()
    # The dearest part of a model of this size is its gigabyte of weights, so the whole is timed on the graph in memory.
    eqsat.optimize(graph, measure=False)
    done = time.perf_counter()
    return {
        "nodes encoded a second": len(graph.nodes) / (encoded - start),
        "e-nodes exported a second": len(frozen.nodes) / (exported - grown),
        "e-nodes": len(frozen.nodes),
        "saturate s": grown - encoded,
        "optimise s": done - exported,
    }


if __name__ == "__main__":
    main()
