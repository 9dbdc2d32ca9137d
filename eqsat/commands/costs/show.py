"""`eqsat costs show`: the table of measured costs as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from eqsat.commands.costs.entries import Filter, filter_options
from eqsat.commands.output import PrintsJson, console, debug_option, print_json
from eqsat.errors import UsageError
from eqsat.report.units import count, duration, integer, quantity

if TYPE_CHECKING:
    from eqsat.costs.devices.device import Device
    from eqsat.costs.model.borrowed import Borrowed
    from eqsat.costs.table.entry import TableRecord
    from eqsat.costs.table.environment import Environment
    from eqsat.costs.table.table import CostTable


@dataclass(frozen=True)
class Shown:
    """One entry as it is shown: its origin, and the roofline's estimate in its place."""

    record: TableRecord
    shipped: bool
    roofline: float | None

    @property
    def origin(self) -> str:
        """True if it was measured into this table or comes with eqsat; both are measurements."""
        return "measured, shipped" if self.shipped else "measured"


_ORDERS: Mapping[str, Callable[[Shown], Any]] = {
    "key": lambda s: s.record.key,
    "seconds": lambda s: (-s.record.entry.seconds, s.record.key),
    "samples": lambda s: (-s.record.entry.samples, s.record.key),
    "spread": lambda s: (s.record.entry.p10 - s.record.entry.p90, s.record.key),
}


@click.command(cls=PrintsJson)
@click.option("--sort", type=click.Choice(sorted(_ORDERS)), default="key", show_default=True, help="The order of rows.")
@click.option("--limit", type=int, default=40, show_default=True, help="Rows for each environment; 0 for all.")
@click.option("--threads", type=int, default=1, show_default=True, help="Threads of this machine's environment.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@debug_option
@filter_options
def show(sort: str, limit: int, threads: int, as_json: bool, chosen: Filter) -> None:
    """Print the entries of the cost table, those that come with eqsat included, by environment.

    Says which environment is this machine's and where others differ from it: their entries are not used here, but for
    those of a GPU that this machine has not measured, and those of the nearest environment, which stand in, scaled by
    this machine's calibration, for operators that it has not measured. A device without measured entries is shown
    with the figures of its roofline, which all its costs are estimated by.
    """
    from eqsat.costs.devices.device import DEVICES
    from eqsat.costs.table.table import CostTable

    if limit < 0:
        raise UsageError(f"--limit {limit}", expected="a number of 0 or more")
    known = DEVICES.usable() if chosen.device is None else {chosen.device.name: chosen.device}
    with CostTable() as table:
        path, groups = table.path, _groups(table, chosen, sort, known)
        here = {e: _used(table, e.device, threads, known) for e in groups}
        lent = [b for e in dict.fromkeys(here.values()) if (b := _borrowed(table, e, known)) is not None]
    bare = [d for d in known.values() if not any(e.device == d.name for e in groups)]
    if as_json:
        print_json(json.dumps(_json(path, groups, here, lent, limit, bare), indent=1, ensure_ascii=False))
        return
    out = console()
    out.print(f"table: {path}", soft_wrap=True)
    for environment in sorted(groups, key=lambda e: (e != here[e], e.text)):
        rows = groups[environment]
        for line in _heading(environment, here[environment], lent, len(rows)):
            out.print(line, soft_wrap=True)
        out.print(_table(rows[: limit or None]))
        if limit and len(rows) > limit:
            out.print(f"{integer(len(rows) - limit)} more; --limit 0 shows all", soft_wrap=True)
    for device in bare:
        for line in _bare(device, measured=device.kind == "measured"):
            out.print(line, soft_wrap=True)


def _used(table: CostTable, device: str, threads: int, known: Mapping[str, Device]) -> Environment:
    """The environment whose entries are a device's costs here."""
    from eqsat.costs.table.environment import Environment

    return table.environment(known[device], threads) if device in known else Environment.current(device, threads)


def _borrowed(table: CostTable, here: Environment, known: Mapping[str, Device]) -> Borrowed | None:
    """The entries that stand in for those that an environment lacks."""
    from eqsat.costs.model.borrowed import Borrowed

    borrowed = Borrowed.of(table, known[here.device], here) if here.device in known else None
    return None if borrowed is None or (not borrowed.scales and table.entries(here)) else borrowed


def _groups(table: Any, chosen: Filter, sort: str, known: Mapping[str, Device]) -> dict[Environment, list[Shown]]:
    """The entries that pass, by environment, in order; those of the file in place of shipped ones."""
    from eqsat.costs.model.fit import known_work
    from eqsat.costs.table.shipped import shipped_records

    own = chosen.passed(table.records())
    places = {(r.environment, r.key) for r in own}
    shipped = [r for name in known for r in chosen.passed(shipped_records(name))]
    groups: dict[Environment, list[Shown]] = {}
    records = [*((r, False) for r in own), *((r, True) for r in shipped if (r.environment, r.key) not in places)]
    for record, is_shipped in records:
        work = known_work(record.key)
        device = known.get(record.environment.device)
        roofline = None if work is None or device is None else device.roofline(work)
        groups.setdefault(record.environment, []).append(Shown(record, is_shipped, roofline))
    return {environment: sorted(rows, key=_ORDERS[sort]) for environment, rows in groups.items()}


def _use(environment: Environment, here: Environment, lent: Sequence[Borrowed]) -> str:
    """The use of an environment's entries: "costs", "calibration", "borrowed", or "none"."""
    if environment == here:
        return "costs"
    if environment == here.calibration:
        return "calibration"
    return "borrowed" if any(borrowed.source == environment for borrowed in lent) else "none"


def _heading(environment: Environment, here: Environment, lent: Sequence[Borrowed], rows: int) -> Iterator[str]:
    yield ""
    threads = count(environment.threads, "thread")
    what = f"{environment.device}: {environment.cpu}, {environment.runtime}, {threads}, protocol {environment.protocol}"
    yield f"{what}: {count(rows, 'entry', 'entries')}"
    different = "; ".join(environment.differences(here))
    use = _use(environment, here, lent)
    if use == "calibration":
        yield "measured here to scale the entries of another environment; no costs"
    elif use == "borrowed":
        factors = next(borrowed.factors for borrowed in lent if borrowed.source == environment)
        yield f"another environment, used here for operators that were not measured, {factors}: {different}"
    elif different:
        yield f"another environment, not used here: {different}"


def _table(rows: Sequence[Shown]) -> Table:
    table = Table()
    table.add_column("operator", overflow="fold", ratio=1)
    for heading in ("median", "p10", "p90", "samples"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("origin")
    table.add_column("roofline", justify="right", no_wrap=True)
    for row in rows:
        entry = row.record.entry
        times = (duration(t) for t in (entry.seconds, entry.p10, entry.p90))
        estimate = "" if row.roofline is None else duration(row.roofline)
        table.add_row(row.record.key, *times, str(entry.samples), row.origin, estimate)
    return table


def _bare(device: Device, measured: bool) -> Iterator[str]:
    yield ""
    yield f"{device.name}: no measured entry" + ("" if measured else "; every cost is an estimate of its roofline")
    peaks = ", ".join(f"{dtype} {quantity(f, 'FLOP/s')}" for dtype, f in device.flops.items())
    yield f"  {peaks}; memory {quantity(device.bandwidth, 'B/s')}; a launch {duration(device.launch)}"
    yield f"  {device.source}"


def _json(
    path: str,
    groups: Mapping[Environment, Sequence[Shown]],
    here: Mapping[Environment, Environment],
    lent: Sequence[Borrowed],
    limit: int,
    bare: Any,
) -> dict[str, Any]:
    environments = []
    for environment, rows in groups.items():
        entries = [
            {"key": s.record.key, **asdict(s.record.entry), "origin": s.origin, "roofline": s.roofline}
            for s in rows[: limit or None]
        ]
        different = environment.differences(here[environment])
        about = {"environment": asdict(environment), "use": _use(environment, here[environment], lent)}
        environments.append(about | {"differences": different, "total": len(rows), "entries": entries})
    return {"table": path, "environments": environments, "not_measured": {d.name: d.source for d in bare}}
