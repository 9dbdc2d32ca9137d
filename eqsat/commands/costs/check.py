"""`eqsat costs check`: how well estimates meet the table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from eqsat.commands.choices import DEVICE
from eqsat.commands.output import PrintsJson, console, debug_option
from eqsat.errors import CostError
from eqsat.report.units import duration, integer, percent

if TYPE_CHECKING:
    from eqsat.costs.model.borrowed import Borrowed
    from eqsat.costs.model.validation import Validation
    from eqsat.costs.model.whole_graphs import Prediction


@click.command(cls=PrintsJson)
@click.option(
    "--device", type=DEVICE, default="onnxruntime-cpu", show_default=True, help="The device whose entries are checked."
)
@click.option("--threads", type=int, default=1, show_default=True, help="Threads that the entries were measured with.")
@click.option("--folds", type=int, default=5, show_default=True, help="Parts of the entries, held back in turn.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the division into parts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def check(device: str, threads: int, folds: int, seed: int, as_json: bool) -> None:
    """Show by which factor estimates miss measured operators, and sums of operators measured graphs.

    Each entry is estimated from those of the other parts, as an operator that was never measured is; next to it stands
    the roofline before fitting. Entries of another machine that stand in for those that this one lacks are checked by
    the operators that were measured on both: each is scaled by the others. Each graph that was measured whole is
    predicted by the sum of its kernels, and by factor * sum + overhead * kernels, fitted to the graphs of other models.
    """
    from eqsat.costs.devices.device import Device
    from eqsat.costs.model.borrowed import Borrowed
    from eqsat.costs.model.validation import validate
    from eqsat.costs.model.whole_graphs import LEAST, correction, measured_graphs, predictions
    from eqsat.costs.table.table import CostTable

    of = Device.of(device)
    with CostTable() as table:
        environment = table.environment(of, threads)
        entries = table.entries(environment)
        if not entries and of.kind != "measured":
            raise CostError(
                f"{of.name} is a roofline: nothing was measured on it",
                expected="a device with measured entries",
                remedy=f"its figures: {of.source}",
            )
        borrowed = Borrowed.of(table, of, environment)
        missed = [] if borrowed is None else borrowed.missed()
        if not missed and (mismatch := table.mismatch(environment)) is not None:
            raise CostError(
                f"no entry of this environment; {mismatch}",
                expected="entries measured here",
                remedy="`eqsat measure` makes some",
            )
    lent = {} if borrowed is None or not missed else _lent(borrowed, missed)
    if lent and not entries:
        line = f"no operator was measured for its cost here; borrowed: {_told(lent)}"
        click.echo(json.dumps({"environment": asdict(environment), "borrowed": lent}, indent=2) if as_json else line)
        return
    measured = measured_graphs(entries)
    accuracy, predicted, fitted = validate(of, entries, folds, seed), predictions(measured), correction(measured)
    if as_json:
        graphs = [asdict(p.whole) | {"corrected": p.corrected} for p in predicted]
        more = {"graphs": graphs, "correction": asdict(fitted)} if graphs else {}
        more |= {"borrowed": lent} if lent else {}
        about = {"environment": asdict(environment), "folds": folds, "seed": seed}
        click.echo(json.dumps(about | asdict(accuracy) | more, indent=2))
        return
    out = console()
    out.print(table_of(accuracy, folds))
    if lent:
        out.print(f"borrowed: {_told(lent)}", soft_wrap=True)
    if predicted:
        out.print(graphs_of(predicted))
        terms = f"{fitted.factor:.3f} × sum + {duration(fitted.overhead)} × kernels"
        short = f"; too few graphs to correct sums by, {LEAST} are needed" if len(measured) < LEAST else ""
        out.print(f"whole = {terms}{short}", soft_wrap=True)


def _lent(borrowed: Borrowed, missed: Sequence[float]) -> dict[str, Any]:
    """The accuracy of the entries of another environment, scaled to this one."""
    import numpy as np

    middle, high = (float(q) for q in np.quantile(missed, (0.5, 0.9)))
    return {"from": borrowed.description, "entries": len(missed), "median": middle, "p90": high}


def _told(lent: Mapping[str, Any]) -> str:
    """The accuracy of borrowed entries in words."""
    factors = f"missed by a factor of {lent['median']:.2f}, at the ninetieth percentile {lent['p90']:.2f}"
    return f"{lent['from']}; {lent['entries']} operators measured on both are {factors}"


def graphs_of(predicted: Sequence[Prediction]) -> Table:
    """Whole graphs as a table: predicted beside measured, and by which factor each prediction misses."""
    table = Table(title="whole graphs: sums of kernels beside what was measured")
    for heading in ("graph", "form", "precision"):
        table.add_column(heading)
    for heading in ("kernels", "estimated", "sum", "corrected", "measured", "sum misses", "corrected misses"):
        table.add_column(heading, justify="right")
    for one in predicted:
        whole = one.whole
        seconds = (duration(s) for s in (whole.sum, one.corrected, whole.measured))
        misses = (f"{factor:.2f}" for factor in one.missed)
        key = (whole.key.name, whole.key.form, whole.key.precision)
        table.add_row(*key, integer(whole.kernels), percent(whole.estimated), *seconds, *misses)
    return table


def table_of(accuracy: Validation, folds: int) -> Table:
    """The accuracy of each variant, and of all together, as a table."""
    table = Table(title=f"factor by which estimates miss, {folds} parts held back in turn")
    table.add_column("operator")
    for heading in ("entries", "roofline", "p90", "fitted", "p90"):
        table.add_column(heading, justify="right")
    rows = [*accuracy.variants, accuracy.overall]
    for row in rows:
        factors = (f"{f:.2f}" for f in (*row.roofline, *row.fitted))
        table.add_row(row.variant, integer(row.entries), *factors, end_section=row is rows[-2])
    return table
