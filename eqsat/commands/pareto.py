"""`eqsat pareto`: the Pareto front of two cost terms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from eqsat.commands.arguments import import_option
from eqsat.commands.choices import MODEL_FILE, TERM
from eqsat.commands.display import Begun, interruptible, progress_bar
from eqsat.commands.output import JSON_FILE, STDOUT, console, output_options, write_json
from eqsat.commands.running import FILE, run_arguments, run_options
from eqsat.commands.targets import check_target
from eqsat.errors import ExtractionError
from eqsat.system.terminal import standard_error


@click.command()
@click.argument("model", metavar="IN.onnx", type=MODEL_FILE)
@click.option("-x", type=TERM, default="time", show_default=True, help="The first term.")
@click.option("-y", type=TERM, default="peak_memory", show_default=True, help="The second term.")
@run_options("pareto")
@click.option("--plot", "plot_file", metavar="OUT.png", type=FILE, help="Draw the front there: .png, .svg or .pdf.")
@click.option("--json", "json_file", metavar="OUT.json", type=JSON_FILE, help="Write the points as JSON; - prints it.")
@import_option
@output_options
def pareto(
    model: Path,
    x: str,
    y: str,
    plot_file: Path | None,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Print the Pareto front of two terms over all graphs that rules prove equal to IN.onnx.

    Ctrl-C ends the search with the points
    found so far; a second Ctrl-C, or one while IN.onnx is read, aborts.
    """
    for target in (plot_file, json_file):
        if target not in (None, STDOUT):
            check_target(target, [model])
    arguments = run_arguments(options, "pareto")
    if plot_file is not None:
        from eqsat.extract.limited.pareto import check_plot

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
