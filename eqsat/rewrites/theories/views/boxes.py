"""Boxes of a view that operands fill, and boxes that go on as one."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.language.terms.dims import Dim, product
from eqsat.rewrites.theories.views.extents import Extent, beside

_VARIABLE = re.compile(r"\bx\d*\b")


@dataclass(frozen=True)
class ViewPiece:
    """A box of a view that an operand fills: an extent for each digit, and the place of its first element.

    The operand is a variable of a term, or what operators compute of each of its elements: relu(x0).
    """

    operand: str
    offset: Dim
    extents: tuple[Extent, ...]

    @property
    def variable(self) -> str:
        """The variable of its operand."""
        (name,) = _VARIABLE.findall(self.operand)
        return str(name)

    @property
    def size(self) -> Dim:
        """The number of its elements."""
        return product(count for _, count, _ in self.extents)


def shifted(piece: ViewPiece, place: int, by: Dim) -> ViewPiece:
    """A piece that lies so much further along a digit."""
    start, count, stride = piece.extents[place]
    return replace(piece, extents=(*piece.extents[:place], (start + by, count, stride), *piece.extents[place + 1 :]))


def united(pieces: Sequence[ViewPiece]) -> tuple[ViewPiece, ...]:
    """Pieces with one for two that go on as one."""
    found = sorted(pieces, key=_begin)
    while True:
        pairs = itertools.permutations(range(len(found)), 2)
        both = next(((a, b, one) for a, b in pairs if (one := _union(found[a], found[b])) is not None), None)
        if both is None:
            return tuple(found)
        first, second, one = both
        rest = [piece for place, piece in enumerate(found) if place not in (first, second)]
        found = sorted([*rest, one], key=_begin)


def _begin(piece: ViewPiece) -> tuple[tuple[bool, int], ...]:
    """Where a piece begins, as far as that is a number."""
    return tuple((False, start) if isinstance(start, int) else (True, 0) for start, _, _ in piece.extents)


def _union(one: ViewPiece, other: ViewPiece) -> ViewPiece | None:
    """One piece in the place of two, where the second goes on where the first ends."""
    differ = [place for place, pair in enumerate(zip(one.extents, other.extents, strict=True)) if pair[0] != pair[1]]
    if one.operand != other.operand or len(differ) != 1:
        return None
    place = differ[0]
    extent = beside(one.extents[place], other.extents[place], other.offset - one.offset)
    return extent and replace(one, extents=(*one.extents[:place], extent, *one.extents[place + 1 :]))
