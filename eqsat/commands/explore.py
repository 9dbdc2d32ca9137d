"""`eqsat explore`: the e-graph of a model, as tables and as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.table import Table
from rich.text import Text

from eqsat.commands.arguments import import_option
from eqsat.commands.choices import MODEL_FILE
from eqsat.commands.display import Begun, interruptible, progress_bar
from eqsat.commands.output import console, output_options
from eqsat.commands.running import FILE, run_arguments, run_options
from eqsat.commands.targets import check_target, data_files, is_there
from eqsat.errors import UsageError
from eqsat.report.progress import Progress
from eqsat.report.units import count, duration, integer
from eqsat.system.extras import require
from eqsat.system.terminal import standard_error

#: Rules and changes that are printed.
_RULES, _CHANGES = 15, 12


@click.command()
@click.argument("model", metavar="IN.onnx", type=MODEL_FILE)
@click.option(
    "--html", "page_file", metavar="PAGE.html", type=FILE, help="Write an HTML page of the run, which needs no network."
)
@click.option("--open", "opens", is_flag=True, help="Open the page in a browser.")
@click.option("--tensor", "tensors", metavar="NAME", multiple=True, help="List all forms of a value; may be repeated.")
@click.option("--measure", is_flag=True, help="Time the result against the original, as optimize does.")
@run_options("explore")
@import_option
@output_options
def explore(
    model: Path,
    page_file: Path | None,
    opens: bool,
    tensors: tuple[str, ...],
    measure: bool,
    **options: Any,
) -> None:
    """Grow the e-graph of IN.onnx and print its growth, the rules that fired, the choice and the changes.

    No model is written. The page shows the same to look into: both graphs, every form of every tensor with its cost,
    the rules behind each change. Ctrl-C ends growth and search early and shows the results so far; a second Ctrl-C,
    or one while IN.onnx is read, aborts.
    """
    if opens and page_file is None:
        raise UsageError("--open without a page", expected="--html PAGE.html with it")
    if page_file is not None:
        require("igraph")
        data = data_files(model) if is_there(page_file) else ()
        check_target(page_file, [model, *data, *options["rules"]])
    arguments = run_arguments(options, "explore")
    begun = Begun()
    with interruptible(begun) as should_stop, progress_bar(standard_error()) as show:
        follow = begun.following(show)
        from eqsat.explorer.explorer import explore as run

        explorer = run(model, **arguments, progress=follow, should_stop=should_stop)
        growth = explorer.grow()
        result = explorer.optimize(measure=measure)
        forms = [explorer.eclass(name) for name in tensors]
        view = explorer.view()
        if page_file is not None:
            follow(Progress("write", detail=str(page_file)))
            explorer.save(page_file)
    out = console()
    out.print(_growth(view.growth))
    out.print(growth.title.splitlines()[-1], soft_wrap=True)
    out.print()
    out.print(_rules(view.rules))
    out.print()
    out.print(str(explorer.choice), soft_wrap=True)
    out.print()
    out.print(_changes(view.changes, result.report.kept_because))
    for form in forms:
        out.print()
        out.print(str(form), soft_wrap=True)
    for warning in result.report.warnings:
        out.print(f"warning: {warning}", soft_wrap=True)
    if page_file is not None:
        out.print(f"wrote {page_file}", soft_wrap=True)
        if opens:
            click.launch(page_file.absolute().as_uri())


def _growth(steps: Any) -> Table:
    table = _table("phase", "e-nodes", "e-classes", "rules fired", "firings", "seconds")
    for step in steps:
        fired = [times for times in step.fired.values() if times]
        cells = (integer(step.nodes), integer(step.classes), integer(len(fired)), integer(sum(fired)))
        table.add_row(step.phase, *cells, f"{step.seconds:.2f}")
    return table


def _rules(rules: Any) -> Table:
    table = _table("rule", "fired")
    table.add_column("rewrites", overflow="ellipsis", no_wrap=True, ratio=1)
    for rule in rules[:_RULES]:
        table.add_row(Text(rule.name), integer(rule.fired), Text(rule.text.partition(" if ")[0]))
    if len(rules) > _RULES:
        more = sum(rule.fired for rule in rules[_RULES:])
        table.add_row(f"{count(len(rules) - _RULES, 'more rule')}", integer(more), "")
    return table


def _changes(changes: Any, because: str) -> Table | Text:
    if not changes:
        return Text(f"nothing changed: {because or 'no cheaper graph was found'}")
    table = _table("change", "saves")
    table.add_column("by", ratio=1)
    for change in changes[:_CHANGES]:
        saved = "" if change.predicted is None else duration(change.predicted)
        table.add_row(Text(f"{change.number}. {change.what}"), saved, Text(", ".join(change.rules)))
    if len(changes) > _CHANGES:
        table.add_row(f"{count(len(changes) - _CHANGES, 'more change')}", "", "")
    return table


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=None, expand=True, pad_edge=False, header_style="bold")
    table.add_column(first, ratio=1)
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    return table
