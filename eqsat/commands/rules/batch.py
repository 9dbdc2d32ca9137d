"""Options and processes for long work on rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager

import click

from eqsat.commands.arguments import Command


def jobs_option(command: Command) -> Command:
    """Adds --jobs, the number of processes."""
    option = click.option(
        "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes to divide the work over."
    )
    return option(command)


def everything_option(command: Command) -> Command:
    """Adds --everything, which verifies candidates too of which little is to be gained."""
    help = "Verify candidates too that save no work, and large ones that laws do not derive."
    option = click.option("--everything", is_flag=True, help=help)
    return option(command)


def alone_option(default: bool) -> Callable[[Command], Command]:
    """Adds --alone and --beyond-laws: whether rules left out follow from rules of the candidates, or from laws."""
    help = (
        "Leave out what the rules found derive, so that they stand alone, or also what laws derive when run as rules."
    )
    return click.option("--alone/--beyond-laws", "alone", default=default, show_default=True, help=help)


@contextmanager
def workers(jobs: int) -> Iterator[Executor | None]:
    """So many processes; None where there is no more than this one."""
    if jobs == 1:
        yield None
        return
    pool = ProcessPoolExecutor(jobs)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
