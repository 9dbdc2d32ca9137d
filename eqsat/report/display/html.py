"""A report in a cell of a notebook: tables that fit a screen, and the whole text to be opened."""

from __future__ import annotations

from eqsat.report.display.text import (
    FINALIST_COLUMNS,
    change_columns,
    finalist_rows,
    has_finalists,
    notes,
    nothing_changed,
    phase_rows,
)
from eqsat.report.record import Record
from eqsat.report.units import count, integer
from eqsat.system.markup import cut, folded, html_block, html_listing, html_table

#: Notes below the tables of a report, and finalists, that are shown; the text has all.
_MOST_NOTES, _MOST_FINALISTS = 6, 6


def report_html(report: Record, text: str) -> str:
    """A report as HTML: phases, the first changes, finalists and notes, and below them `text` to be opened."""
    parts = [html_table(_headline(report), (), phase_rows(report))]
    if report.kept == "original":
        parts.append(html_block(nothing_changed(report)))
    else:
        columns, rows = change_columns(report)
        parts.append(html_listing("", "change", columns, rows, len(rows)))
    if has_finalists(report):
        finalists = list(finalist_rows(report))[:_MOST_FINALISTS]
        marked = [i for i, one in enumerate(report.finalists) if one.kept]
        parts.append(html_table("", FINALIST_COLUMNS, finalists, marked))
    lines = [cut(line, 240) for line, _ in notes(report)]
    more = [f"{count(len(lines) - _MOST_NOTES, 'more line')} in the whole report"] if len(lines) > _MOST_NOTES else []
    parts.append(html_block("\n".join([*lines[:_MOST_NOTES], *more])))
    return "".join([*parts, folded("The whole report", text)])


def _headline(report: Record) -> str:
    return f"{cut(report.name)}: {integer(report.nodes_before)} -> {count(report.nodes_after, 'node')}"
