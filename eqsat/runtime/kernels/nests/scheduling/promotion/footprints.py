"""Elements that a tile of a statement reads: the boxes of them in shared memory, and what they are copied from."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import (
    GUARDED,
    Coordinate,
    ElementRead,
    Environment,
    KernelBuffer,
    Subscript,
    indices_of,
    is_risky,
    reads,
)
from eqsat.runtime.kernels.nests.extents import Extent
from eqsat.runtime.kernels.nests.scheduling.fusion import moved
from eqsat.runtime.kernels.nests.scheduling.strides import stride

#: Conditions on what is promoted, beside that it is read again: some threads that are neighbours read it from places
#: that are no neighbours ("uncoalesced", one place included), or from places apart ("apart"), or none ("reused").
PromotionRule: TypeAlias = Literal["reused", "uncoalesced", "apart"]


@dataclass(frozen=True)
class IndexTile:
    """The values of indices that a block takes at once: their number, the first, and the place of those of a thread.

    Threads that are neighbours have neighbouring values of the index `along`; `extents` are those of all indices.
    """

    spans: Mapping[str, int]
    begin: Environment
    inner: Environment
    extents: Mapping[str, Extent]
    along: str


@dataclass(frozen=True)
class _BoxSide:
    """The values of a sum of indices in a tile: their number, the first, and a thread's place among them.

    The constant of the first is `least`; sums with others have other places.
    """

    begin: AffineIndex
    inner: AffineIndex
    extent: int
    least: int

    def place(self, index: AffineIndex) -> AffineIndex:
        """The place of a thread's value."""
        return self.inner + (index.constant - self.least)


@dataclass(frozen=True)
class Promotion:
    """The box of elements of a buffer in shared memory that serves some reads of a tile.

    Its axes are the indices that computed subscripts depend on, and then the subscripts that are sums. So an element
    that several such indices find is there several times.
    """

    reads: tuple[ElementRead, ...]
    tile: KernelBuffer
    computed: tuple[str, ...]
    sides: tuple[_BoxSide | None, ...]
    indices: IndexTile

    def of_thread(self, read: ElementRead) -> ElementRead:
        """The element of the box that a thread reads in place of one of the reads."""
        places = [self.indices.inner[name] for name in self.computed]
        for side, index in zip(self.sides, read.subscripts, strict=True):
            if side is not None and isinstance(index, AffineIndex):
                places.append(side.place(index))
        return ElementRead.of(self.tile.name, read.dtype, places)

    def source(self, places: Sequence[AffineIndex]) -> ElementRead:
        """The element that is copied to a place of the box."""
        (first, *_), (own, rest) = self.reads, (places[: len(self.computed)], iter(places[len(self.computed) :]))
        known = {name: self.indices.begin[name] + at for name, at in zip(self.computed, own, strict=True)}
        subscripts: list[Subscript] = []
        for side, one in zip(self.sides, first.subscripts, strict=True):
            subscripts.append(side.begin + next(rest) if side is not None else moved(_expression(one), known))
        return ElementRead.of(first.buffer, first.dtype, subscripts, first.checked)

    def bounds(self, places: Sequence[AffineIndex], buffer: KernelBuffer) -> list[tuple[AffineIndex, Extent]]:
        """Sums and their bounds: below them, the element for a place is one of the buffer, and some thread needs it."""
        found: list[tuple[AffineIndex, Extent]] = []
        for name, at in zip(self.computed, places, strict=False):
            found.append((self.indices.begin[name] + at, self.indices.extents[name]))
        for one, extent in zip(self.source(places).subscripts, buffer.shape, strict=True):
            if isinstance(one, AffineIndex):
                found += [(one, extent), (one * -1, 1)]
        return found


def _expression(subscript: Subscript) -> Expr:
    assert isinstance(subscript, Expr)
    return subscript


def promotions(
    value: Expr,
    tile: IndexTile,
    buffers: Mapping[str, KernelBuffer],
    written: Collection[str],
    rule: PromotionRule,
    most_bytes: int,
) -> list[Promotion]:
    """The boxes that serve the reads of a value in a tile, as many as fit so many bytes, the smallest first.

    None serves reads of a buffer that the kernel has `written`, nor such as are found by subscripts that are computed
    from one. Elements are copied where the value reads them under a condition too, but for those that may not exist.
    """
    groups: dict[tuple[object, ...], list[ElementRead]] = {}
    for read, is_sure in _elements(value):
        if _may_copy(read, is_sure) and not any(one.buffer in written for one in reads(read)):
            groups.setdefault(_kind(read), []).append(read)
    found: list[Promotion] = []
    for members in groups.values():
        distinct = {tuple(map(_subscript_key, one.subscripts)) for one in members}
        box = _box(tuple(members), len(found), tile, buffers[members[0].buffer])
        if box is None or len(distinct) * math.prod(tile.spans.values()) <= box.tile.count:
            continue
        if rule == "reused" or box.computed or any(_is_apart(one, tile, buffers, rule) for one in members):
            found.append(box)
    chosen: list[Promotion] = []
    for one in sorted(found, key=lambda one: one.tile.nbytes):
        if one.tile.nbytes <= most_bytes:
            most_bytes -= one.tile.nbytes
            chosen.append(one)
    return chosen


def _is_apart(read: ElementRead, tile: IndexTile, buffers: Mapping[str, KernelBuffer], rule: PromotionRule) -> bool:
    """True of elements that neighbouring threads read from places that are no neighbours."""
    step = stride(read, tile.along, buffers)
    return step not in ((1,) if rule == "uncoalesced" else (0, 1))


def _elements(value: Expr, is_sure: bool = True) -> Iterator[tuple[ElementRead, bool]]:
    """The elements of a value that are no part of a subscript, and whether no condition has to hold for them."""
    if isinstance(value, ElementRead):
        yield value, is_sure
        return
    late = GUARDED.get(value.template, ())
    for place, operand in enumerate(value.operands):
        yield from _elements(operand, is_sure and place not in late)


def _may_copy(read: ElementRead, is_sure: bool) -> bool:
    """True where a copy fails if and only if the read does: what is looked at is a computed subscript, and always."""
    affine = zip(read.subscripts, read.checked or (False,) * len(read.subscripts), strict=True)
    plain = not any(checked and isinstance(one, AffineIndex) for one, checked in affine)
    return plain and bool(read.subscripts) and (is_sure or not is_risky(read))


def _kind(read: ElementRead) -> tuple[object, ...]:
    """The same for reads that one box serves: subscripts differ by numbers alone."""
    return (
        read.buffer,
        read.checked,
        *((one - one.constant).key if isinstance(one, AffineIndex) else _key(one) for one in read.subscripts),
    )


def _subscript_key(one: Subscript) -> object:
    return one.key if isinstance(one, AffineIndex) else _key(one)


def _key(value: Expr) -> object:
    """The same for values that are made of the same parts in the same way."""
    if isinstance(value, ElementRead):
        return value.buffer, value.checked, *map(_subscript_key, value.subscripts)
    own = value.index.key if isinstance(value, Coordinate) else value.value
    return value.template, value.dtype, own, *map(_key, value.operands)


def _box(members: tuple[ElementRead, ...], number: int, tile: IndexTile, buffer: KernelBuffer) -> Promotion | None:
    """The box of the elements that reads of one kind reach in a tile; None where there is no box of a known size."""
    first = members[0]
    if buffer.is_empty:
        return None
    names = {name for one in first.subscripts if isinstance(one, Expr) for name in indices_of(one)}
    computed = tuple(name for name in tile.spans if name in names)
    sides: list[_BoxSide | None] = []
    for place, one in enumerate(first.subscripts):
        if not isinstance(one, AffineIndex):
            sides.append(None)
            continue
        constants = [index.constant for read in members if isinstance(index := read.subscripts[place], AffineIndex)]
        side = _side(one - one.constant, min(constants), max(constants), tile)
        if side is None:
            return None
        sides.append(side)
    shape = (*(tile.spans[name] for name in computed), *(side.extent for side in sides if side is not None))
    made = KernelBuffer(f"{first.buffer}_{number}", buffer.dtype, shape, "local")
    return Promotion(members, made, computed, tuple(sides), tile)


def _side(index: AffineIndex, least: int, most: int, tile: IndexTile) -> _BoxSide | None:
    """The values of a sum, with constants from the least to the most; None of one with a quotient in it."""
    begin, inner, extent = AffineIndex.number(least), AffineIndex(()), 1 + most - least
    for variable, factor in index.terms:
        if variable.of is not None:
            return None
        if variable.name not in tile.spans:
            begin = begin + AffineIndex(((variable, factor),))
            continue
        reach = factor * (tile.spans[variable.name] - 1)
        begin = begin + tile.begin[variable.name] * factor + min(reach, 0)
        inner = inner + tile.inner[variable.name] * factor - min(reach, 0)
        extent += abs(reach)
    return _BoxSide(begin, inner, extent, least)
