"""`eqsat optimize`: a model in, an equal and cheaper model out."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.console import Console

from eqsat.commands.arguments import DURATION, LIMIT, NAMES, SIZE, WEIGHT, debug_option, import_option, once
from eqsat.commands.display import console, interruptible, progress_bar
from eqsat.commands.targets import check_target, data_beside, data_files, is_same_file, write_text
from eqsat.errors import UsageError
from eqsat.report import Progress

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", metavar="IN.onnx", type=_FILE)
@click.option("-o", "--output", "target", metavar="OUT.onnx", type=_FILE, required=True, help="Where to write.")
@click.option("--device", default="onnxruntime-cpu", show_default=True, help="Whose costs to minimise.")
@click.option("--objective", type=WEIGHT, multiple=True, help="Term to minimise, with its weight; may be repeated.")
@click.option("--limit", "limits", type=LIMIT, multiple=True, help="Most of a term, as launches=40; may be repeated.")
@click.option("--layouts", type=NAMES, default="auto", show_default=True, help="Layouts that values may be held in.")
@click.option("--precision", default="exact", show_default=True, help="exact, tf32, mixed or bfloat16.")
@click.option("--extractor", default="ilp", show_default=True, help="How to choose: ilp, greedy or backtracking.")
@click.option("--alpha", type=float, help="Of backtracking: how much dearer than the best; 1.05 if left out.")
@click.option("--node-limit", type=int, default=20_000, show_default=True, help="Most e-nodes.")
@click.option("--time-limit", type=DURATION, default="30s", show_default=True, help="For growing and choosing.")
@click.option("--outputs", type=NAMES, help="Keep only these outputs.")
@click.option("--size", "sizes", type=SIZE, multiple=True, help="What a named dim is costed at; may be repeated.")
@click.option("--rules", type=_FILE, multiple=True, help="File of rules to use besides the library's.")
@click.option("--finite-math", is_flag=True, help="Assume that no infinity or NaN occurs.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the checks, the search and the timing.")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads of the measured runtime.")
@click.option("--opset", type=int, help="Opset to write; the model's own if left out.")
@click.option("--no-measure", is_flag=True, help="Do not time the result against the original.")
@click.option("--json", "report_file", metavar="REPORT.json", type=_FILE, help="Write the report there too.")
@import_option
@debug_option
def optimize(
    model: Path,
    target: Path,
    device: str,
    objective: tuple[tuple[str, float], ...],
    limits: tuple[tuple[str, str], ...],
    layouts: list[str],
    precision: str,
    extractor: str,
    alpha: float | None,
    node_limit: int,
    time_limit: float,
    outputs: list[str] | None,
    sizes: tuple[tuple[str, int], ...],
    rules: tuple[Path, ...],
    finite_math: bool,
    seed: int,
    threads: int,
    opset: int | None,
    no_measure: bool,
    report_file: Path | None,
) -> None:
    """Write the cheapest model that rules prove equal to IN.onnx.

    Ctrl-C ends the search and writes the best model so far; a second Ctrl-C aborts. Durations are numbers with ms, s, m
    or h, such as 30s. The result is checked against the original before it is written, and it is the original where
    nothing is measured to be faster.
    """
    with interruptible() as should_stop, progress_bar(Console(stderr=True)) as follow:
        _check_files(model, target, report_file, rules)
        from eqsat.optimize import optimize as run

        result = run(
            model,
            device=device,
            objective=dict(objective) or None,
            limits=once(limits, "--limit"),
            layouts="auto" if layouts == ["auto"] else layouts,
            precision=precision,
            extractor=extractor,
            alpha=alpha,
            node_limit=node_limit,
            time_limit=time_limit,
            rules=rules or None,
            finite_math=finite_math,
            outputs=outputs,
            sizes=dict(sizes),
            seed=seed,
            opset=opset,
            threads=threads,
            measure=not no_measure,
            progress=follow,
            should_stop=should_stop,
        )
        follow(Progress("write", detail=str(target)))
        start = time.perf_counter()
        result.save(target)
        report = result.report
        report.seconds = {**report.seconds, "write": time.perf_counter() - start}
    if report_file is not None:
        write_text(report_file, report.json())
    out = console()
    out.print(report if out.is_terminal else str(report), soft_wrap=not out.is_terminal)
    out.print(f"wrote {target}", soft_wrap=True)


def _check_files(model: Path, target: Path, report_file: Path | None, rules: tuple[Path, ...]) -> None:
    """Everything about files that can be known to fail before the work starts."""
    # Only a file that exists can be one that the model keeps its tensors in.
    written = [target, *([report_file] if report_file is not None else [])]
    data = data_files(model) if any(p.exists() for p in [*written, data_beside(target)]) else ()
    sources = [model, *data, *rules]
    for path in written:
        check_target(path, sources)
    clash = next((s for s in data if is_same_file(data_beside(target), s)), None)
    if clash is not None:
        raise UsageError(
            f"its data file {data_beside(target).name} is one the input reads",
            where=str(target),
            expected="a file whose data file is not the input's",
            remedy="name another file with -o",
        )
    if report_file is not None and is_same_file(report_file, target):
        raise UsageError("the model and its report go to one file", where=str(target), expected="two files")
