"""Text on a terminal: names from models and files are shown, and never obeyed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from eqsat.errors import printable

#: Columns of a report where no terminal says otherwise.
WIDTH = 110


class Terminal(Console):
    """A console that takes text as it is: no markup, no emoji codes, and characters that a terminal obeys escaped."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **given})

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
