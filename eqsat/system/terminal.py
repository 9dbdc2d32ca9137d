"""Text on a terminal: names from models and files are shown, and never obeyed."""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from eqsat.errors import printable

#: Columns of text where no terminal says otherwise.
WIDTH = 110


#: Characters of eqsat's own texts in ASCII; others become escapes of JSON.
_IN_ASCII = {"µ": "u", "…": "...", "–": "-", "−": "-", "×": "x", "→": "->", "≤": "<=", "≥": ">="}
_IN_ANY_ENCODING = "eqsat.in_any_encoding"


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """The replacement of characters that an encoding lacks, as a handler of errors of `codecs`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_IN_ASCII.get(one) or json.dumps(one)[1:-1] for one in lacking), error.end


codecs.register_error(_IN_ANY_ENCODING, _in_ascii)


def accept_all_text(*streams: TextIO | None) -> None:
    """Let text streams of any encoding take all text: a result is not lost for a character that a terminal lacks."""
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors=_IN_ANY_ENCODING)


class Terminal(Console):
    """A console that takes text as it is: no markup, no emoji codes, and characters that a terminal obeys escaped.

    It writes to its file in a notebook too, where a console of rich would put a block into the cell instead.
    """

    def __init__(self, **given: Any) -> None:
        plainly = {"markup": False, "emoji": False, "highlight": False, "force_jupyter": False}
        super().__init__(**{**plainly, **given})

    def render_str(self, text: str, **given: Any) -> Text:
        """Text of a cell or a line, escaped before its width is measured."""
        return super().render_str(printable(text), **given)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """The segments of anything, those that this library makes to steer the terminal as they are."""
        return shown(super().render(renderable, options))


def shown(segments: Iterable[Segment]) -> Iterable[Segment]:
    """Segments with the characters that a terminal obeys escaped."""
    for segment in segments:
        if segment.control or segment.text.isprintable():
            yield segment
        else:
            yield Segment(printable(segment.text), segment.style)


def standard_error() -> Terminal:
    """Standard error, for progress bars and messages."""
    return Terminal(stderr=True)


def plain(width: int, **given: Any) -> Terminal:
    """A console without colours, whose text is kept."""
    return Terminal(width=width, color_system=None, force_terminal=False, legacy_windows=False, **given)


def captured(renderable: RenderableType, width: int = WIDTH) -> str:
    """Anything as plain text, without spaces at the ends of lines."""
    console = plain(width)
    with console.capture() as text:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in text.get().splitlines())


def text_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as plain text, below a title."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    return "\n".join([printable(title), *([captured(table)] if table.row_count else [])])
