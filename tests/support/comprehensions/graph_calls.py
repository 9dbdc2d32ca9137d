"""Functions of comprehensions as graphs that hold them alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

import eqsat
from eqsat.language.terms import Graph


def graph_of_call(
    function: Any, arguments: Sequence[Any], more: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Graph, dict[str, Any]]:
    """The graph of a call, its results o0, o1, …, and its inputs; integer scalars are attributes.

    `more` are arguments by name.
    """
    g = eqsat.Graph("call")
    feeds: dict[str, Any] = {}
    given: list[Any] = []
    for one, value in zip(function.scope.function.parameters, arguments, strict=True):
        if one.name in function.needs:
            given.append(int(value))
            continue
        name = f"in_{one.name}"
        feeds[name] = np.asarray(value, function.types[one.name].numpy)
        given.append(g.input(name, feeds[name].shape, function.types[one.name].value))
    named: dict[str, Any] = {}
    for name, value in more.items():
        feeds[f"in_{name}"] = np.asarray(value, function.types[name].numpy)
        named[name] = g.input(f"in_{name}", feeds[f"in_{name}"].shape, function.types[name].value)
    made = function(*given, **named)
    for number, result in enumerate(made if isinstance(made, tuple) else (made,)):
        g.output(f"o{number}", result)
    return g.build(), feeds


def ordered(results: dict[str, Any]) -> Any:
    """The results of such a graph as the call returns them."""
    made = tuple(results[f"o{number}"] for number in range(len(results)))
    return made if len(made) > 1 else made[0]
