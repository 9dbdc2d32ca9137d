"""Candidates of a search: immutable values of options, and their text as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from eqsat.errors import EqsatError, UsageError

OptionScalar: TypeAlias = bool | int | float | str | None
OptionValue: TypeAlias = OptionScalar | tuple[OptionScalar | tuple[OptionScalar, ...], ...]


class CandidateError(EqsatError):
    """A candidate that cannot be compiled or measured, or a search in which none could be."""


class TuningCandidate(Mapping[str, OptionValue]):
    """Values of options by name; equal if the names are the same and the values are the same JSON.

    Values are null, Booleans, finite numbers and strings, or tuples of these and of tuples of
    these; UsageError for others. 1, 1.0 and True
    are three values.

    >>> candidate = TuningCandidate({"tile": (32, 8), "unroll": 4})
    >>> candidate.text, candidate["tile"]
    ('{"tile":[32,8],"unroll":4}', (32, 8))
    >>> TuningCandidate.from_text(candidate.text) == candidate
    True
    """

    __slots__ = ("_values", "text")

    def __init__(self, values: Mapping[str, OptionValue]) -> None:
        for name, value in values.items():
            _check(name, value)
        self._values = dict(values)
        self.text = _written(self._values)

    @classmethod
    def from_text(cls, text: str) -> TuningCandidate:
        """The candidate that a JSON object states, with arrays as tuples; UsageError for other texts."""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"options that are no JSON: {error}", expected="a JSON object") from error
        return cls.from_json(values)

    @classmethod
    def from_json(cls, values: Any) -> TuningCandidate:
        """The candidate that a value read from JSON stands for, with lists as tuples; UsageError for other values."""
        if not isinstance(values, dict):
            raise UsageError(f"options of type {type(values).__name__}", expected="a JSON object")
        return cls({name: _with_tuples(value) for name, value in values.items()})

    def replaced(self, name: str, value: OptionValue) -> TuningCandidate:
        """The same candidate with another value of one option."""
        return TuningCandidate({**self._values, name: value})

    def __getitem__(self, name: str) -> OptionValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, TuningCandidate) else NotImplemented

    def __repr__(self) -> str:
        return f"TuningCandidate({self._values!r})"


def value_text(value: OptionValue) -> str:
    """The JSON of a value, which tells 1, 1.0 and True apart.

    >>> value_text(1), value_text(1.0), value_text(True), value_text((1, "a"))
    ('1', '1.0', 'true', '[1,"a"]')
    """
    return _written(value)


def check_value(name: str, value: object) -> None:
    """UsageError for a value that an option cannot have."""
    if not _is_value(value):
        raise UsageError(
            f"the value {value!r}",
            where=f"option {name!r}",
            expected="null, a Boolean, a finite number or a string, or a tuple of these",
        )


def _check(name: object, value: object) -> None:
    if not isinstance(name, str):
        raise UsageError(f"an option named {name!r}", expected="a string")
    check_value(name, value)


def _with_tuples(value: Any, depth: int = 2) -> Any:
    """A value read from JSON with lists as tuples, those inside of lists included."""
    if not isinstance(value, list) or not depth:
        return value
    return tuple(_with_tuples(one, depth - 1) for one in value)


def _is_value(value: object, depth: int = 2) -> bool:
    if isinstance(value, tuple) and depth:
        return all(_is_value(one, depth - 1) for one in value)
    return _is_scalar(value)


def _is_scalar(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int | str)


def _written(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
