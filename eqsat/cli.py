"""The command line: commands, and how errors end them."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence

import click

from eqsat.commands.bench.command import bench
from eqsat.commands.costs.group import costs
from eqsat.commands.costs.measure import measure
from eqsat.commands.doctor import doctor
from eqsat.commands.explore import explore
from eqsat.commands.extract import extract
from eqsat.commands.inspect import inspect
from eqsat.commands.optimize import optimize
from eqsat.commands.output import CommandState, HelpfulGroup
from eqsat.commands.pareto import pareto
from eqsat.commands.rules.group import rules
from eqsat.errors import EqsatError, printable
from eqsat.system.terminal import accept_all_text

#: Exit codes: bad input or usage, an unexpected fault, and Ctrl-C.
BAD_INPUT, FAULT, INTERRUPTED = 2, 1, 130


def _show_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        from importlib.metadata import version

        click.echo(f"eqsat {version('eqsat')}")
        context.exit()


@click.group(cls=HelpfulGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, callback=_show_version, expose_value=False, is_eager=True, help="Show it.")
def commands() -> None:
    """Optimise tensor graphs by equality saturation."""


for _command in (optimize, explore, pareto, inspect, measure, bench, costs, rules, extract, doctor):
    commands.add_command(_command)


def run(arguments: Sequence[str] | None = None, leave: Callable[[int], object] | None = None) -> int:
    """Runs the command line and returns its exit code, or calls `leave` with it when Ctrl-C aborted the work.

    0 for success, 2 for bad input or usage, 3 for a run that failed and kept the original, 1 for any other fault of
    eqsat itself, 130 when Ctrl-C aborted it. Errors are one message on stderr; --debug adds the traceback.
    """
    settings = CommandState()
    accept_all_text(sys.stdout, sys.stderr)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_where, **_more: _warn(message, settings)
        try:
            code = commands.main(args=arguments, prog_name="eqsat", standalone_mode=False, obj=settings)
        except EqsatError as error:
            return _fail(str(error), BAD_INPUT, settings)
        except click.ClickException as error:
            return _fail(_usage(error), BAD_INPUT, settings)
        except (KeyboardInterrupt, click.Abort):
            return _interrupted(settings, leave)
        except BrokenPipeError:
            # Whoever read our output has gone; nothing more can be said there.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FAULT
        except Exception as error:  # noqa: BLE001 - the last place that can say what happened
            if _comes_of_ctrl_c(error):
                return _interrupted(settings, leave)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                file = error.filename or "standard output"
                remedy = "expected room for it\n  make room, or write elsewhere"
                return _fail(f"{file}: {error.strerror}\n  {remedy}", BAD_INPUT, settings)
            what = f"unexpected {type(error).__name__}: {str(error).strip() or 'no message'}"
            remedy = "" if settings.debug else "\n  this is a fault of eqsat; run it again with --debug and report it"
            return _fail(what + remedy, FAULT, settings)
    return code if isinstance(code, int) else 0


def _interrupted(settings: CommandState, leave: Callable[[int], object] | None) -> int:
    code = _fail("interrupted; files are as they were", INTERRUPTED, settings)
    if leave is not None:
        leave(code)
    return code


def _comes_of_ctrl_c(error: BaseException | None) -> bool:
    """True if an error comes of Ctrl-C: an import that is cut short fails as an import."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _fail(message: str, code: int, settings: CommandState) -> int:
    if settings.debug:
        _say(traceback.format_exc().rstrip())
    _say(f"error: {message}")
    return code


def _warn(message: Warning | str, settings: CommandState) -> None:
    if settings.verbosity >= 0:
        _say(f"warning: {message}")


def _say(text: str) -> None:
    click.echo(printable(text), err=True)


def _usage(error: click.ClickException) -> str:
    """The message of click, with the way to the help of the command it is about."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"\n  see {context.command_path} --help" if context is not None else ""
    return error.format_message() + hint
