"""Ctrl-C as a request to end early, so that the best result so far is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interruptible(
    stopping: Callable[[], None] | None = None, begun: Callable[[], bool] | None = None
) -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a request that the work ends early, and the second into KeyboardInterrupt.

    Yield a function that tells whether it was made; `stopping` is called when it is. Until `begun` says that there is
    work whose results could be kept, the first Ctrl-C is KeyboardInterrupt already. In another thread than the main
    one, and where a program has a handler of its own, nothing changes.
    """
    asked = threading.Event()
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield asked.is_set
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        again = asked.is_set()
        asked.set()  # also where the exception is lost: one raised in a destructor is
        if again or (begun is not None and not begun()):
            raise KeyboardInterrupt
        if stopping is not None:
            stopping()

    signal.signal(signal.SIGINT, handle)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
