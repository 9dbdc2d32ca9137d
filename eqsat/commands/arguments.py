"""Types of command-line arguments: durations, sizes of named dims, weights, lists of names."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from eqsat.commands.choices import names
from eqsat.errors import UsageError

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

Command = TypeVar("Command", bound=Callable[..., Any])


def _import(_context: click.Context, _parameter: click.Parameter, sources: tuple[str, ...]) -> None:
    if sources:
        from eqsat.rewrites.discovery.enumerate.forms import load_operators

        load_operators(sources)


def import_option(command: Command) -> Command:
    """Adds --import, which loads modules or files that declare operators."""
    option = click.option(
        "--import",
        "sources",
        metavar="MODULE|FILE.py",
        multiple=True,
        expose_value=False,
        callback=_import,
        is_eager=True,
        help="Module that declares operators with @eqsat.op; may be repeated.",
    )
    return option(command)


def duration(text: str) -> float:
    """Seconds from a number with a unit; seconds where there is none.

    >>> duration("30s"), duration("2m"), duration("500ms"), duration("1.5")
    (30.0, 120.0, 0.5, 1.5)
    """
    match = re.fullmatch(r"\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*(ms|s|m|h|)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is no duration; expected a number with ms, s, m or h, such as 30s")
    return float(match[1]) * _UNITS[match[2] or "s"]


def size(text: str) -> tuple[str, int]:
    """A named dim and the sizes it is costed at.

    >>> size("batch=8")
    ('batch', 8)
    """
    name, separator, number = text.partition("=")
    if not (separator and name and number.isdecimal() and int(number) > 0):
        raise ValueError(f"{text!r} is no size; expected NAME=NUMBER with a number above 0, such as batch=8")
    return name, int(number)


def sizes(text: str) -> tuple[str, dict[int, float]]:
    """A named dim and the sizes that it is costed and measured at, each with its weight, 1 where none is given.

    >>> sizes("batch=1,8"), sizes("batch=1:0.7,8:0.3")
    (('batch', {1: 1.0, 8: 1.0}), ('batch', {1: 0.7, 8: 0.3}))
    """
    name, separator, rest = text.partition("=")
    weights: dict[int, float] = {}
    for part in rest.split(","):
        number, weighed, share = (piece.strip() for piece in part.partition(":"))
        if not (separator and name and number.isdecimal() and int(number) > 0):
            raise ValueError(
                f"{text!r} is no size; expected NAME=NUMBER with a number above 0, such as batch=8, "
                "or several, such as batch=1,8,32 or batch=1:0.7,8:0.3"
            )
        try:
            weights[int(number)] = float(share) if weighed else 1.0
        except ValueError:
            raise ValueError(f"{share!r} is no weight of {name}={number}; expected a number, such as 0.7") from None
    return name, weights


def weight(text: str) -> tuple[str, float]:
    """A term of the objective and its weight, 1 where none is given.

    >>> weight("time"), weight("bytes=1e-12")
    (('time', 1.0), ('bytes', 1e-12))
    """
    term, separator, number = text.partition("=")
    try:
        return term, float(number) if separator else 1.0
    except ValueError:
        raise ValueError(f"{text!r} is no weight; expected TERM or TERM=NUMBER, such as time=1") from None


def limit(text: str) -> tuple[str, str]:
    """A term and the most of it that a result may use.

    >>> limit("peak_memory=8 GB")
    ('peak_memory', '8 GB')
    """
    term, separator, most = text.partition("=")
    if not (separator and term.strip() and most.strip()):
        raise ValueError(f"{text!r} is no limit; expected TERM=AMOUNT, such as peak_memory=8GB")
    return term.strip(), most.strip()


def once(pairs: Sequence[tuple[str, str]], option: str) -> dict[str, str]:
    """Amounts by term of an option that may be repeated; UsageError for a term that is given twice.

    >>> once([("launches", "8"), ("time", "2 ms")], "--limit")
    {'launches': '8', 'time': '2 ms'}
    """
    values: dict[str, str] = {}
    for term, value in pairs:
        if term in values:
            raise UsageError(
                f"{option} {term}={values[term]} and {option} {term}={value}",
                expected="one limit of a term",
                remedy="keep the tighter one",
            )
        values[term] = value
    return values


class Parsed(click.ParamType[Any]):
    """An argument read by a function that raises ValueError, under the name that help shows."""

    def __init__(self, parse: Callable[[str], Any], name: str) -> None:
        self.parse, self.name = parse, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The parsed argument; click's error where it is malformed."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def bucket(text: str) -> tuple[str, list[int]]:
    """A named dim and the sizes at which its buckets end.

    >>> bucket("batch=1,4,8")
    ('batch', [1, 4, 8])
    """
    name, mark, ends = text.partition("=")
    parts = ends.split(",")
    if not (name.strip() and mark) or not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"bucket {text!r}", expected="a name and sizes, as batch=1,4,8")
    return name.strip(), [int(part) for part in parts]


DURATION = Parsed(duration, "duration")
SIZE = Parsed(size, "name=number")
SIZES = Parsed(sizes, "name=number,…")
BUCKET = Parsed(bucket, "name=number,…")
NAMES = Parsed(names, "name,…")
