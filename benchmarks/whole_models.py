"""Whole models in C beside ONNX Runtime and OpenVINO, on the same optimised graphs.

`python -m benchmarks.whole_models [MODEL …]` optimises each model for ONNX Runtime by estimates, makes it ready on each
backend, in C by the forms of kernels that are measured to be fastest, and times all in one run, in another order each
round. With `--mixed` C is there twice: alone, and with the regions that ONNX Runtime is measured to compute faster.
What is known of a model is kept as soon as it is, so that an interrupted run goes on where it was.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import eqsat
from benchmarks.models import MODELS, load
from benchmarks.programs import sizes_of
from eqsat.errors import EqsatError
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.onnx.write.exporter import save
from eqsat.language.terms import Graph
from eqsat.runtime.backend import select
from eqsat.runtime.c.program.kernels import CKernel
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.c.program.tuning import fastest_choice, tune_program, unknown
from eqsat.runtime.c.toolchain import compiler_version
from eqsat.runtime.examples import example_inputs

RESULT = Path(__file__).parent / "results" / "whole_models.json"
#: The contenders beside C.
PEERS = ("onnxruntime", "openvino")


def optimised(name: str, folder: Path | None) -> Graph:
    """A model optimised for ONNX Runtime by estimates; kept in a folder, if one is given."""
    path = None if folder is None else folder / f"{name}.onnx"
    if path is None or not path.exists():
        graph = eqsat.optimize(load(name), time_limit=25, measure=False).graph
        if path is None:
            return graph
        path.parent.mkdir(parents=True, exist_ok=True)
        save(graph, path)
    return read(str(path))


def timed(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """The seconds of calls, in rounds of another order each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    end = time.monotonic() + seconds
    while time.monotonic() < end or min(map(len, times.values())) < 5:
        for name in random.sample(list(calls), len(calls)):
            begin = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - begin)
    return times


def measured(name: str, folder: Path | None, threads: int, seconds: float, mixed: bool = False) -> dict[str, Any]:
    """The figures of one model."""
    graph = optimised(name, folder)
    sizes = sizes_of(graph)
    begin = time.perf_counter()
    program = c_program(graph, sizes)
    while list(unknown(program, threads)):
        tune_program(program, threads)
    tuning = time.perf_counter() - begin
    inputs = example_inputs(graph, sizes, 0)
    backends: dict[str, Any] = {}
    refused: dict[str, str] = {}
    begin = time.perf_counter()
    backends["c"] = select("c").compile(graph, threads=threads, regions=())
    outputs = backends["c"].run(inputs)
    compiling = time.perf_counter() - begin
    told: dict[str, Any] = {}
    if mixed:
        begin = time.perf_counter()
        backends["mixed"] = select("c").compile(graph, threads=threads, tuned=True)
        told["mixing seconds"] = round(time.perf_counter() - begin, 1)
        told |= regions_of(backends["mixed"], inputs, outputs)
    for peer in PEERS:
        try:
            backends[peer] = select(peer).compile(graph, threads=threads)
            backends[peer].run(inputs)
        except EqsatError as error:
            refused[peer] = error.what
            backends.pop(peer, None)
    wanted = backends["onnxruntime"].run(inputs)
    times = timed({peer: one.bind(inputs) for peer, one in backends.items()}, seconds)
    medians = {peer: statistics.median(one) for peer, one in times.items()}
    kernels = [launch.work for launch in program.launches if isinstance(launch.work, CKernel)]
    machine = next(iter(backends["c"].machines.values()))
    return {
        "model": name,
        "nodes": len(graph.nodes),
        "launches": len(program.launches),
        "calls": machine.calls,
        "fallbacks": dict(Counter(one.label for one in program.launches if one.kind == "fallback")),
        "forms": dict(Counter(fastest_choice(kernel, threads).form for kernel in kernels)),
        "seconds": medians,
        "least": {peer: min(one) for peer, one in times.items()},
        "rounds": min(map(len, times.values())),
        "ratio": medians["c"] / medians["onnxruntime"],
        "difference": difference(outputs, wanted),
        "refused": refused,
        "tuning seconds": round(tuning, 1),
        "compiling seconds": round(compiling, 1),
        **told,
    }


def regions_of(program: Any, inputs: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """The operators in each region that ONNX Runtime computes, and the difference of outputs from those of C alone."""
    made = program.run(inputs)
    (machine,) = program.machines.values()
    works = [launch.work for launch in machine.program.launches if launch.kind == "session"]
    return {"regions": [len(work.graph.nodes) for work in works], "difference of mixed": difference(made, wanted)}


def difference(made: dict[str, Any], wanted: dict[str, Any]) -> float:
    """The largest difference of an output from ONNX Runtime's, by the norm of that."""
    found = 0.0
    for name, one in wanted.items():
        a, b = np.asarray(made[name], np.float64), np.asarray(one, np.float64)
        found = max(found, float(np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-30)))
    return found


@click.command()
@click.argument("models", nargs=-1)
@click.option("--graphs", type=click.Path(path_type=Path), help="A folder where optimised graphs are kept.")
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--seconds", default=6.0, show_default=True, help="Seconds for which a model is timed.")
@click.option("--again", is_flag=True, help="Measure models anew whose figures are known.")
@click.option("--mixed", is_flag=True, help="Time C with regions of ONNX Runtime too.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, help=f"[{RESULT.name}]")
def main(
    models: tuple[str, ...],
    graphs: Path | None,
    threads: int,
    seconds: float,
    again: bool,
    mixed: bool,
    output: Path,
) -> None:
    """Prints and writes the times of models in C, on ONNX Runtime and on OpenVINO."""
    known = json.loads(output.read_text(encoding="utf-8"))["models"] if output.exists() else []
    records = {one["model"]: one for one in known}
    for name in models or MODELS:
        if name in records and not again:
            continue
        try:
            records[name] = measured(name, graphs, threads, seconds, mixed)
        except EqsatError as error:
            records[name] = {"model": name, "failed": error.what}
        output.write_text(json.dumps(summary(records, threads), indent=1) + "\n", encoding="utf-8")
        Console(stderr=True).print(f"{name}: {records[name].get('ratio', records[name].get('failed'))}")
    contenders = ("c", "mixed", *PEERS)
    shown = Table("model", "C", "with regions", *PEERS, "C / ONNX Runtime", "calls")
    for record in records.values():
        if "failed" not in record:
            times = [
                f"{1e3 * record['seconds'][peer]:.3g}" if peer in record["seconds"] else "-" for peer in contenders
            ]
            shown.add_row(record["model"], *times, f"{record['ratio']:.2f}", str(record["calls"]))
    Console().print(shown)
    told = summary(records, threads)
    Console().print(f"geometric mean {told['mean']}, with ONNX Runtime where it is faster {told['mean of the faster']}")


def summary(records: dict[str, dict[str, Any]], threads: int) -> dict[str, Any]:
    """The figures of all models, and their geometric means."""
    ratios = [one["ratio"] for one in records.values() if "ratio" in one]
    return {
        "threads": threads,
        "compiler": compiler_version(),
        "cores": os.cpu_count(),
        "mean": round(statistics.geometric_mean(ratios), 3) if ratios else None,
        "mean of the faster": round(statistics.geometric_mean(min(r, 1.0) for r in ratios), 3) if ratios else None,
        "models": list(records.values()),
    }


if __name__ == "__main__":
    main()
