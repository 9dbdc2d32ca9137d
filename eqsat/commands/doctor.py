"""`eqsat doctor`: what of this machine runs programs on a GPU, and what to install."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from eqsat.commands.output import JSON_FILE, STDOUT, console, debug_option, print_json
from eqsat.report.units import duration

if TYPE_CHECKING:
    from eqsat.doctor.examination import Examination
    from eqsat.doctor.observation import Examined

#: The exit code where a part failed.
FAILED = 3
_COLOURS = {"passed": "green", "dry": "cyan", "absent": "yellow", "skipped": "dim", "failed": "red"}


@click.command()
@click.option("--json", "file", type=JSON_FILE, help="Keep it in a file, and go on there; '-' prints it.")
@click.option("--again", is_flag=True, help="Examine again what has passed.")
@click.option(
    "--only", "words", multiple=True, metavar="WORD", help="Steps with a word in their names; may be repeated."
)
@click.option("--dry", is_flag=True, help="As far as it goes on this processor, though a GPU is here.")
@click.option("--tools/--no-tools", default=True, help="Watch some steps by NVIDIA's compute-sanitizer, if it is here.")
@debug_option
def doctor(file: Path | None, again: bool, words: Sequence[str], dry: bool, tools: bool) -> int:
    """Examine what runs programs on a GPU, step by step.

    Packages, driver and compiler are looked at; then kernels, products, convolutions, attention, norms, streams, arrays
    of other packages and a layer of BERT are computed in each element type and compared with NumPy. Each step is a
    process of its own, so that a crash or a hang is a line of the table. Without a GPU, kernels are compiled for one
    and run on this processor. The exit code is 3 if a part failed.
    """
    from eqsat.doctor.examination import Examination

    kept = file if file is not None and file != STDOUT else None
    examination = Examination(kept, again)
    quiet = file == STDOUT
    out = console()
    for one in examination.run(words, dry=dry, tools=tools):
        if not quiet:
            out.print(_line(one), soft_wrap=True)
    if quiet:
        print_json(json.dumps(examination.as_dict(), indent=1, ensure_ascii=False))
    else:
        _conclude(examination)
    return FAILED if examination.failed else 0


def _line(one: Examined) -> Text:
    """A step in one line, and a line for each part that failed or is not there."""
    text = Text.assemble((f"{one.status:8}", _COLOURS[one.status]), f" {one.step:32}", f"{duration(one.seconds):>9}")
    good = [
        observation.text
        for observation in one.observations
        if observation.status not in ("failed", "absent") and observation.text
    ]
    if not one.faults and good:
        text.append(f"  {good[0]}" + (f", and {len(good) - 1} more" if len(good) > 1 else ""))
    for fault in one.faults:
        text.append("\n           ").append(f"{fault.part}: {fault.text}", _COLOURS[fault.status])
    return text


def _conclude(examination: Examination) -> None:
    out = console()
    counts = Table.grid(padding=(0, 2))
    steps = list(examination.done.values())
    for status in _COLOURS:
        number = sum(one.status == status for one in steps)
        if number:
            counts.add_row(Text(status, _COLOURS[status]), str(number))
    out.print()
    out.print(counts)
    for remedy in examination.remedies:
        out.print(f"do: {remedy}", soft_wrap=True, markup=False)
