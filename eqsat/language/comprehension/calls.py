"""Calls of comprehensions as they are written down: arguments with their places, and what is made of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: What is made of texts, by name, for those who can import neither the engine nor a compiler: a "function" of a source
#: that defines one, a "gradient" of a function and names, a "kernel" of a function and what it keeps.
MAKERS: dict[str, Callable[..., Any]] = {}

#: The domain and the name of the nodes of ONNX that are calls. Attributes are `source`, which defines one function,
#: `places`, the number or the name of each input in the call, and `numbers`, those that are passed as JSON.
DOMAIN, NAME = "eqsat", "Comprehension"


def given_at(function: Any, places: Sequence[str], values: Sequence[Any]) -> Mapping[str, Any]:
    """The arguments of a call by the names of parameters; a place is the number of an argument, or its name.

    UsageError for too few, too many, or an unknown name, ValueError for places that leave one out.
    """
    by_place = dict(zip(places, values, strict=True))
    ordered = sorted((place for place in by_place if place.isdigit()), key=int)
    if ordered != [str(number) for number in range(len(ordered))]:
        raise ValueError(f"places {', '.join(ordered)}")
    named = {place: value for place, value in by_place.items() if not place.isdigit()}
    given: Mapping[str, Any] = function.by_name([by_place[place] for place in ordered], named)
    return given


def listed(made: Any) -> list[Any]:
    """The arrays that a result is, or that `out` is: one or several."""
    return list(made) if isinstance(made, tuple | list) else [made]
