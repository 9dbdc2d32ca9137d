"""Tables and numbers in the Markdown of pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, of which the first column is text and the others are numbers."""
    ruler = ["---", *("---:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *rows))


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, and its thousands set apart.

    >>> number(0.19726), number(12358.8, 5), number(2347), number(1.0)
    ('0.197', '12 359', '2 347', '1.00')
    """
    if isinstance(value, int):
        return f"{value:,}".replace(",", " ")
    if value and not 1e-4 <= abs(value) < 10.0**digits:
        return f"{value:,.0f}".replace(",", " ") if abs(value) >= 1 else f"{value:.1e}"
    places = digits - 1 - math.floor(math.log10(abs(value))) if value else digits - 1
    return f"{value:,.{max(places, 0)}f}".replace(",", " ")


def percent(share: float) -> str:
    """A share in percent, 0 where it is rounding alone.

    >>> percent(0.0678), percent(2e-16), percent(0.6142)
    ('6.8 %', '0 %', '61 %')
    """
    if share < 1e-9:
        return "0 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    found = [math.log(value) for value in values]
    return math.exp(math.fsum(found) / len(found))
