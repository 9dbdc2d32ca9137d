"""Signatures and docstrings of the calls that take options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from eqsat.options.meanings import Call, meaning_of
from eqsat.options.options import default_of, options_of

Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")


def documented(call: Call) -> Callable[[Callable[Parameters, Answer]], Callable[Parameters, Answer]]:
    """Give a function that takes options its signature, and its docstring a line for each where `{options}` stands."""

    def decorate(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
        plain, only = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
        positional = [p for p in plain.parameters.values() if p.kind is not p.VAR_KEYWORD]
        keyword = [
            inspect.Parameter(one.name, only, default=default_of(one, call), annotation=one.type)
            for one in options_of(call)
        ]
        function.__signature__ = plain.replace(parameters=[*positional, *keyword])  # type: ignore[attr-defined]
        lines = [f"* `{one.name}`: {meaning_of(one).text}." for one in options_of(call)]
        function.__doc__ = (function.__doc__ or "").replace("{options}", "\n    ".join(lines))
        return function

    return decorate
