"""What models become on a GPU, without one: launches, memory, kernels with their registers, as given and as optimised.

`python -m benchmarks.programs [MODEL …] [--precision P]` prints a table and writes `results/programs.json`. Nothing is
timed: the costs that choose are those of the table that is shipped for the device, or estimates.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import eqsat
from benchmarks.models import MODELS, load
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.terms import Graph, Plan, Sym, TensorType
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.cuda.libraries.calls import Normalisation
from eqsat.runtime.cuda.libraries.substitute import source_of
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.programs.arena import arrange, check
from eqsat.runtime.programs.program import KernelProgram

RESULTS = Path(__file__).parent / "results" / "programs.json"
#: Models whose programs differ from others' by their length alone.
REPEATED = frozenset({"bert_48_layers"})


def sizes_of(graph: Graph) -> dict[str, int]:
    """One batch, and 128 positions."""
    types = [graph.type(name) for name in graph.inputs]
    dims = [d for t in types if isinstance(t, TensorType) for d in t.dims if isinstance(d, Sym)]
    return {name: 128 if "seq" in name else 1 for d in dims for name in d.names()}


def described(given: Graph | Plan, sizes: dict[str, int], architecture: str) -> dict[str, Any]:
    """The figures of one program; its memory is checked on the way."""
    start = time.perf_counter()
    program = program_of(given, sizes)
    arrangement = arrange(program)
    seconds = time.perf_counter() - start
    check(program, arrangement)
    return {
        "launches": len(program.launches),
        "kinds": dict(Counter(type(launch.work).__name__.lower() for launch in program.launches)),
        "arena": arrangement.arena,
        "bound": arrangement.bound,
        "sum": arrangement.sum,
        "weights": arrangement.weights,
        "seconds": seconds,
        **compiled(program, architecture),
    }


def compiled(program: KernelProgram, architecture: str) -> dict[str, Any]:
    """How many kernels are generated, and what the largest of them take."""
    codes = {launch.work.code for launch in program.launches if isinstance(launch.work, KernelSource)}
    # Normalisations run on generated kernels where the library is not measured to be faster.
    norms = (source_of(launch.work) for launch in program.launches if isinstance(launch.work, Normalisation))
    codes |= {found[0].code for found in norms if found is not None}
    start = time.perf_counter()
    kernels = [compile_cubin(code, arch=architecture) for code in sorted(codes)]
    return {
        "kernels": len(kernels),
        "registers": max((k.registers for k in kernels), default=0),
        "spill_bytes": max((k.spill_bytes for k in kernels), default=0),
        "compile_seconds": time.perf_counter() - start,
    }


def measured(name: str, device: str, precision: str, architecture: str) -> dict[str, Any]:
    """One model both ways."""
    model = load(name)
    graph = read(model)
    sizes = sizes_of(graph)
    result = eqsat.optimize(model, device=device, precision=precision, sizes=sizes, measure=False)
    return {
        "model": name,
        "nodes": len(graph.nodes),
        "given": described(graph, sizes, architecture),
        "optimised": described(result.plan or result.graph, sizes, architecture),
        "kept": result.report.kept,
        "status": result.report.extraction,
        "gap": result.report.gap,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--device", default="nvidia-h200")
    parser.add_argument("--precision", default="float16")
    parser.add_argument("--architecture", default="sm_90")
    arguments = parser.parse_args()
    names = arguments.models or [n for n in MODELS if n not in REPEATED and "batch16" not in n]
    table = Table("model", "nodes", "launches", "optimised", "kernels", "registers", "spills", "arena", "of bound")
    rows = []
    for name in names:
        row = measured(name, arguments.device, arguments.precision, arguments.architecture)
        rows.append(row)
        given, best = row["given"], row["optimised"]
        table.add_row(
            name,
            str(row["nodes"]),
            str(given["launches"]),
            str(best["launches"]),
            str(best["kernels"]),
            str(best["registers"]),
            str(best["spill_bytes"]),
            f"{best['arena'] / 1e6:.1f} MB",
            f"{best['arena'] / max(best['bound'], 1):.2f}",
        )
        print(f"{name}: {given['launches']} -> {best['launches']} launches", flush=True)
    Console().print(table)
    found = {"device": arguments.device, "precision": arguments.precision, "architecture": arguments.architecture}
    RESULTS.write_text(json.dumps({**found, "models": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
