"""The meaning of an option: its text, its check, and how it is asked for on a command line."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field
from typing import Any, Literal, TypeAlias

#: The calls that take options. Each takes what the ones before it take.
Call: TypeAlias = Literal["pareto", "explore", "optimize"]
CALLS: tuple[Call, ...] = ("pareto", "explore", "optimize")


@dataclass(frozen=True)
class Meaning:
    """The text of an option, the calls that take it, and how it is asked for on a command line.

    `text` goes into docstrings, `help` into the help of commands. `since` is the first of `CALLS` that takes it. `flag`
    is its name on a command line, "" for one that has none there; `kind` is the form of its text there.
    `choices` gives its names where they are a closed set. `defaults` are those of calls that have another default.
    """

    check: Callable[[str, Any], Any]
    text: str
    since: Call
    help: str = ""
    flag: str = ""
    kind: str = ""
    choices: Callable[[], Collection[str]] | None = None
    defaults: Mapping[Call, Any] = field(default_factory=dict)


def stated(
    check: Callable[[str, Any], Any],
    text: str,
    *,
    since: Call = "pareto",
    help: str = "",
    flag: str = "",
    kind: str = "",
    choices: Callable[[], Collection[str]] | None = None,
    **defaults: Any,
) -> dict[str, Meaning]:
    """The metadata of a field: a meaning, with the defaults of calls that have others by their names."""
    return {"meaning": Meaning(check, text, since, help, flag, kind, choices, defaults)}  # type: ignore[arg-type]


def meaning_of(one: Field[Any]) -> Meaning:
    """The meaning of a field of options."""
    meaning: Meaning = one.metadata["meaning"]
    return meaning
