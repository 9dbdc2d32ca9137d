"""Copies of operands whose elements lie apart along vectors, side by side."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr, number
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer, KernelStatement, LoopAxis, reads, rebuilt
from eqsat.runtime.kernels.nests.scheduling.strides import depends, may_pack
from eqsat.runtime.kernels.nests.tree import Assign, Local, Loop, Node

#: Bytes of the largest copy.
MOST_PACKED = 1 << 18


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
    by_panel: Callable[[AffineIndex, int], list[Node]] | None = None


def packs(
    statement: KernelStatement,
    vector: LoopAxis,
    width: int,
    loops: Sequence[LoopAxis],
    buffers: Mapping[str, KernelBuffer],
    fixed: Collection[str] = (),
    row: LoopAxis | None = None,
) -> list[Pack]:
    """The copies that pay, of panels of a width; `loops` are the outer indices in their order.

    A copy is made inside the first loops that all have other elements, and serves all further ones; none is made of
    what depends on indices that are fixed around the statement. Where tiles are walked down their rows, one panel is
    copied at a time, if no loop around would have it copied again.
    """
    found: list[Pack] = []
    for one in reads(statement.value):
        if not may_pack(one, vector.name, statement, buffers) or any(depends(one, name) for name in fixed):
            continue
        known = next((pack for pack in found if _same(pack.read, one)), None)
        if known is not None:
            found.append(replace(known, read=one, nodes=(), by_panel=None))
            continue
        again = any(axis.extent > 1 and not depends(one, axis.name) for axis in loops)
        by_panel = row is not None and not depends(one, row.name) and not again and not fixed
        make = _panel if by_panel else _pack
        made = make(one, statement, vector, width, loops, len(found))
        if made is not None:
            found.append(made)
    return found


def _same(a: ElementRead, b: ElementRead) -> bool:
    return a.buffer == b.buffer and a.subscripts == b.subscripts


def _pack(
    read: ElementRead,
    statement: KernelStatement,
    vector: LoopAxis,
    width: int,
    loops: Sequence[LoopAxis],
    count: int,
) -> Pack | None:
    entered: list[str] = []
    for axis in loops:
        if axis.extent > 1 and not depends(read, axis.name):
            break
        entered.append(axis.name)
    inner = [
        axis for axis in statement.axes if axis is not vector and axis.name not in entered and depends(read, axis.name)
    ]
    panels = -(-vector.extent // width)
    shape = (panels, *(axis.extent for axis in inner), width)
    buffer = KernelBuffer(f"{read.buffer}_p{count}", read.dtype, shape, "local")
    if buffer.nbytes > MOST_PACKED:
        return None
    along = vector.variable
    copy = ElementRead.of(buffer.name, read.dtype, (along // width, *(axis.variable for axis in inner), along % width))
    nodes = [*_panels(read, copy, vector, width, inner)]
    return Pack(read, copy, tuple(entered), buffer, (Local(buffer), *nodes))


def _panel(
    read: ElementRead,
    statement: KernelStatement,
    vector: LoopAxis,
    width: int,
    loops: Sequence[LoopAxis],
    count: int,
) -> Pack | None:
    """A copy of one panel, made anew for each column of tiles."""
    outer = [axis.name for axis in loops]
    inner = [axis for axis in statement.axes if axis is not vector and axis.name not in outer]
    inner = [axis for axis in inner if depends(read, axis.name)]
    shape = (*(axis.extent for axis in inner), width)
    buffer = KernelBuffer(f"{read.buffer}_p{count}", read.dtype, shape, "local")
    if buffer.nbytes > MOST_PACKED:
        return None
    copy = ElementRead.of(buffer.name, read.dtype, (*(axis.variable for axis in inner), vector.variable % width))

    def nodes(column: AffineIndex, limit: int) -> list[Node]:
        made: list[Node] = [Local(buffer)]
        for start, lanes, value in ((0, limit, read), (limit, width - limit, number(0, read.dtype))):
            if not lanes:
                continue
            lane = AffineIndex.variable(f"{vector.name}_l", lanes) + start
            place = {axis.name: AffineIndex.variable(f"{axis.name}_l", axis.extent) for axis in inner}
            target = ElementRead.of(buffer.name, read.dtype, (*place.values(), lane))
            assign = Assign(target, value, "", {**place, vector.name: column + lane})
            node: Node = Loop(f"{vector.name}_l", lanes, (assign,))
            for axis in reversed(inner):
                node = Loop(f"{axis.name}_l", axis.extent, (node,))
            made.append(node)
        return made

    return Pack(read, copy, tuple(outer), buffer, (), nodes)


def _panels(
    read: ElementRead, copy: ElementRead, vector: LoopAxis, width: int, inner: Sequence[LoopAxis]
) -> list[Node]:
    """Loops that fill whole panels, and those that fill the last one, with zeros behind the last element."""
    whole, rest = divmod(vector.extent, width)
    nodes: list[Node] = []
    for panel, extent, lanes, value in (
        (None, whole, width, read),
        (whole, 1, rest, read),
        (whole, 1, width - rest if rest else 0, number(0, read.dtype)),
    ):
        if not extent or not lanes or (panel is not None and not rest):
            continue
        lane, tile = f"{vector.name}_l", f"{vector.name}_t"
        first = AffineIndex.variable(tile, extent) if panel is None else AffineIndex.number(panel)
        start = rest if isinstance(value, Expr) and not isinstance(value, ElementRead) else 0
        along = first * width + AffineIndex.variable(lane, lanes) + start
        place = {axis.name: AffineIndex.variable(f"{axis.name}_l", axis.extent) for axis in inner}
        target = ElementRead.of(
            copy.buffer, copy.dtype, (first, *place.values(), AffineIndex.variable(lane, lanes) + start)
        )
        at = {**place, vector.name: along}
        node: Node = Loop(lane, lanes, (Assign(target, value, "", at),))
        for axis in reversed(inner):
            node = Loop(f"{axis.name}_l", axis.extent, (node,))
        nodes.append(Loop(tile, extent, (node,)) if panel is None else node)
    return nodes


def packed(value: Expr, made: Sequence[Pack]) -> Expr:
    """A value that reads the copies."""

    def change(one: Expr) -> Expr | None:
        if isinstance(one, ElementRead):
            return next((pack.copy for pack in made if _same(pack.read, one)), None)
        return None

    return rebuilt(value, change)
