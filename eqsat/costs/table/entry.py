"""One measured operator: its time, as a table keeps it, and which of two times stays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from eqsat.costs.table.environment import Environment
from eqsat.errors import CostError


@dataclass(frozen=True, slots=True)
class Entry:
    """A measured operator: the median, tenth and ninetieth percentile in seconds, and the number of samples.

    `plan` names the implementation that was timed, where a device has several; it is empty where there is one. `hot` is
    the median with constants that lie in the nearest memory that holds them, where that was measured too. CostError for
    impossible measurements: a time that is negative or no number, percentiles out of order.

    >>> Entry(2e-6, 1e-6, 3e-6, samples=20).seconds
    2e-06
    """

    seconds: float
    p10: float
    p90: float
    samples: int
    plan: str = ""
    hot: float | None = None

    @classmethod
    def of(cls, samples: Sequence[float], plan: str = "", hot: float | None = None) -> Entry:
        """The entry of samples in seconds."""
        low, middle, high = (float(q) for q in np.quantile(samples, (0.1, 0.5, 0.9)))
        return cls(middle, low, high, len(samples), plan, hot)

    def __post_init__(self) -> None:
        for name in ("seconds", "p10", "p90"):
            if not _is_time(getattr(self, name)):
                raise CostError(f"{name} = {getattr(self, name)!r}", expected="a finite number of seconds, 0 or more")
        if not self.p10 <= self.seconds <= self.p90:
            raise CostError(
                f"p10 = {self.p10!r}, seconds = {self.seconds!r}, p90 = {self.p90!r}",
                expected="p10 <= seconds <= p90, since seconds is the median",
            )
        if type(self.samples) is not int or not 1 <= self.samples < 1 << 63:
            raise CostError(f"samples = {self.samples!r}", expected="a whole number of 1 or more")
        if not isinstance(self.plan, str):
            raise CostError(f"plan = {self.plan!r}", expected="text")
        if self.hot is not None and not _is_time(self.hot):
            raise CostError(f"hot = {self.hot!r}", expected="a finite number of seconds, 0 or more, or none")


class TableRecord(NamedTuple):
    """An entry with its place in a table: the environment, and the text of the operator's key."""

    environment: Environment
    key: str
    entry: Entry


def preferred(one: Entry, other: Entry) -> Entry:
    """The entry that stays where two tables were measured in one environment: the one of more samples.

    Of equally many, the faster. The order is total, so merging is idempotent, commutative and associative.

    >>> preferred(Entry(2.0, 2.0, 2.0, 20), Entry(1.0, 1.0, 1.0, 5)).samples
    20
    """
    return max(
        one, other, key=lambda e: (e.samples, -e.seconds, -e.p10, -e.p90, e.plan, -1.0 if e.hot is None else e.hot)
    )


def _is_time(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return 0 <= float(value) < math.inf
    except OverflowError:  # an integer beyond any float
        return False
