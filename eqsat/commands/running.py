"""The options of a run on a command line, made from the fields of `Options`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field
from pathlib import Path
from typing import Any

import click

from eqsat.commands.arguments import BUCKET, DURATION, NAMES, SIZES, Command, limit, once, weight
from eqsat.commands.choices import DATA, RULES_FILE, OfTerms, OneOf, SomeOf, check_limit, check_weight
from eqsat.errors import UsageError
from eqsat.options.meanings import Call, Meaning, meaning_of
from eqsat.options.options import Options, default_of, options_of

#: The type of an option that names a file.
FILE = click.Path(path_type=Path)

#: The type of an option's text, by its kind.
_TYPES: Mapping[str, Any] = {
    "": str,
    "number": float,
    "count": int,
    "duration": DURATION,
    "names": NAMES,
    "weights": OfTerms(weight, check_weight, "[=WEIGHT]"),
    "limits": OfTerms(limit, check_limit, "=AMOUNT"),
    "sizes": SIZES,
    "buckets": BUCKET,
    "files": RULES_FILE,
    "data": DATA,
}
#: Kinds of options that may be repeated.
_REPEATED = {"weights", "limits", "sizes", "buckets", "files"}


def run_options(call: Call) -> Callable[[Command], Command]:
    """Add the options of a call; the command takes them as keywords, for `run_arguments`."""

    def decorate(command: Command) -> Command:
        for one in reversed(options_of(call)):
            if meaning_of(one).flag:
                command = _click_option(one, call)(command)
        return command

    return decorate


def _click_option(one: Field[Any], call: Call) -> Callable[[Command], Command]:
    meaning, default = meaning_of(one), default_of(one, call)
    more: dict[str, Any] = {"help": meaning.help}
    if meaning.kind == "flag":
        more["is_flag"] = True
    elif meaning.kind == "switch":
        more["default"] = default
    elif meaning.kind in _REPEATED:
        more |= {"type": _TYPES[meaning.kind], "multiple": True}
    else:
        more["type"] = _type_of(one.name, meaning)
        if default is not None:
            shown = f"{default:g}s" if meaning.kind == "duration" else default
            more |= {"default": shown, "show_default": True}
    return click.option(meaning.flag, one.name, **more)


def _type_of(name: str, meaning: Meaning) -> Any:
    """The type of an option that is given once."""
    if meaning.choices is None:
        return _TYPES[meaning.kind]
    if meaning.kind == "layouts":
        return SomeOf(meaning.choices, meaning.check)
    return OneOf(meaning.choices, meaning.check, ("FILE.json",) if name == "device" else ())


def run_arguments(options: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """The keyword arguments of a call for these options, checked before anything is imported to run them."""
    kinds = {one.name: meaning_of(one).kind for one in options_of(call)}
    arguments = {name: _argument(kinds[name], value) for name, value in options.items()}
    Options.of(call, arguments)
    return arguments


def _argument(kind: str, value: Any) -> Any:
    if kind == "weights":
        return dict(value) or None
    if kind == "limits":
        return once(value, "--limit")
    if kind == "layouts":
        return "auto" if value == ["auto"] else value
    if kind == "files":
        return value or None
    if kind == "sizes":
        return dict(value)
    if kind == "buckets":
        return _by_name(value) if value else None
    return value


def _by_name(buckets: tuple[tuple[str, list[int]], ...]) -> dict[str, list[int]]:
    """The buckets of each named dim; UsageError for a dim that is named twice."""
    ends = dict(buckets)
    if len(ends) < len(buckets):
        twice = next(name for i, (name, _) in enumerate(buckets) if name in dict(buckets[:i]))
        raise UsageError(f"--bucket {twice} twice", expected="all sizes of a dim in one, as batch=1,4,8")
    return ends
