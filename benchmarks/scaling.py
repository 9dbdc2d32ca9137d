"""Growth with the size of a model: rates of encoding and export, 12 against 48 layers of BERT, and 12 to 96 of an
encoder whose layers stand for each other.

`python -m benchmarks.scaling` prints a table and writes JSON; each round measures every quantity once, in turn.
"""

from __future__ import annotations

import json
import statistics
import time
from pathlib import Path
from typing import Any

import click
from onnx import ModelProto
from rich.console import Console
from rich.table import Table

import eqsat
from benchmarks.models import load
from benchmarks.models.encoder import encoder
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.egraph.snapshot import snapshot
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.terms.graph import Graph
from eqsat.rewrites.rules.loader import load_rules

RESULTS = Path(__file__).parent / "results"
LAYERS = {12: "bert_base", 48: "bert_48_layers"}
#: The layers of an encoder of width 128, and the phases of a call that read, write or run the whole model.
DEPTHS, WHOLE = (12, 24, 48, 96), ("read", "measure", "write")


@click.command()
@click.option("--rounds", default=5, help="How often each quantity is measured.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "scaling.json")
def main(rounds: int, target: Path) -> None:
    """Measures encoding, export, and the whole of growing and choosing at 12 and 48 layers."""
    graphs = {layers: read(load(name)) for layers, name in LAYERS.items()}
    models = {depth: encoder(depth) for depth in DEPTHS}
    samples: dict[str, list[float]] = {}
    for _ in range(rounds):
        for layers, graph in graphs.items():
            for name, value in _round(graph).items():
                samples.setdefault(f"{name} at {layers} layers", []).append(value)
        for depth, model in models.items():
            for name, value in _deep(model).items():
                samples.setdefault(f"{name} at depth {depth}", []).append(value)
    figures = {name: statistics.median(values) for name, values in samples.items()}
    ratios = [
        a / b for a, b in zip(samples["optimise s at 48 layers"], samples["optimise s at 12 layers"], strict=True)
    ]
    figures["48 layers / 12 layers"] = statistics.median(ratios)
    for name in ("optimise s", "search s"):
        pairs = zip(*(samples[f"{name} at depth {depth}"] for depth in (DEPTHS[-1], DEPTHS[0])), strict=True)
        figures[f"{name}, depth {DEPTHS[-1]} / {DEPTHS[0]}"] = statistics.median(a / b for a, b in pairs)
    table = Table("quantity", "median", "least", "most", title=f"{rounds} rounds")
    for name, values in [*samples.items(), ("48 layers / 12 layers", ratios)]:
        table.add_row(name, *(f"{f(values):,.3g}" for f in (statistics.median, min, max)))
    for name in [name for name in figures if "depth 96 /" in name]:
        table.add_row(name, f"{figures[name]:,.3g}", "", "")
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


def _deep(model: ModelProto) -> dict[str, float]:
    """The seconds of a call from model to result, and those of growing, choosing and certifying in it."""
    begin = time.perf_counter()
    report = eqsat.optimize(model, device="onnxruntime-cpu", measure=False, cache=False, threads=1).report
    seconds = time.perf_counter() - begin
    searched = sum(spent for phase, spent in report.seconds.items() if phase not in WHOLE)
    return {"optimise s": seconds, "search s": searched}


if __name__ == "__main__":
    main()
