"""`eqsat optimize`: a model in, an equal and cheaper model out."""

from __future__ import annotations

import time
from itertools import combinations
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from eqsat.commands.arguments import debug_option, import_option
from eqsat.commands.display import console, interruptible, progress_bar
from eqsat.commands.running import FILE, run_arguments, run_options
from eqsat.commands.targets import check_target, data_beside, data_files, is_same_file, is_there
from eqsat.errors import UsageError
from eqsat.files import write_text
from eqsat.report import Progress


@click.command()
@click.argument("model", metavar="IN.onnx", type=FILE)
@click.option("-o", "--output", "target", metavar="OUT.onnx", type=FILE, required=True, help="Where to write.")
@run_options
@click.option("--no-measure", is_flag=True, help="Do not time the result against the original.")
@click.option("--json", "report_file", metavar="REPORT.json", type=FILE, help="Write the report there too.")
@click.option("--html", "page_file", metavar="PAGE.html", type=FILE, help="Write a page of this run to look into.")
@import_option
@debug_option
def optimize(
    model: Path,
    target: Path,
    no_measure: bool,
    report_file: Path | None,
    page_file: Path | None,
    **options: Any,
) -> None:
    """Write the cheapest model that rules prove equal to IN.onnx.

    Ctrl-C ends the search and writes the best model so far; a second Ctrl-C aborts. Durations are numbers with ms, s, m
    or h, such as 30s. The result is checked against the original before it is written, and it is the original where
    nothing is measured to be faster.
    """
    with interruptible() as should_stop, progress_bar(Console(stderr=True)) as follow:
        _check_files(model, target, report_file, page_file, options["rules"])
        given = {**run_arguments(options), "progress": follow, "should_stop": should_stop}
        if page_file is None:
            from eqsat.optimize import optimize as run

            result = run(model, measure=not no_measure, **given)
        else:
            from eqsat.explore.explorer import explore

            explorer = explore(model, **given)
            explorer.grow()
            result = explorer.optimize(measure=not no_measure)
        follow(Progress("write", detail=str(target)))
        start = time.perf_counter()
        result.save(target)
        report = result.report
        report.seconds = {**report.seconds, "write": time.perf_counter() - start}
        if page_file is not None:
            explorer.save(page_file)
    if report_file is not None:
        write_text(report_file, report.json())
    out = console()
    out.print(report if out.is_terminal else str(report), soft_wrap=not out.is_terminal)
    written = " and ".join(str(path) for path in (target, page_file) if path is not None)
    out.print(f"wrote {written}", soft_wrap=True)


def _check_files(
    model: Path, target: Path, report_file: Path | None, page_file: Path | None, rules: tuple[Path, ...]
) -> None:
    """Everything about files that can be known to fail before the work starts."""
    # Only a file that exists can be one that the model keeps its tensors in.
    written = [path for path in (target, report_file, page_file) if path is not None]
    data = data_files(model) if any(is_there(p) for p in [*written, data_beside(target)]) else ()
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
    kinds = [(target, "the model"), (report_file, "its report"), (page_file, "its page")]
    known = [(path, kind) for path, kind in kinds if path is not None]
    for (one, first), (other, second) in combinations(known, 2):
        if is_same_file(one, other):
            raise UsageError(f"{first} and {second} go to one file", where=str(one), expected="two files")
