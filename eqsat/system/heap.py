"""Memory of the machine, and what the allocator keeps of it for later."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache
from typing import Any


def return_freed() -> None:
    """Give memory that was freed back to the system, where the C library is asked to: glibc keeps pieces of some MB.

    For after work that took much, and is not done again: what takes as much next would have to fetch it again.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    """The function of the C library that does so, None where it has none."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


#: Where the system does not say how much memory there is: more than any address reaches.
_UNKNOWN_MEMORY = 1 << 63


@cache
def machine_memory() -> int:
    """The bytes of memory that this machine has."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN_MEMORY
