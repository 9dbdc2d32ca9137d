"""Sets of sessions made anew, since two sessions of one model differ for good, whatever the number of their rounds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from eqsat.runtime.measure import LEAST_ROUNDS
from eqsat.system.deadline import current

#: Sets of new sessions, whose medians are the samples that a bound is computed from.
SETS = 8
#: The share of a time that the 95 % bound of what is to replace it has to be below. Sessions of one model differ for
#: good: what has a bound of 0.989 in some may have one of 1.001 in others.
WORTH = 0.98


def sets_in_time(seconds: float) -> Iterator[int]:
    """The numbers of the sets to make, as long as there is time for one more that takes as long as the longest.

    Fewer than LEAST_ROUNDS bound nothing: no more are made where, as the first ones show, time lasts for no more.
    """
    longest, first = 0.0, time.monotonic()
    end = first + seconds
    for number in range(SETS):
        begun = time.monotonic()
        wanted = (LEAST_ROUNDS - number) * (begun - first) / max(number, 1)
        needed = max(longest, wanted)
        if begun + needed > end or current().over or current().seconds < needed:
            return
        yield number
        longest = max(longest, time.monotonic() - begun)
