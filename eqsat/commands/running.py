"""The options of a run of the pipeline, which the commands that run it share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from eqsat.commands.arguments import DURATION, LIMIT, NAMES, SIZES, WEIGHT, once

Command = TypeVar("Command", bound=Callable[..., Any])

#: The type of an option that names a file.
FILE = click.Path(path_type=Path)

_OPTIONS = (
    click.option("--device", default="onnxruntime-cpu", show_default=True, help="Whose costs to minimise."),
    click.option("--objective", type=WEIGHT, multiple=True, help="Term to minimise, with its weight; may be repeated."),
    click.option(
        "--limit", "limits", type=LIMIT, multiple=True, help="Most of a term, as launches=40; may be repeated."
    ),
    click.option(
        "--layouts", type=NAMES, default="auto", show_default=True, help="Layouts that values may be held in."
    ),
    click.option("--precision", default="exact", show_default=True, help="exact, tf32, mixed, float16 or bfloat16."),
    click.option("--extractor", default="ilp", show_default=True, help="How to choose: ilp, greedy or backtracking."),
    click.option("--alpha", type=float, help="Of backtracking: how much dearer than the best; 1.05 if left out."),
    click.option("--node-limit", type=int, default=20_000, show_default=True, help="Most e-nodes."),
    click.option(
        "--time-limit", type=DURATION, default="30s", show_default=True, help="For all but reading and writing."
    ),
    click.option("--steps", type=int, help="Most steps in place of the time limit: the same result on any machine."),
    click.option("--outputs", type=NAMES, help="Keep only these outputs."),
    click.option(
        "--size", "sizes", type=SIZES, multiple=True, help="What a named dim is costed and measured at: one or several."
    ),
    click.option(
        "--over-sizes",
        default="sum",
        show_default=True,
        help="Of several sizes, the weighted sum of costs, or the worst share of the original's.",
    ),
    click.option("--rules", type=FILE, multiple=True, help="File of rules to use besides the library's."),
    click.option(
        "--finite-math/--no-finite-math",
        default=None,
        help="Assume that no infinity or NaN occurs, or that any may; if left out, that inputs are finite.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Of the checks, the search and the timing."),
    click.option("--threads", type=int, default=1, show_default=True, help="Threads of the measured runtime."),
    click.option("--opset", type=int, help="Opset to write; the model's own if left out."),
    click.option(
        "--portable",
        is_flag=True,
        help="Write ONNX's operators alone, also where ONNX Runtime has faster ones of its own.",
    ),
)


def run_options(command: Command) -> Command:
    """Adds the options of a run; the command takes them as keywords, for `run_arguments`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run_arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """What `optimize` and `explore` take for these options."""
    return {
        **options,
        "objective": dict(options["objective"]) or None,
        "limits": once(options["limits"], "--limit"),
        "layouts": "auto" if options["layouts"] == ["auto"] else options["layouts"],
        "rules": options["rules"] or None,
        "sizes": dict(options["sizes"]),
    }
