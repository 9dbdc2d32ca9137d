"""Tables as text and as HTML, for cells of notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from rich.table import Table
from rich.text import Text

from eqsat.errors import printable
from eqsat.report.report import WIDTH
from eqsat.system.terminal import plain

Row = Sequence[Any]
_STYLE = "border-collapse:collapse;font-family:ui-monospace,monospace;font-size:12px"
_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"


def html_table(title: str, columns: Sequence[str], rows: Iterable[Row], marked: Iterable[int] = ()) -> str:
    """A table with a caption; rows whose numbers are `marked` are bold."""
    bold = set(marked)
    head = "".join(f'<th style="{_CELL}">{escape(c)}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}{_weight(i in bold)}">{escape(str(cell))}</td>' for cell in row) + "</tr>"
        for i, row in enumerate(rows)
    )
    caption = f'<caption style="text-align:left;white-space:pre-wrap;padding-bottom:4px">{escape(title)}</caption>'
    return f'<table style="{_STYLE}">{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def text_table(title: str, columns: Sequence[str], rows: Iterable[Row]) -> str:
    """The same as plain text."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    console = plain(WIDTH)
    with console.capture() as text:
        if table.row_count:
            console.print(table)
    return "\n".join([printable(title), *(line.rstrip() for line in text.get().splitlines())])


def html_block(text: str) -> str:
    """Text as it stands."""
    return f'<pre style="white-space:pre-wrap">{escape(text)}</pre>'


def _weight(bold: bool) -> str:
    return ";font-weight:bold" if bold else ""
