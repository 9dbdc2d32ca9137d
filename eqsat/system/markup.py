"""Tables and text as HTML for cells of notebooks: escaped, without scripts, in the colours of the page around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any, TypeAlias

from eqsat.errors import printable

Row: TypeAlias = Sequence[Any]
#: Rows of a table that fit a screen.
MOST_ROWS = 12
#: The longest text that goes into a cell, in characters.
MOST_TEXT = 60_000
_STYLE = "border-collapse:collapse;font-family:ui-monospace,monospace;font-size:12px"
_CAPTION = "text-align:left;white-space:pre-wrap;padding-bottom:4px"
_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0"


def html_table(title: str, columns: Sequence[str], rows: Iterable[Row], marked: Iterable[int] = ()) -> str:
    """A table with a caption, if there is a title; rows whose numbers are `marked` are bold."""
    bold = set(marked)
    head = "".join(f'<th style="{_CELL}">{_shown(c)}</th>' for c in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}{_weight(i in bold)}">{_shown(cell)}</td>' for cell in row) + "</tr>"
        for i, row in enumerate(rows)
    )
    caption = f'<caption style="{_CAPTION}">{_shown(title)}</caption>' if title else ""
    heading = f"<thead><tr>{head}</tr></thead>" if columns else ""
    return f'<table style="{_STYLE}">{caption}{heading}<tbody>{body}</tbody></table>'


def html_listing(title: str, singular: str, columns: Sequence[str], rows: Iterable[Row], total: int) -> str:
    """A table that fits a screen: the first of so many rows, long cells cut; the caption counts things and rows."""
    shown = [tuple(cut(str(cell)) for cell in row) for row in islice(rows, MOST_ROWS)]
    things = singular if total == 1 else f"{singular}s"
    counted = f"{len(shown)} of {total} {things}" if total > len(shown) else f"{total} {things}"
    return html_table(f"{cut(title)}: {counted}" if title else counted, columns, shown)


def html_block(text: str) -> str:
    """Text as it stands."""
    return f'<pre style="white-space:pre-wrap">{_shown(text)}</pre>'


def folded(summary: str, text: str) -> str:
    """Text that a click on a summary opens; one that is too long for a cell is cut, and says so."""
    whole = text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…\n(cut here; print() shows all)"
    return f"<details><summary>{_shown(summary)}</summary>{html_block(whole)}</details>"


def cut(text: str, most: int = 96) -> str:
    """A text of at most so many characters.

    >>> cut("conv_0, conv_1, conv_2", 10)
    'conv_0, c…'
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _shown(text: Any) -> str:
    return escape(printable(str(text)))


def _weight(bold: bool) -> str:
    return ";font-weight:bold" if bold else ""
