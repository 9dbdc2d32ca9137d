"""`eqsat costs export` and `import`: tables that leave a machine and come together."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eqsat.commands.costs.entries import Filter, filter_options
from eqsat.commands.output import console, debug_option
from eqsat.commands.targets import check_target
from eqsat.errors import CostError, printable
from eqsat.report.units import count, integer
from eqsat.system.files import write_text

if TYPE_CHECKING:
    from eqsat.costs.table.entry import TableRecord

_MAGIC = b"SQLite format 3\x00"


@click.command()
@click.argument("target", metavar="FILE.jsonl", type=click.Path(path_type=Path))
@debug_option
@filter_options
def export(target: Path, chosen: Filter) -> None:
    """Write entries as JSON lines: a header, then one line for each entry; - is standard output.

    Entries that come with eqsat are not written.
    """
    from eqsat.costs.table.lines import write_records
    from eqsat.costs.table.table import CostTable

    written = str(target) != "-"
    with CostTable() as table:
        if written:
            check_target(target, [Path(table.path)])
        records = chosen.passed(table.records())
    text = write_records(records)
    if not written:
        click.echo(printable(text), nl=False)
        return
    write_text(target, text)
    console().print(f"{count(len(records), 'entry', 'entries')} in {target}", soft_wrap=True)


@click.command("import")
@click.argument("sources", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--device", "devices", metavar="FILE.json", multiple=True, help="Device of entries; may be repeated.")
@debug_option
def import_(sources: tuple[Path, ...], devices: tuple[str, ...]) -> None:
    """Take in tables of other machines: JSON lines, or SQLite files of eqsat.

    All files are read before anything is written; one malformed line, and nothing is. Of two entries for one operator
    in one environment, the one of more samples stays, of equally many the faster. Entries of a device of one's own
    are taken in with --device and its file.
    """
    from eqsat.costs.devices.device import Device
    from eqsat.costs.table.table import CostTable

    own = {Device.of(device).name for device in devices}
    records = [record for source in sources for record in read(source, own)]
    with CostTable() as table:
        if table.in_memory:
            raise CostError(
                "the cost table cannot be written; nothing was imported",
                where=table.path,
                expected="a file that can be written",
                remedy="name another by EQSAT_COST_TABLE",
            )
        merged = table.merge(records)
    out = console()
    out.print(
        f"{integer(merged.new)} new, {integer(merged.replaced)} replaced, {integer(merged.kept)} kept as they were"
    )
    out.print(f"table: {table.path}", soft_wrap=True)


def read(source: Path, own: Collection[str] = ()) -> list[TableRecord]:
    """Every entry of a file, checked; CostError for one that cannot be read.

    `own` are the names of devices that have files, and entries.
    """
    from eqsat.costs.table.lines import check_record, read_records
    from eqsat.costs.table.table import CostTable

    try:
        data = source.read_bytes()
    except OSError as error:
        raise CostError(
            f"cannot be read: {error.strerror or error}",
            where=str(source),
            expected="a file written by `eqsat costs export`, or the SQLite file of a table",
        ) from error
    if not data.startswith(_MAGIC):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise CostError(
                f"no text in UTF-8: {error.reason} at byte {error.start}",
                where=str(source),
                expected="JSON lines, or an SQLite file",
            ) from error
        return list(read_records(text, str(source), own=own))
    with CostTable.copy(source) as table:
        records = list(table.records())
    for record in records:
        try:
            check_record(record, own)
        except CostError as error:
            raise error.at(f"{source}: {record.key}") from error
    return records
