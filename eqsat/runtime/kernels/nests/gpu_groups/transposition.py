"""Schedules of a group in which an operand is read along one axis and the result written along another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.runtime.kernels.body import Access, KernelBody
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex, Coords, offset, unflattened
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer
from eqsat.runtime.kernels.nests.gpu_groups.results import THREAD, THREAD_ROW, block_of
from eqsat.runtime.kernels.nests.gpu_groups.stores import local_name, made
from eqsat.runtime.kernels.nests.gpu_options import MOST_SHARED
from eqsat.runtime.kernels.nests.tree import Assign, Barrier, GpuKernel, Guard, Local, Named, Node, Promoted, ThreadLoop

#: Rows and columns of a tile, and the rows of a block's threads.
TILE = 32
ROWS = 8
#: Fewer elements than these on an axis leave most of a tile empty.
LEAST_SIZE = 8
LEAST_COUNT = 2048
_PURPOSE = f"Tiles of {TILE} × {TILE}: read along one axis, written along another."


@dataclass(frozen=True)
class _MergedAxes:
    """The axes of the results, neighbours that every access walks alike as one.

    `merged` holds, for each walked axis, the axes of the results it is made of. The results lie along `to`, and the
    operands read through tiles along `along`.
    """

    merged: tuple[tuple[int, ...], ...]
    sizes: tuple[int, ...]
    to: int
    along: int
    tiled: tuple[Access, ...]


def transposing_kernel(group: Group) -> GpuKernel | None:
    """The kernel of a group of results of one shape; None where none of its large operands lies across the result."""
    names = list(group.results)
    shapes = {view.shape for view in group.results.values()}
    if len(shapes) != 1 or math.prod(shape := shapes.pop()) < LEAST_COUNT:
        return None
    walk = _walk(group, names, shape)
    return None if walk is None else _Tiles(group, shape, walk).kernel()


def _walk(group: Group, names: Sequence[str], shape: Sequence[int]) -> _MergedAxes | None:
    coords = tuple(AffineIndex.variable(f"c{axis}", size) for axis, size in enumerate(shape))
    probe = KernelBody(group)
    for name in names:
        probe.value(name, coords)
    places = [a.offset for a in probe.accesses] + [offset(coords, group.results[n].strides) for n in names]
    axes = {v for c in coords for v, _ in c.terms}
    reached = [*places, *(c for a in probe.accesses for c in a.coords)]
    if any(a.conditional for a in probe.accesses) or any(v not in axes for p in reached for v, _ in p.terms):
        return None
    merged = _merged(shape, places)
    sizes = tuple(math.prod(shape[a] for a in axes) for axes in merged)
    lead = [axes[-1] for axes in merged]
    written = [p.coefficient(f"c{a}") for a in lead for p in [places[len(probe.accesses)]]]
    large = [a for a in probe.accesses if group.operands[a.value].count * 2 >= math.prod(shape)]
    to = next((i for i, c in enumerate(written) if c == 1 and sizes[i] > 1), None)
    if to is None:
        return None
    read = {a: next((i for i, x in enumerate(lead) if a.offset.coefficient(f"c{x}") == 1), to) for a in large}
    along = next((i for i in read.values() if i != to), None)
    if along is None or min(sizes[along], sizes[to]) < LEAST_SIZE or max(sizes) >= INT_LIMIT - TILE:
        return None
    tiled = tuple({(a.value, a.coords): a for a, i in read.items() if i == along}.values())
    return _MergedAxes(merged, sizes, to, along, _shareable(tiled, group))


def _shareable(tiled: Sequence[Access], group: Group) -> tuple[Access, ...]:
    """The accesses whose tiles a block can hold, the first ones; others are read across, as any operand may be."""
    held, left = list[Access](), MOST_SHARED
    for access in tiled:
        left -= _tile(access, group, len(held)).nbytes
        if left < 0:
            break
        held.append(access)
    return tuple(held)


def _tile(access: Access, group: Group, number: int) -> KernelBuffer:
    """The tile of an operand in shared memory; rows are longer by a word, so that columns lie in different banks."""
    dtype = group.operands[access.value].dtype
    return KernelBuffer(local_name(group, f"tile_{number}"), dtype, (TILE, TILE + max(4 // dtype.itemsize, 1)), "local")


def _merged(shape: Sequence[int], places: Sequence[AffineIndex]) -> tuple[tuple[int, ...], ...]:
    """The axes of more than one element, put together where every place goes on from one to the next."""
    merged: list[tuple[int, ...]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        last = merged[-1][-1] if merged else None
        if last is not None and all(p.coefficient(f"c{last}") == size * p.coefficient(f"c{axis}") for p in places):
            merged[-1] = (*merged[-1], axis)
        else:
            merged.append((axis,))
    return tuple(merged)


class _Tiles:
    """The kernel of one walk: a block copies a tile of every such operand, waits, and makes the tile's results.

    p and q are coordinates along the operands and the results.
    """

    def __init__(self, group: Group, shape: Sequence[int], walk: _MergedAxes) -> None:
        self.group, self.shape, self.walk = group, shape, walk
        self.across = -(-walk.sizes[walk.along] // TILE)
        self.down = -(-walk.sizes[walk.to] // TILE)
        self.others = [i for i in range(len(walk.sizes)) if i not in (walk.to, walk.along)]
        self.rest = math.prod(walk.sizes[i] for i in self.others)
        self.blocks = self.across * self.down * self.rest
        self.tile = AffineIndex.variable("tile", self.blocks)
        self.coords = self._coords(self.tile // (self.across * self.down))

    def kernel(self) -> GpuKernel:
        """The whole kernel."""
        column, row = AffineIndex.variable(THREAD, TILE), AffineIndex.variable("row", TILE)
        locals_: list[Node] = []
        copies: list[Node] = []
        reads: list[Node] = []
        for number, access in enumerate(self.walk.tiled):
            buffer = _tile(access, self.group, number)
            dtype = buffer.dtype
            at = tuple(self._moved(c) for c in access.coords)
            element = ElementRead.of(access.value, dtype, at)
            locals_.append(Local(buffer, is_shared=True))
            copies.append(Assign(ElementRead.of(buffer.name, dtype, (row, column)), element))
            reads.append(Promoted(element, ElementRead.of(buffer.name, dtype, (column, row))))
        stores = [made(self.group, name, self.coords) for name in self.group.results]
        nodes: list[Node] = [
            Named("tile", block_of(self.blocks)),
            Named("tile_p", self.tile % self.across),
            Named("tile_q", self.tile // self.across % self.down),
            *locals_,
            self._rounds(column, row, copies),
            Barrier(),
            self._rounds(row, column, [*reads, *stores]),
        ]
        return GpuKernel(tuple(nodes), self.blocks, (TILE, ROWS), _PURPOSE)

    def _rounds(self, along: AffineIndex, to: AffineIndex, body: Sequence[Node]) -> Node:
        """A loop in which a block's threads go over the rows of a tile: statements for each of its places."""
        walk = self.walk
        # NVRTC takes fewer registers with the conditions of full tiles, and the number of the only tile: a size that is
        # larger than what there is keeps them.
        p, q = (AffineIndex.variable(name, n * TILE + 1) for name, n in (("p", self.across), ("q", self.down)))
        nodes = (
            Named("p", AffineIndex.variable("tile_p", self.across + 1) * TILE + along),
            Named("q", AffineIndex.variable("tile_q", self.down + 1) * TILE + to),
            Guard(((p, walk.sizes[walk.along]), (q, walk.sizes[walk.to])), tuple(body)),
        )
        return ThreadLoop("row", AffineIndex.variable(THREAD_ROW, ROWS), TILE, ROWS, nodes)

    def _coords(self, rest: AffineIndex) -> Coords:
        """The results' coordinates of p and q."""
        walk = self.walk
        outer = iter(unflattened(rest, [walk.sizes[i] for i in self.others]))
        coords = [AffineIndex.number(0)] * len(self.shape)
        for place, axes in enumerate(walk.merged):
            if place in (walk.to, walk.along):
                position = AffineIndex.variable("q" if place == walk.to else "p", walk.sizes[place])
            else:
                position = next(outer)
            for axis, coord in zip(axes, unflattened(position, [self.shape[a] for a in axes]), strict=True):
                coords[axis] = coord
        return tuple(coords)

    def _moved(self, index: AffineIndex) -> AffineIndex:
        """A sum over the results' coordinates, in terms of p and q."""
        moved = AffineIndex.number(index.constant)
        for variable, factor in index.terms:
            moved = moved + self.coords[int(variable.name[1:])] * factor
        return moved
