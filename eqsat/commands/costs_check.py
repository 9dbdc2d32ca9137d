"""`eqsat costs check`: how well estimates meet the table."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.table import Table

from eqsat.commands.arguments import debug_option
from eqsat.commands.display import console
from eqsat.errors import CostError
from eqsat.report import integer

if TYPE_CHECKING:
    from eqsat.costs.validation import Validation


@click.command()
@click.option("--device", default="onnxruntime-cpu", show_default=True, help="Whose entries are checked.")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads they were measured with.")
@click.option("--folds", type=int, default=5, show_default=True, help="Parts that are held back in turn.")
@click.option("--seed", type=int, default=0, show_default=True, help="Which entries make a part.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
def check(device: str, threads: int, folds: int, seed: int, as_json: bool) -> None:
    """Show by which factor estimates miss measured operators.

    Each entry is estimated from those of the other parts, as an operator that was never measured is; next to it stands
    the roofline before fitting.
    """
    from eqsat.costs.device import Device
    from eqsat.costs.environment import Environment
    from eqsat.costs.table import CostTable
    from eqsat.costs.validation import validate

    of = Device.of(device)
    if of.kind != "measured":
        raise CostError(
            f"{device} is a roofline: nothing was measured on it",
            expected="a device with measured entries",
            remedy=f"its figures: {of.source}",
        )
    environment = Environment.current(device, threads)
    with CostTable() as table:
        if (mismatch := table.mismatch(environment)) is not None:
            raise CostError(
                f"no entry of this environment; {mismatch}",
                expected="entries measured here",
                remedy="`eqsat costs measure` makes some",
            )
        found = validate(of, table.entries(environment), folds, seed)
    if as_json:
        click.echo(
            json.dumps({"environment": asdict(environment), "folds": folds, "seed": seed} | asdict(found), indent=2)
        )
        return
    out = console()
    out.print(table_of(found, folds))


def table_of(found: Validation, folds: int) -> Table:
    """The accuracy of each variant, and of all together, as a table."""
    made = Table(title=f"factor by which estimates miss, {folds} parts held back in turn")
    made.add_column("operator")
    for heading in ("entries", "roofline", "p90", "fitted", "p90"):
        made.add_column(heading, justify="right")
    rows = [*found.variants, found.overall]
    for row in rows:
        factors = (f"{f:.2f}" for f in (*row.roofline, *row.fitted))
        made.add_row(row.variant, integer(row.entries), *factors, end_section=row is rows[-2])
    return made
