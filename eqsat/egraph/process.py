"""The process that e-graphs live in: egglog's threads are not copied by a fork, and a child waits for them forever."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from functools import cache
from typing import Any

from eqsat.errors import UsageError


@cache
def home() -> int:
    """The process that made the first e-graph, which is asked for when that is made."""
    return os.getpid()


def check_process() -> None:
    """UsageError in a process that was forked from one that had e-graphs."""
    if home.cache_info().currsize and home() != os.getpid():
        raise UsageError(
            f"process {os.getpid()} was forked from one that had used eqsat",
            expected="a process that was started anew: e-graphs use threads, and a fork does not copy them",
            remedy="start it by multiprocessing.get_context('spawn'), or fork before the first use",
        )


def keep_forever(things: Iterable[Any]) -> None:
    """Keep these from being freed: in a forked child, egglog would wait for a thread to free an e-graph."""
    for thing in things:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
