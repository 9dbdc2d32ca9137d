"""Comprehensions compiled to C beside NumPy, ONNX Runtime, OpenVINO and, where it is installed, torch.compile.

`python -m benchmarks.comprehensions [--threads N] [--tune SECONDS] [--runs N] [CASE …]` tunes each operator, then calls
all contenders in turn, in another order each round, in one process, and prints a table and writes it as JSON. Every
result is held against NumPy's. Calls are whole: what a caller waits for, the allocation of results included. Beside
them are the times of the kernels alone, on arrays that were looked at once, into results that are there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import eqsat
from benchmarks.comprehension_cases import CASES, OperatorCase
from benchmarks.rows import document

RESULTS = Path(__file__).parent / "results"
Call = Callable[[], Any]
OWN = ("naive", "default", "tuned")
#: What follows the label of a contender whose kernel alone is called.
KERNEL = ", kernel"
FEW = 20
PEERS = ("openvino", "torch")


@click.command()
@click.argument("cases", nargs=-1)
@click.option("--threads", default=1, show_default=True, help="Threads of every contender.")
@click.option("--tune", "seconds", default=60.0, show_default=True, help="Seconds of tuning for each case.")
@click.option("--runs", default=1000, show_default=True, help="Calls of each contender at most.")
@click.option("--limit", default=40.0, show_default=True, help="Seconds of calls for each case at most.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "comprehensions.json")
def main(cases: tuple[str, ...], threads: int, seconds: float, runs: int, limit: float, target: Path) -> None:
    """Measure all cases, or those named, and tabulate them."""
    unknown = [name for name in cases if name not in CASES]
    if unknown:
        raise click.UsageError(f"no case {unknown[0]!r}; one of {', '.join(CASES)}")
    _run_on(threads)
    rows = []
    for name in cases or CASES:
        rows.append(measured(name, CASES[name], threads, seconds, runs, limit))
        Console(width=170).print(table(rows[-1:]))
    Console(width=170).print(table(rows))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({**document(rows, PEERS), "threads": threads}, indent=1) + "\n")


def _run_on(threads: int) -> None:
    """Begin anew with the threads of BLAS, and its kernels for this processor, which it takes when it is loaded."""
    wanted = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        wanted.pop(name, None)
    if wanted != dict(os.environ):
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.comprehensions", *sys.argv[1:]], wanted)


def measured(name: str, case: OperatorCase, threads: int, seconds: float, runs: int, limit: float) -> dict[str, Any]:
    """The times of all contenders for a case, called in turn."""
    arguments = case.arguments()
    tuned = None
    if seconds:
        tuned = eqsat.autotune(case.source, *arguments.values(), seconds=seconds, kernel_threads=threads)
    calls = contenders(case, arguments, threads)
    wanted = results_of(case.numpy(*arguments.values()))
    for label, call in calls.items():
        for made, reference in zip(results_of(call()), wanted, strict=True):
            size = float(np.max(np.abs(reference)))
            if not np.allclose(made, reference, rtol=1e-3, atol=1e-4 * size):
                raise SystemExit(f"{name}: {label} differs from NumPy by {np.max(np.abs(made - reference))}")
    kernels = {label: calls[label].kernel.bind(*arguments.values()) for label in OWN}
    times = timed({**calls, **{f"{label}{KERNEL}": call for label, call in kernels.items()}}, runs, limit)
    microseconds = {label: quantiles(times[label]) for label in calls}
    peer = min((label for label in calls if label not in OWN), key=lambda label: microseconds[label][1])
    row = {
        "case": name,
        "is_of_the_paper": case.is_of_the_paper,
        "runs": {label: len(times[label]) for label in calls},
        "microseconds": microseconds,
        "kernel_microseconds": {label: quantiles(times[f"{label}{KERNEL}"]) for label in OWN},
        "best_peer": peer,
        "tuned_over_best_peer": round(microseconds["tuned"][1] / microseconds[peer][1], 3),
    }
    if tuned is not None:
        row["options"] = dict(tuned.candidate)
        row["candidates"] = len(tuned.history)
    return row


def timed(
    calls: Mapping[str, Call], runs: int, limit: float, now: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each call, in rounds of all: so many rounds, or those that begin within a limit in seconds.

    What is written as it stands leaves after twenty calls where it takes as long as twenty of NumPy's.
    """
    times: dict[str, list[float]] = {label: [] for label in calls}
    begin, order = now(), Random(0)
    while len(times["numpy"]) < runs and now() - begin < limit:
        # Who follows a contender with the same operands finds them in the cache: each round has an order of its own.
        for label, call in order.sample(list(calls.items()), len(calls)):
            own = times[label]
            if label.startswith("naive") and len(own) >= FEW and own[0] > FEW * times["numpy"][0]:
                continue
            start = now()
            call()
            own.append(now() - start)
    return times


def quantiles(seconds: list[float]) -> list[float]:
    """The least, the median and the 90 % quantile of times, in microseconds."""
    return [round(1e6 * float(one), 2) for one in np.quantile(seconds, (0.0, 0.5, 0.9))]


def contenders(case: OperatorCase, arguments: dict[str, Any], threads: int) -> dict[str, Any]:
    """The calls that are timed, by name."""
    import onnxruntime as ort
    import openvino as ov

    values = tuple(arguments.values())
    calls: dict[str, Any] = {"numpy": lambda: case.numpy(*values)}
    for label, options in (("naive", "naive"), ("default", "default"), ("tuned", "fastest")):
        calls[label] = OwnCall(eqsat.kernel(case.source, options), values)
    model = case.model()
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    calls["onnxruntime"] = lambda: session.run(None, arguments)
    core = ov.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    request = core.compile_model(core.read_model(model.SerializeToString()), "CPU", settings).create_infer_request()
    calls["openvino"] = lambda: request.infer(arguments, share_inputs=True)
    if importlib.util.find_spec("torch") is not None:
        calls["torch.compile"] = _torch(case, values, threads)
    return calls


class OwnCall:
    """A kernel of a comprehension on the operands of a case."""

    def __init__(self, kernel: Any, values: tuple[Any, ...]) -> None:
        self.kernel, self.values = kernel, values

    def __call__(self) -> Any:
        return self.kernel(*self.values)


def _torch(case: OperatorCase, values: tuple[Any, ...], threads: int) -> Call:
    """The case as one graph of torch, which traces NumPy's function unless the case has its own, on the same memory."""
    import torch

    torch.set_num_threads(threads)
    # Cases share the code of what wraps them; torch would count them as one function that is compiled too often.
    torch.compiler.reset()
    operands = [torch.from_numpy(value) for value in values]
    compiled = torch.compile(case.torch or torch.compiler.wrap_numpy(case.numpy), fullgraph=True, dynamic=False)
    return lambda: compiled(*operands)


def results_of(made: Any) -> list[Any]:
    """The results of a call as arrays."""
    if isinstance(made, Mapping):
        made = list(made.values())
    return [np.asarray(one) for one in (made if isinstance(made, tuple | list) else [made])]


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    labels = list(dict.fromkeys(label for row in rows for label in row["microseconds"]))
    shown = Table(title="µs a call: least / median / 90 %")
    for title in ("case", *labels, "tuned / best peer"):
        shown.add_column(title)
    for row in rows:
        cells = [" / ".join(f"{one:.4g}" for one in row["microseconds"].get(label, ())) for label in labels]
        shown.add_row(row["case"], *cells, f"{row['tuned_over_best_peer']:.2f} {row['best_peer']}")
    return shown


if __name__ == "__main__":
    main()
