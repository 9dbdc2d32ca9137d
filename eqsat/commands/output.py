"""Options about the output of a command: how much it tells, and JSON on standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console

from eqsat.errors import UsageError, printable
from eqsat.report.units import duration
from eqsat.system.files import write_text
from eqsat.system.terminal import WIDTH, Terminal, standard_error

Command = TypeVar("Command", bound=Callable[..., Any])

#: The file name that stands for standard output.
STDOUT = Path("-")
#: The type of an option whose file is JSON, or standard output.
JSON_FILE = click.Path(path_type=Path, allow_dash=True)


@dataclass
class CommandState:
    """State of a whole run of the command line.

    `verbosity` is 0 for results alone, 1 for a line as each phase ends, 2 for every step that a phase tells of; -1 for
    nothing but errors and files.
    """

    debug: bool = False
    verbosity: int = 0


def current_state() -> CommandState:
    """The state of the command that runs; the usual one where none does."""
    context = click.get_current_context(silent=True)
    state = context.find_object(CommandState) if context is not None else None
    return state or CommandState()


def _set_debug(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value:
        context.ensure_object(CommandState).debug = True


def debug_option(command: Command) -> Command:
    """Adds --debug, which shows the traceback of an error."""
    option = click.option(
        "--debug", is_flag=True, expose_value=False, callback=_set_debug, is_eager=True, help="Show tracebacks."
    )
    return option(command)


def _set_verbosity(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if not value:
        return
    state = context.ensure_object(CommandState)
    if state.verbosity:
        raise UsageError("--quiet and --verbose", expected="one of the two")
    state.verbosity = -1 if parameter.name == "quiet" else int(value)


def output_options(command: Command) -> Command:
    """Adds --quiet, --verbose and --debug."""
    shared: dict[str, Any] = {"expose_value": False, "callback": _set_verbosity, "is_eager": True}
    quiet = click.option("-q", "--quiet", is_flag=True, help="Print errors alone, and write files.", **shared)
    verbose = click.option(
        "-v", "--verbose", count=True, help="Tell of each phase and its seconds as it ends; -vv of each step.", **shared
    )
    return quiet(verbose(debug_option(command)))


class HelpfulGroup(click.Group):
    """A group of commands that prints its help where none of them is named, and ends well."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; without any, print the help and end with success."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)


class PrintsJson(click.Command):
    """A command whose --json prints JSON, as `--json -` does for commands that write it to a file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments, without a - after --json."""
        pairs = zip(["", *args], args, strict=False)
        return super().parse_args(ctx, [word for before, word in pairs if (before, word) != ("--json", "-")])


def console(json_file: Path | None = None) -> Console:
    """Standard output, as wide as a report where it is no terminal; silent under --quiet, and where JSON goes there."""
    terminal = Terminal(quiet=current_state().verbosity < 0 or json_file == STDOUT)
    if not terminal.is_terminal:
        terminal.width = WIDTH
    return terminal


def write_json(target: Path, text: str) -> None:
    """Write JSON to a file, or to standard output for -."""
    if target == STDOUT:
        print_json(text.rstrip("\n"))
    else:
        write_text(target, text)


def print_json(text: str) -> None:
    """Print JSON on standard output; where its encoding lacks a character, all beyond ASCII are escapes."""
    text = printable(text)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = "".join(one if one.isascii() else json.dumps(one)[1:-1] for one in text)
    click.echo(text)


class PhaseLog:
    """Lines about the phases of a command as they end, with their seconds, and about their steps.

    Nothing is written below a verbosity of 1, and no step below 2. `say` takes a line.
    """

    def __init__(self, say: Callable[[str], object] | None = None) -> None:
        self._verbosity = current_state().verbosity
        self._say = say or (lambda line: standard_error().print(line, soft_wrap=True))
        self._phase, self._begun, self._last = "", 0.0, ""

    def tell(self, phase: str, step: str = "") -> None:
        """Take news of a phase; the first of another phase ends the one before."""
        if self._verbosity < 1:
            return
        if phase != self._phase:
            self.end()
            self._phase, self._begun = phase, time.perf_counter()
        if step and step != self._last:
            self._last = step
            if self._verbosity > 1:
                self._say(f"  {phase}: {step}")

    def end(self) -> None:
        """End the last phase."""
        if self._phase:
            step = f", {self._last}" if self._last else ""
            self._say(f"{self._phase}: {duration(time.perf_counter() - self._begun)}{step}")
        self._phase, self._last = "", ""
