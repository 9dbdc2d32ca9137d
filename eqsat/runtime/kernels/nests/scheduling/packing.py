"""Copies of operands whose elements lie apart along vectors, side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr, number
from eqsat.runtime.kernels.nests.computation import (
    ElementRead,
    KernelBuffer,
    KernelStatement,
    LoopAxis,
    reads,
    rebuilt,
    same_places,
)
from eqsat.runtime.kernels.nests.extents import Extent, fixed, is_free, is_several, largest, number_or_sum, sum_of
from eqsat.runtime.kernels.nests.scheduling.strides import depends, may_pack
from eqsat.runtime.kernels.nests.tree import Assign, Local, Loop, Node

#: Bytes of the largest copy.
MOST_PACKED = 1 << 19


@dataclass(frozen=True)
class Pack:
    """A copy: its buffer of panels as wide as a tile, and the nodes that fill it inside the loops of `entered`.

    One `by_panel` has a buffer of one panel, which is filled for each column of tiles.
    """

    read: ElementRead
    copy: ElementRead
    entered: tuple[str, ...]
    buffer: KernelBuffer
    nodes: tuple[Node, ...]
    by_panel: Callable[[AffineIndex, Extent], list[Node]] | None = None


def packs(
    statement: KernelStatement,
    vector: LoopAxis,
    width: int,
    loops: Sequence[LoopAxis],
    buffers: Mapping[str, KernelBuffer],
    fixed: Collection[str] = (),
    row: LoopAxis | None = None,
    is_near: bool = False,
    mark: str = "",
) -> list[Pack]:
    """The copies that pay, of panels of a width; `loops` are the outer indices in their order.

    Their names have a mark that tells them from those of other statements in the same loops.

    A copy is made inside the first loops that all have other elements, and serves all further ones; none is made of
    what depends on indices that are fixed around the statement. Where tiles are walked down their rows, one panel is
    copied at a time, if no loop around would have it copied again.
    """
    found: list[Pack] = []
    for one in reads(statement.value):
        if not may_pack(one, vector.name, statement, buffers, is_near) or any(depends(one, name) for name in fixed):
            continue
        known = next((pack for pack in found if _same(pack.read, one)), None)
        if known is not None:
            found.append(replace(known, read=one, nodes=(), by_panel=None))
            continue
        again = any(is_several(axis.extent) and not depends(one, axis.name) for axis in loops)
        by_panel = row is not None and not depends(one, row.name) and not again and not fixed
        made = _pack(one, statement, vector, width, loops, f"{mark}_p{len(found)}", by_panel)
        if made is not None:
            found.append(made)
    return found


def _same(a: ElementRead, b: ElementRead) -> bool:
    return a.buffer == b.buffer and same_places(a.subscripts, b.subscripts)


def _pack(
    read: ElementRead,
    statement: KernelStatement,
    vector: LoopAxis,
    width: int,
    loops: Sequence[LoopAxis],
    mark: str,
    by_panel: bool,
) -> Pack | None:
    """A copy of all panels, or of one that is made anew for each column of tiles."""
    entered = tuple(axis.name for axis in takewhile(lambda axis: axis.extent == 1 or depends(read, axis.name), loops))
    inner = [
        axis for axis in statement.axes if axis is not vector and axis.name not in entered and depends(read, axis.name)
    ]
    if any(is_free(axis.extent) for axis in (*inner, *(() if by_panel else (vector,)))):
        return None  # no array of a function has a size of a call
    panels = () if by_panel else (-(-vector.count // width),)
    shape = (*panels, *(axis.count for axis in inner), width)
    buffer = KernelBuffer(f"{read.buffer}{mark}", read.dtype, shape, "local")
    if buffer.nbytes > MOST_PACKED:
        return None
    along = vector.variable
    panel = () if by_panel else (along // width,)
    copy = ElementRead.of(buffer.name, read.dtype, (*panel, *(axis.variable for axis in inner), along % width))
    fill = _Fill(read, buffer, vector, inner)
    if by_panel:
        return Pack(read, copy, entered, buffer, (), fill.panel)
    return Pack(read, copy, entered, buffer, (Local(buffer), *fill.panels(width)))


@dataclass(frozen=True)
class _Fill:
    """Loops that fill a copy, with zeros behind the last element."""

    read: ElementRead
    buffer: KernelBuffer
    vector: LoopAxis
    inner: Sequence[LoopAxis]

    def panel(self, column: AffineIndex, limit: Extent) -> list[Node]:
        """The one panel at a column, of which `limit` elements are there."""
        return [Local(self.buffer), *self._padded(column, limit, fixed(self.buffer.shape[-1]), ())]

    def panels(self, width: int) -> list[Node]:
        """All panels."""
        whole, rest = divmod(self.vector.count, width)
        nodes: list[Node] = []
        if whole:
            tile = f"{self.vector.name}_t"
            first = AffineIndex.variable(tile, whole)
            nodes.append(Loop(tile, whole, tuple(self._padded(first * width, width, width, (first,)))))
        if rest:
            last = AffineIndex.number(whole)
            nodes += self._padded(last * width, rest, width, (last,))
        return nodes

    def _padded(self, first: AffineIndex, count: Extent, width: int, panel: tuple[AffineIndex, ...]) -> list[Node]:
        nodes = [self._lanes(self.read, first, 0, count, panel)]
        empty = number_or_sum(sum_of(count) * -1 + width)
        if empty != 0:
            nodes.append(self._lanes(number(0, self.read.dtype), first, count, empty, panel))
        return nodes

    def _lanes(
        self, value: Expr, first: AffineIndex, start: Extent, count: Extent, panel: tuple[AffineIndex, ...]
    ) -> Node:
        """A value at `count` elements of a panel, from `start` on, for all other indices."""
        name = f"{self.vector.name}_l"
        lane = AffineIndex.variable(name, min(largest(count), fixed(self.buffer.shape[-1]))) + start
        place = {axis.name: AffineIndex.variable(f"{axis.name}_l", largest(axis.extent)) for axis in self.inner}
        target = ElementRead.of(self.buffer.name, self.read.dtype, (*panel, *place.values(), lane))
        node: Node = Loop(name, count, (Assign(target, value, "", {**place, self.vector.name: first + lane}),))
        for axis in reversed(self.inner):
            node = Loop(f"{axis.name}_l", axis.extent, (node,))
        return node


def packed(value: Expr, made: Sequence[Pack]) -> Expr:
    """A value that reads the copies."""

    def change(one: Expr) -> Expr | None:
        if isinstance(one, ElementRead):
            return next((pack.copy for pack in made if _same(pack.read, one)), None)
        return None

    return rebuilt(value, change)
