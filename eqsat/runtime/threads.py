"""The number of threads that a runtime may be asked for."""

from __future__ import annotations

import os
from numbers import Integral
from typing import Any

from eqsat.errors import UsageError

#: More than this, or four for each processor, make a runtime that starts them all and gets nothing done.
_ALWAYS = 64


def available_processors() -> int:
    """The processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def most_threads() -> int:
    """The largest number of threads that is taken on this machine."""
    return max(_ALWAYS, 4 * (os.cpu_count() or 1))


def check_threads(threads: Any) -> None:
    """UsageError for a number of threads that no runtime here should be given."""
    if not isinstance(threads, Integral) or isinstance(threads, bool) or not 1 <= int(threads) <= most_threads():
        raise UsageError(
            f"threads = {threads!r}", expected=f"a whole number from 1 to {most_threads()}, on this machine"
        )
