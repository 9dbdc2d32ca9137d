"""Bounds of the instances of operators that are listed, not drawn, and rules that list operands and attributes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

from eqsat.errors import GraphError
from eqsat.language.terms import broadcast_shapes

Sizes: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of instances: dims up to `side` in tensors of rank 3 and less, up to `deep` in those of rank 4.

    Groups have up to `length` members; a window pads by up to `pad` on either side, has strides and dilations of 1 and
    2, and as many spatial axes as the rank leaves. A convolution along one axis thus goes up to `side`.
    """

    side: int = 4
    deep: int = 4
    length: int = 3
    pad: int = 2

    def most(self, rank: int) -> int:
        """The largest dim of a tensor of this rank; 0 where there is none such."""
        return self.side if rank <= 3 else self.deep if rank == 4 else 0

    @property
    def rank(self) -> int:
        """The highest rank."""
        return 4 if self.deep else 3


@cache
def shapes(bounds: Bounds, least: int = 0, most: int = 4) -> tuple[Sizes, ...]:
    """Every shape within the bounds, of ranks in a range."""
    ranks = range(least, min(most, bounds.rank) + 1)
    return tuple(s for r in ranks for s in itertools.product(range(1, bounds.most(r) + 1), repeat=r))


def broadcasts(*given: Sizes) -> bool:
    """True if tensors of these shapes broadcast together."""
    try:
        broadcast_shapes(*given)
    except GraphError:
        return False
    return True


#: Lists the values of an attribute, or of several that go together, for operands of known shapes.
Choices: TypeAlias = Callable[[Bounds, Sequence[Sizes]], Iterable[Any]]
#: Choices by the attribute, or the attributes, that they are of.
ChoicesOf: TypeAlias = Mapping[str | tuple[str, ...], Choices]
#: Lists the shapes that an operand may have at a place beside others of known shapes, the one at the place unknown.
Beside: TypeAlias = Callable[[tuple[Sizes | None, ...], int, Bounds], Iterable[Sizes]]
