"""`eqsat costs`: the table of measured costs."""

from __future__ import annotations

import click

from eqsat.commands.costs.check import check
from eqsat.commands.costs.exchange import export, import_
from eqsat.commands.costs.measure import costs_measure
from eqsat.commands.costs.show import show
from eqsat.commands.output import HelpfulGroup


@click.group(cls=HelpfulGroup)
def costs() -> None:
    """Measure costs, show, check, export and import them."""


for _command in (costs_measure, show, check, export, import_):
    costs.add_command(_command)
