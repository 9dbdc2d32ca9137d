"""A node of a graph as a function of the language, with its attributes and what it asks by the sizes of operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.text.parser import parse
from eqsat.language.parametric.facts import Fact
from eqsat.language.terms import DType, TensorType, ValueType


@dataclass(frozen=True)
class StatedNode:
    """A function with one result, which is what a node makes of operands whose sizes meet the conditions.

    `attrs` are those of the node, with formulas of the function's sizes in place of numbers; None where they are as the
    node has them. Conditions are on the same sizes.
    """

    function: TensorFunction
    attrs: Mapping[str, Any] | None = None
    conditions: tuple[Fact, ...] = field(default=())

    def attributes(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """The attributes of a node, as formulas where there are some."""
        return MappingProxyType({**given, **(self.attrs or {})})


@cache
def function_of_text(text: str) -> TensorFunction:
    """The one function of a text."""
    (function,) = parse(text)
    return TensorFunction(resolve(function, text))


def one_float(types: Sequence[ValueType | None]) -> DType | None:
    """The type of floats that all of some tensors of known ranks are of; None where there is none."""
    known = [one for one in types if isinstance(one, TensorType) and one.shape is not None]
    found = {one.dtype for one in known}
    if len(known) < len(types) or len(found) != 1:
        return None
    (dtype,) = found
    return dtype if dtype.is_float else None
