"""`eqsat pareto`: what a model can be in one respect for what it costs in another."""

from __future__ import annotations

import json
from pathlib import Path

import click

from eqsat.commands.arguments import DURATION, LIMIT, NAMES, SIZES, debug_option, import_option, once
from eqsat.commands.display import Begun, console, interruptible, progress_bar
from eqsat.commands.targets import check_target
from eqsat.errors import ExtractionError
from eqsat.system.files import write_text
from eqsat.system.terminal import standard_error

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", metavar="IN.onnx", type=_FILE)
@click.option("-x", default="time", show_default=True, help="One term.")
@click.option("-y", default="peak_memory", show_default=True, help="The other.")
@click.option("--device", default="onnxruntime-cpu", show_default=True, help="Whose costs to minimise.")
@click.option("--limit", "limits", type=LIMIT, multiple=True, help="Most of a term, as launches=40; may be repeated.")
@click.option("--layouts", type=NAMES, default="auto", show_default=True, help="Layouts that values may be held in.")
@click.option("--precision", default="exact", show_default=True, help="exact, tf32, mixed or bfloat16.")
@click.option("--node-limit", type=int, default=20_000, show_default=True, help="Most e-nodes.")
@click.option("--time-limit", type=DURATION, default="60s", show_default=True, help="For all but reading.")
@click.option("--steps", type=int, help="Most steps in place of the time limit: the same front on any machine.")
@click.option("--size", "sizes", type=SIZES, multiple=True, help="What a named dim is costed at; may be repeated.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the search.")
@click.option("--plot", "plot_file", metavar="OUT.png", type=_FILE, help="Draw the front there: .png, .svg or .pdf.")
@click.option("--json", "json_file", metavar="OUT.json", type=_FILE, help="Write the points there.")
@import_option
@debug_option
def pareto(
    model: Path,
    x: str,
    y: str,
    device: str,
    limits: tuple[tuple[str, str], ...],
    layouts: list[str],
    precision: str,
    node_limit: int,
    time_limit: float,
    steps: int | None,
    sizes: tuple[tuple[str, dict[int, float]], ...],
    seed: int,
    plot_file: Path | None,
    json_file: Path | None,
) -> None:
    """Print the Pareto front of two terms over all graphs that rules prove equal to IN.onnx.

    Terms are time, flops, bytes, launches, weight_memory, peak_memory and error. Ctrl-C ends the search with the points
    found so far; a second Ctrl-C, or one while IN.onnx is read, aborts.
    """
    for target in (plot_file, json_file):
        if target is not None:
            check_target(target, [model])
    from eqsat.frontier import pareto as run

    begun = Begun()
    with interruptible(begun) as should_stop, progress_bar(standard_error()) as show:
        try:
            found = run(
                model,
                x,
                y,
                device=device,
                layouts="auto" if layouts == ["auto"] else layouts,
                precision=precision,
                limits=once(limits, "--limit"),
                node_limit=node_limit,
                time_limit=time_limit,
                steps=steps,
                sizes=dict(sizes),
                seed=seed,
                progress=begun.following(show),
                should_stop=should_stop,
            )
        except ExtractionError as error:
            if should_stop():  # before there was a point
                raise click.Abort from error
            raise
    if plot_file is not None:
        found.plot(plot_file)
    if json_file is not None:
        document = {"terms": [x, y], "complete": found.front.is_complete, "points": found.points}
        write_text(json_file, json.dumps(document, indent=2) + "\n")
    console().print(found)
