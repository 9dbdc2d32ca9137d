"""The entry of the command line, `eqsat` and `python -m eqsat`; Ctrl-C is heard from the first import on."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

#: The exit code after Ctrl-C, as shells have it.
INTERRUPTED = 130


def main() -> NoReturn:
    """Runs the command line and exits with its code."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if heard:
        # Imports that are cut short fail in ways of their own, and nothing is begun that would have to be ended.
        signal.signal(signal.SIGINT, _leave)
    from eqsat.cli import run

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    code = run(leave=_end)
    if heard:
        # The work is done, so what the interpreter takes down cannot be interrupted any more.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def _end(code: int) -> NoReturn:
    """Ends the process at once after Ctrl-C: to free an e-graph of a large model object by object takes seconds."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"\nerror: interrupted; files are as they were\n")
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
