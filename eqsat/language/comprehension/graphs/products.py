"""Statements that are sums of products of elements, as einsum has them."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat.language.comprehension.extents.affine import Range
from eqsat.language.comprehension.extents.ranges import Shapes
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.text.syntax import Applied, Binary, Expression, Name
from eqsat.language.terms import DType


@dataclass(frozen=True)
class ProductSum:
    """Tensors whose elements are multiplied, the indices of each, and those of the result."""

    tensors: tuple[str, ...]
    subscripts: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]

    @property
    def einsum(self) -> str:
        """The call of einsum, in the syntax of rules, where tensors are terms."""
        return f'einsum({", ".join(self.tensors)}, equation="{self.equation}")'

    @property
    def equation(self) -> str:
        """The equation of einsum, its letters given in the order in which indices are first read."""
        letters: dict[str, str] = {}
        for index in (index for indices in (*self.subscripts, self.result) for index in indices):
            letters.setdefault(index, string.ascii_letters[len(letters)])
        terms = ["".join(letters[index] for index in indices) for indices in self.subscripts]
        return ",".join(terms) + "->" + "".join(letters[index] for index in self.result)


def einsum_of(
    scope: Scope,
    one: ResolvedEquation,
    ranges: Mapping[str, Range],
    shapes: Shapes,
    types: Mapping[str, DType],
) -> ProductSum | None:
    """A statement as a sum of products over whole axes, each of which an index subscripts alone; else None.

    Its target is defined anew, does not read itself, and is of the type of all that it reads.
    """
    if not one.statement.is_definition or one.statement.reduction not in ("", "+") or one.kept:
        return None
    factors = _factors(one.value)
    tensors, subscripts = [], []
    for factor in factors:
        if not isinstance(factor, Applied) or not scope.ranks.get(factor.name) or factor.name == one.statement.target:
            return None
        if types[factor.name] is not types[one.statement.target]:
            return None
        names = tuple(part.name for part in factor.arguments if isinstance(part, Name) and part.name in ranges)
        if len(names) != len(factor.arguments) or len(set(names)) != len(names):
            return None
        extents = zip(names, shapes[factor.name], strict=True)
        if any(ranges[name] != (0, extent) for name, extent in extents):
            return None
        tensors.append(factor.name)
        subscripts.append(names)
    read = {name for names in subscripts for name in names}
    if not read.issuperset(one.every_index) or len(read) > len(string.ascii_letters):
        return None
    return ProductSum(tuple(tensors), tuple(subscripts), one.indices)


def _factors(value: Expression) -> list[Expression]:
    if isinstance(value, Binary) and value.operator == "*":
        return [*_factors(value.left), *_factors(value.right)]
    return [value]
