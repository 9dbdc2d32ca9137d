"""Numbers in text: counts, times, amounts and shares, in the unit that suits them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def integer(value: int) -> str:
    """An integer with its thousands set apart.

    >>> integer(1840)
    '1 840'
    """
    return f"{value:,}".replace(",", " ")


def count(value: int, singular: str, plural: str | None = None) -> str:
    """A number of things.

    >>> count(1, "node"), count(1840, "e-node")
    ('1 node', '1 840 e-nodes')
    """
    return f"{integer(value)} {singular if value == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(0.00131), duration(2.5e-6), duration(0.0)
    ('1.31 ms', '2.5 µs', '0 s')
    """
    return _scaled(seconds, "s", ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n")))


def quantity(value: float, unit: str) -> str:
    """A number of bytes or operations in the unit that suits it.

    >>> quantity(12_600_000, "B"), quantity(512, "FLOP")
    ('12.6 MB', '512 FLOP')
    """
    return _scaled(value, unit, ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, "")))


def percent(share: float) -> str:
    """A share from 0 to 1 in percent.

    >>> percent(0.0), percent(0.0123), percent(0.996), percent(float("inf"))
    ('0 %', '1.2 %', '100 %', 'unknown')
    """
    if not math.isfinite(share):
        return "unknown"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def amount(term: str, value: float) -> str:
    """An amount of a term of costs, in the unit that suits it.

    >>> amount("time", 0.00131), amount("peak_memory", 12_600_000), amount("launches", 8.0), amount("flops", 2e9)
    ('1.31 ms', '12.6 MB', '8', '2 GFLOP')
    """
    if term in ("error", "launches"):
        return number(value)
    return duration(value) if term == "time" else quantity(value, "FLOP" if term == "flops" else "B")


def _scaled(value: float, unit: str, scales: Sequence[tuple[float, str]]) -> str:
    if not math.isfinite(value):
        return "unknown"
    factor, prefix = next((s for s in scales if abs(value) >= s[0]), scales[-1])
    if not value:
        factor, prefix = 1.0, ""
    return f"{number(value / factor)} {prefix}{unit}"


def number(value: float) -> str:
    """A number in three digits, or whole from a thousand on.

    >>> number(0.12345), number(4321.5)
    ('0.123', '4322')
    """
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
