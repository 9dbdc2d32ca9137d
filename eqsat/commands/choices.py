"""Types of options that name an entry of a registry, or a file, checked when the command line is read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from eqsat.language.onnx.files.access import check_model_file
from eqsat.options import checks, choices
from eqsat.quantisation.forms import check_calibration_form
from eqsat.system.files import unreadable

Names = Callable[[], Collection[str]]
#: A check of an option, by its name and value, that raises EqsatError.
Check = Callable[[str, Any], object]


class OneOf(click.ParamType[Any]):
    """A name of a registry, or what else the check lets pass; the registry is read for help, and where one is given.

    `more` is for help: the forms of text beside the names.
    """

    name = "name"

    def __init__(self, names: Names, check: Check, more: tuple[str, ...] = ()) -> None:
        self.names, self.check, self.more = names, check, more

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The names, for help."""
        return "[" + "|".join((*self.names(), *self.more)) + "]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name; EqsatError for one that there is not. Defaults need no check, and so no registry."""
        if param is None or value != param.default:
            self.check(param.name or "" if param is not None else "", value)
        return value


class SomeOf(OneOf):
    """Names of a registry, separated by commas."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The names, for help."""
        return super().get_metavar(param, ctx) + ",…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The names; EqsatError for one that there is not."""
        if not isinstance(value, str):
            return value
        try:
            several = names(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        for one in several:
            super().convert(one, param, ctx)
        return several


class OfTerms(click.ParamType[Any]):
    """A term of costs with a number, as a function parses it."""

    name = "term"

    def __init__(self, parse: Callable[[str], tuple[str, Any]], check: Callable[[tuple[str, Any]], object], form: str):
        self.parse, self.check, self.form = parse, check, form

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """The terms, and the form of the number, for help."""
        return "[" + "|".join(choices.terms()) + "]" + self.form

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The term and its number; EqsatError for a term that there is not, or a number that it cannot have."""
        if not isinstance(value, str):
            return value
        try:
            parsed = self.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        self.check(parsed)
        return parsed


class ReadableFile(click.ParamType[Path]):
    """The path of a file that can be read, which a function checks, under the name that help shows."""

    def __init__(self, check: Callable[[Path], object], name: str = "file") -> None:
        self.check, self.name = check, name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path; EqsatError for one that cannot be read."""
        self.check(path := Path(value))
        return path


def names(text: str) -> list[str]:
    """Names separated by commas.

    >>> names("logits, hidden")
    ['logits', 'hidden']
    """
    parts = [name.strip() for name in text.split(",") if name.strip()]
    if not parts:
        raise ValueError("no name given; expected names separated by commas")
    return parts


def _check_rules_file(path: Path) -> None:
    reason = unreadable(path)
    if reason is not None:
        from eqsat.rewrites.rules.parser import unreadable_rules

        raise unreadable_rules(path, reason)


def _check_known_device(name: str, given: Any) -> None:
    """CostError for a name that is no device's; whether a GPU is here is asked where it is used."""
    from eqsat.costs.devices.fields import CUDA, MAKER

    if given != CUDA and not str(given).startswith(MAKER):
        checks.device(name, given)


def check_weight(parsed: tuple[str, Any]) -> None:
    """UsageError for a term that an objective cannot have."""
    from eqsat.costs.model.cost import check_terms

    check_terms([parsed[0]])


def check_limit(parsed: tuple[str, Any]) -> None:
    """UsageError for a term, or an amount of it, that nothing can be limited to."""
    checks.limits("limits", dict([parsed]))


MODEL_FILE = ReadableFile(check_model_file)
RULES_FILE = ReadableFile(_check_rules_file)
DATA = ReadableFile(check_calibration_form, "file|folder")
#: A device to measure on, of which a GPU has to be here.
DEVICE = OneOf(choices.devices, _check_known_device, ("FILE.json",))
PRECISIONS = SomeOf(choices.precisions, checks.precision)
EXTRACTOR = OneOf(choices.extractors, checks.extractor)
TERM = OneOf(choices.terms, checks.term)
TERMS = SomeOf(choices.terms, checks.term)
