"""Selection of entries of a cost table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

import click

from eqsat.commands.arguments import Command
from eqsat.commands.choices import DEVICE
from eqsat.errors import CostError, nearest

if TYPE_CHECKING:
    from eqsat.costs.devices.device import Device
    from eqsat.costs.table.entry import TableRecord


@dataclass(frozen=True)
class Filter:
    """A filter of records by device, operators, and texts in key and environment."""

    device: Device | None
    operators: tuple[str, ...]
    contains: str
    environment: str

    def passed(self, records: Iterable[TableRecord]) -> list[TableRecord]:
        """The records that pass."""
        return [r for r in records if self._passes(r)]

    def _passes(self, record: TableRecord) -> bool:
        return (
            (self.device is None or self.device.name == record.environment.device)
            and (not self.operators or record.key.partition(" ")[0] in self.operators)
            and self.contains.lower() in record.key.lower()
            and self.environment.lower() in record.environment.text.lower()
        )


def filter_options(command: Command) -> Command:
    """Adds the options that select entries; the command gets a Filter as `chosen`."""

    @wraps(command)
    def filtered(device: str | None, operators: tuple[str, ...], contains: str, environment: str, **others: Any) -> Any:
        from eqsat.costs.devices.device import Device
        from eqsat.language.ops import OPS

        chosen = None if device is None else Device.of(device)
        for op in operators:
            if op not in OPS:
                expected = "one that eqsat declares, such as matmul"
                raise CostError(f"no operator {op!r}", expected=expected, remedy=nearest(op, OPS))
        return command(chosen=Filter(chosen, operators, contains, environment), **others)

    options: tuple[Callable[[Any], Any], ...] = (
        click.option("--environment", default="", metavar="TEXT", help="Only environments whose text contains this."),
        click.option("--contains", default="", metavar="TEXT", help="Only keys that contain this text."),
        click.option("--op", "operators", multiple=True, metavar="OP", help="Only this operator; may be repeated."),
        click.option("--device", type=DEVICE, help="Only this device."),
    )
    for option in options:
        option(filtered)
    return cast(Command, filtered)
