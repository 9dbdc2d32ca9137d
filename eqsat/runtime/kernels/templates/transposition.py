"""Kernels in which an operand is read along one axis and the result written along another: through shared memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eqsat.runtime.kernels.body import Access, KernelBody, entry_name
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex, Coords, offset, unflattened
from eqsat.runtime.kernels.expressions.expression import STORED
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.source import KernelSource

#: Rows and columns of a tile, and the rows of a block's threads.
TILE = 32
ROWS = 8
#: Fewer elements than these on an axis leave most of a tile empty.
LEAST_SIZE = 8
LEAST_COUNT = 2048


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


def generate_transposition(group: Group) -> KernelSource | None:
    """The kernel of a group of results of one shape; None where none of its large operands lies across the result."""
    names = list(group.results)
    shape = group.results[names[0]].shape
    if math.prod(shape) < LEAST_COUNT:
        return None
    walk = _walk(group, names, shape)
    return None if walk is None else _Tiles(group, names, shape, walk).source()


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
    return _MergedAxes(merged, sizes, to, along, tiled)


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
    """The kernel of one walk: a block copies a tile of every such operand, waits, and makes the tile's results."""

    def __init__(self, group: Group, names: Sequence[str], shape: Sequence[int], walk: _MergedAxes) -> None:
        self.group, self.names, self.shape, self.walk = group, names, shape, walk
        self.body = KernelBody(group)
        self.across = -(-walk.sizes[walk.along] // TILE)
        self.down = -(-walk.sizes[walk.to] // TILE)
        self.others = [i for i in range(len(walk.sizes)) if i not in (walk.to, walk.along)]
        self.rest = math.prod(walk.sizes[i] for i in self.others)

    def source(self) -> KernelSource:
        """The whole kernel."""
        writer, walk = self.body.writer, self.walk
        writer.comment(f"Tiles of {TILE} × {TILE}: read along one axis, written along another.")
        # The place within a tile is the thread's; p and q are coordinates along the operands and the results.
        blocks = self.across * self.down * self.rest
        writer.line("const int tile = blockIdx.x;")
        tile = AffineIndex.variable("tile", blocks)
        p, q = tile % self.across, tile // self.across % self.down
        coords = self._coords(tile // (self.across * self.down))
        starts = [writer.index(p * TILE), writer.index(q * TILE)]
        tiles = [self._declared(access) for access in walk.tiled]
        writer.line("#pragma unroll")
        with writer.block(f"for (int row = threadIdx.y; row < {TILE}; row += {ROWS})"):
            self._place(f"{starts[0]} + threadIdx.x", f"{starts[1]} + row")
            with writer.block(f"if (p < {walk.sizes[walk.along]} && q < {walk.sizes[walk.to]})"):
                for access, name in zip(walk.tiled, tiles, strict=True):
                    where = writer.index(self._moved(access.offset, coords))
                    writer.line(f"{name}[row][threadIdx.x] = {self.body.pointer(access.value)}[{where}];")
        writer.line("__syncthreads();")
        writer.line("#pragma unroll")
        with writer.block(f"for (int row = threadIdx.y; row < {TILE}; row += {ROWS})"):
            self._place(f"{starts[0]} + row", f"{starts[1]} + threadIdx.x")
            with writer.block(f"if (p < {walk.sizes[walk.along]} && q < {walk.sizes[walk.to]})"):
                for access, name in zip(walk.tiled, tiles, strict=True):
                    at = tuple(self._moved(c, coords) for c in access.coords)
                    self.body.hold(replace(access, coords=at), f"{name}[threadIdx.x][row]")
                self.body.store_at(self.group.results, coords)
        return self.body.source(entry_name(self.group), (blocks, 1, 1), (TILE, ROWS, 1))

    def _declared(self, access: Access) -> str:
        """Shared memory for a tile; rows are longer by a word, so that columns lie in different banks."""
        dtype = self.group.operands[access.value].dtype
        name = self.body.writer.name("tile")
        self.body.writer.line(f"__shared__ {STORED[dtype]} {name}[{TILE}][{TILE + max(4 // dtype.itemsize, 1)}];")
        return name

    def _place(self, p: str, q: str) -> None:
        self.body.writer.line(f"const int p = {p};")
        self.body.writer.line(f"const int q = {q};")

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

    def _moved(self, index: AffineIndex, coords: Coords) -> AffineIndex:
        """A sum over the results' coordinates, in terms of p and q."""
        moved = AffineIndex.number(index.constant)
        for variable, factor in index.terms:
            moved = moved + coords[int(variable.name[1:])] * factor
        return moved
