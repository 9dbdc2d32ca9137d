"""`eqsat optimize`: a model in, an equal and cheaper model out."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eqsat.commands.arguments import import_option
from eqsat.commands.choices import MODEL_FILE
from eqsat.commands.display import Begun, interruptible, progress_bar
from eqsat.commands.output import JSON_FILE, STDOUT, CommandState, console, output_options, write_json
from eqsat.commands.running import FILE, run_arguments, run_options
from eqsat.commands.targets import check_target, data_files, is_same_file, is_there
from eqsat.errors import EqsatError, UsageError
from eqsat.language.onnx.files.placement import data_place
from eqsat.options.options import options_of
from eqsat.report.progress import Progress
from eqsat.system.extras import require
from eqsat.system.terminal import standard_error

if TYPE_CHECKING:
    from eqsat.report.result import Result

#: The exit code of a run that failed after its model was read, and kept the original.
FAILED = 3


@click.command()
@click.argument("model", metavar="IN.onnx", type=MODEL_FILE)
@click.option("-o", "--output", "target", metavar="OUT.onnx", type=FILE, required=True, help="The file to write.")
@run_options("optimize")
@click.option("--no-measure", is_flag=True, help="Do not time the result against the original.")
@click.option(
    "--json", "report_file", metavar="REPORT.json", type=JSON_FILE, help="Write the report as JSON; - prints it."
)
@click.option("--html", "page_file", metavar="PAGE.html", type=FILE, help="Write an HTML page of this run there.")
@import_option
@output_options
def optimize(
    model: Path,
    target: Path,
    no_measure: bool,
    report_file: Path | None,
    page_file: Path | None,
    **options: Any,
) -> int:
    """Write the cheapest model that rules prove equal to IN.onnx.

    Ctrl-C ends the search and writes the best model so far; a second Ctrl-C, or one while IN.onnx is read, aborts.
    Durations are numbers with ms, s, m or h, such as 30s. The result is checked against the original before it is
    written, and it is the original where nothing is measured to be faster, or where the run failed: the report says
    how, and the exit code is 3.
    """
    if options["buckets"] and page_file is not None:
        raise UsageError("--bucket and --html", expected="one of the two: a page shows one choice")
    if page_file is not None:
        require("igraph")
    _check_files(model, target, None if report_file == STDOUT else report_file, page_file, options["rules"])
    arguments = run_arguments(options, "optimize")
    begun = Begun()
    with interruptible(begun) as should_stop, progress_bar(standard_error()) as show:
        follow = begun.following(show)
        from eqsat.buckets.result import BucketedResult

        given = {**arguments, "progress": follow, "should_stop": should_stop}
        result, page = _optimised(model, given, not no_measure, page_file is not None)
        follow(Progress("write", detail=str(target)))
        start = time.perf_counter()
        result = _written(result, model, target)
        report = result.report
        report.seconds = {**report.seconds, "write": time.perf_counter() - start}
        if page_file is not None and page is not None:
            page(page_file)
    if report_file is not None:
        write_json(report_file, result.json() if isinstance(result, BucketedResult) else report.json())
    out = console(report_file)
    if isinstance(result, BucketedResult):
        out.print(repr(result), soft_wrap=True, markup=False)
    else:
        out.print(report if out.is_terminal else str(report), soft_wrap=not out.is_terminal)
    written = " and ".join(str(path) for path in (target, page_file if page else None) if path is not None)
    out.print(f"wrote {written}", soft_wrap=True)
    if click.get_current_context().ensure_object(CommandState).debug:
        for failure in result.failures:
            click.echo("".join(traceback.format_exception(failure)), err=True, nl=False)
    return FAILED if report.failure else 0


def _optimised(
    model: Path, given: Mapping[str, Any], measure: bool, paged: bool
) -> tuple[Result, Callable[[Path], object] | None]:
    """The result, and a writer of the page of its run, if one is wanted and the run can be shown."""
    from eqsat.calls import optimize as run

    if not paged:
        return run(model, measure=measure, **given), None
    from eqsat.explorer.explorer import explore
    from eqsat.steps.failures import is_for_the_caller, told

    try:
        taken = {one.name for one in options_of("explore")}
        explorer = explore(model, **{name: value for name, value in given.items() if name in taken})
        explorer.grow()
        result = explorer.optimize(measure=measure)
    except Exception as error:
        if is_for_the_caller(error, bool(given["limits"])):
            raise
        result = run(model, measure=measure, **given)
        result.report.warnings = [*result.report.warnings, f"no page was written: {told(error)}"]
        return result, None
    return (result, None) if result.report.failure else (result, explorer.save)


def _written(result: Result, model: Path, target: Path) -> Result:
    """The result that was written: the original where writing another fails for no reason that a user can mend."""
    from eqsat.language.onnx.write import verbatim
    from eqsat.steps.failures import told

    try:
        result.save(target)
    except EqsatError:
        raise
    except Exception as error:  # noqa: BLE001 - the report says what failed, and a run is not lost for it
        verbatim.save(model, target)
        report = replace(result.report, failure=f"write: {told(error)}", kept="original", changes=())
        return replace(result, report=report, failures=(*result.failures, error))
    return result


def _check_files(
    model: Path, target: Path, report_file: Path | None, page_file: Path | None, rules: tuple[Path, ...]
) -> None:
    """Everything about files that can be known to fail before the work starts."""
    # Only a file that exists can be one that the model keeps its tensors in.
    written = [path for path in (target, report_file, page_file) if path is not None]
    data = data_files(model) if any(is_there(p) for p in [*written, data_place(target)]) else ()
    sources = [model, *data, *rules]
    for path in written:
        check_target(path, sources)
    clash = next((s for s in data if is_same_file(data_place(target), s)), None)
    if clash is not None:
        raise UsageError(
            f"its data file {data_place(target).name} is one the input reads",
            where=str(target),
            expected="a file whose data file is not the input's",
            remedy="name another file with -o",
        )
    kinds = [(target, "the model"), (report_file, "its report"), (page_file, "its page")]
    known = [(path, kind) for path, kind in kinds if path is not None]
    for (one, first), (other, second) in combinations(known, 2):
        if is_same_file(one, other):
            raise UsageError(f"{first} and {second} go to one file", where=str(one), expected="two files")
