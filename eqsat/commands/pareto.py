"""`eqsat pareto`: the Pareto front of two cost terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from eqsat.commands.arguments import import_option
from eqsat.commands.choices import MODEL_FILE, TERM, TERMS
from eqsat.commands.display import Begun, interruptible, progress_bar
from eqsat.commands.output import JSON_FILE, STDOUT, console, output_options, write_json
from eqsat.commands.running import FILE, run_arguments, run_options
from eqsat.commands.targets import check_target
from eqsat.errors import ExtractionError, UsageError
from eqsat.system.terminal import standard_error


@click.command()
@click.argument("model", metavar="IN.onnx", type=MODEL_FILE)
@click.option("-x", type=TERM, default="time", show_default=True, help="The first term.")
@click.option("-y", type=TERM, default="peak_memory", show_default=True, help="The second term.")
@click.option("--terms", type=TERMS, help="Both terms at once: time,error stands for -x time -y error.")
@run_options("pareto")
@click.option("--plot", "plot_file", metavar="OUT.png", type=FILE, help="Draw the front there: .png, .svg or .pdf.")
@click.option("--json", "json_file", metavar="OUT.json", type=JSON_FILE, help="Write the points as JSON; - prints it.")
@import_option
@output_options
def pareto(
    model: Path,
    x: str,
    y: str,
    terms: list[str] | None,
    plot_file: Path | None,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Print the Pareto front of two terms over all graphs that rules prove equal to IN.onnx.

    Ctrl-C ends the search with the points
    found so far; a second Ctrl-C, or one while IN.onnx is read, aborts.
    """
    x, y = _both(x, y, terms)
    for target in (plot_file, json_file):
        if target not in (None, STDOUT):
            check_target(target, [model])
    arguments = run_arguments(options, "pareto")
    from eqsat.extract.limited.pareto import check_plot, check_two

    check_two(x, y)
    if plot_file is not None:
        check_plot(plot_file)
    from eqsat.frontier import pareto as run

    begun = Begun()
    with interruptible(begun) as should_stop, progress_bar(standard_error()) as show:
        try:
            frontier = run(
                model,
                x,
                y,
                **arguments,
                progress=begun.following(show),
                should_stop=should_stop,
            )
        except ExtractionError as error:
            if should_stop():  # before there was a point
                raise click.Abort from error
            raise
    if plot_file is not None:
        frontier.plot(plot_file)
    if json_file is not None:
        write_json(json_file, json.dumps(frontier.as_dict(), indent=2) + "\n")
    console(json_file).print(frontier)


def _both(x: str, y: str, terms: list[str] | None) -> tuple[str, str]:
    """The two terms; UsageError where `terms` are not two, or stated beside one of the others."""
    if terms is None:
        return x, y
    source = click.get_current_context().get_parameter_source
    if any(source(name) is ParameterSource.COMMANDLINE for name in ("x", "y")):
        raise UsageError("--terms beside -x or -y", expected="one of both ways to name the terms")
    if len(terms) != 2:
        raise UsageError(f"--terms {','.join(terms)}", expected="two terms, as in --terms time,error")
    return terms[0], terms[1]
