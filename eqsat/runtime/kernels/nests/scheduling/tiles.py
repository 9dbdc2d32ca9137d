"""Tiles in registers: a statement over floats, several rows of several vectors at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer, LoopAxis, reads
from eqsat.runtime.kernels.nests.extents import Extent, largest, number_or_sum, sum_of
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.printing.vectors import is_chosen, part_bytes
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain, following_nodes
from eqsat.runtime.kernels.nests.scheduling.packing import Pack, packed, packs
from eqsat.runtime.kernels.nests.scheduling.strides import row_axis, stride, vector_axis
from eqsat.runtime.kernels.nests.scheduling.values import neutral, own_element
from eqsat.runtime.kernels.nests.tree import Assign, LaneFold, Local, Loop, Node, Prefetch, Vector

#: Vectors that a chain of statements without reductions holds, at most.
_MOST_HELD = 12
#: Bytes of integers from which vectors of them along a reduced index are added up.
_FOLDED_BYTES = 4
#: An index that is fixed by loops around a statement: its first value, and how many it has.
Box = Mapping[str, tuple[AffineIndex, int]]


@dataclass(frozen=True)
class _Tile:
    """Rows and vectors, from where on; `limit` elements of the last vector are there."""

    row: AffineIndex
    rows: int
    column: AffineIndex
    vectors: int
    limit: Extent


@dataclass
class TileSchedule:
    """The loops of a chain; copies that serve all values of fixed indices are in `before`, named with a mark."""

    chain: StatementChain
    buffers: Mapping[str, KernelBuffer]
    options: MappingOptions
    box: Box
    mark: str = ""

    def __post_init__(self) -> None:
        statement = self.chain.first
        self.dtype = statement.value.dtype
        # Of integers as many as vectors of the largest ones hold, that they are computed of.
        self.smallest, largest_ = (self.dtype.itemsize,) * 2 if self.dtype.is_float else part_bytes(statement.value)
        self.lanes = max(self.options.vector_bytes // largest_, 1)
        axes = tuple(
            replace(axis, extent=self.box[axis.name][1]) if axis.name in self.box else axis for axis in statement.axes
        )
        self.statement = replace(statement, axes=axes)
        number = self.options.vector_axis
        self.vector = vector_axis(self.statement, self.buffers, self.lanes, number, self.box)
        self.row = row_axis(self.statement, self.vector, self.buffers) if self.vector is not None else None
        self.before: list[Node] = []
        self._environment = {name: first for name, (first, _) in self.box.items()}

    def nodes(self) -> list[Node]:
        """The loops; none where no index runs along vectors, or there is nothing to compute."""
        vector = self.vector
        if vector is None or self.statement.is_empty:
            return []
        vectors = min(self.options.vectors, -(-largest(vector.extent) // self.lanes))
        if not self.statement.reduced:
            # Values of a long chain fill the registers with one vector each.
            vectors = max(min(vectors, _MOST_HELD // (1 + len(self.chain.following))), 1)
        self.width = vectors * self.lanes
        outer = [axis for axis in self.statement.kept if axis is not vector and axis is not self.row]
        free = [axis for axis in outer if axis.name not in self.box]
        self.packs: list[Pack] = []
        if self.options.pack and not vector.is_reduced:
            row = self.row if self.options.is_column_major else None
            near = self.options.pack_near and bool(self.statement.reduced)
            self.packs = packs(self.statement, vector, self.width, free, self.buffers, self.box, row, near, self.mark)
        self.value = packed(self.statement.value, self.packs)
        if not self.dtype.is_float and not self._pays(vector):
            return []
        self.before = [node for pack in self.packs if not pack.entered for node in pack.nodes]
        made = self._outer(outer, [])
        if not self.box:
            made, self.before = [*self.before, *made], []
        return made

    def _pays(self, vector: LoopAxis) -> bool:
        """True where tiles of integers are faster than vectors that the compiler makes of plain loops.

        These are as fast where elements that are reduced lie side by side, but for conditions, and faster for small
        ones: what is left of a row in vectors of many lanes is long. Nothing is picked up from places that lie apart.
        """
        near = all(
            one.buffer not in self.buffers or stride(one, vector.name, self.buffers) in (0, 1)
            for one in reads(self.value)
        )
        if vector.is_reduced:
            alike = self.smallest == self.dtype.itemsize >= _FOLDED_BYTES
            return near and alike and is_chosen(self.value)
        last = self.statement.reduced[-1]
        plain = all(stride(one, last.name, self.buffers) in (0, 1) for one in reads(self.statement.value))
        return near and not plain and largest(vector.extent) >= self.lanes

    def _outer(self, axes: Sequence[LoopAxis], entered: Sequence[str]) -> list[Node]:
        """Loops over the indices that are not of a tile, with the copies that are made inside."""
        if not axes:
            return self._tiles()
        axis, *more = axes
        if axis.name in self.box:
            first, rows = self.box[axis.name]
            inner = f"{axis.name}_f"
            self._environment[axis.name] = first + AffineIndex.variable(inner, rows)
            return [Loop(inner, rows, tuple(self._outer(more, entered)))]
        entered = [*entered, axis.name]
        ready = [pack for pack in self.packs if list(pack.entered) == entered]
        body = [*(node for pack in ready for node in pack.nodes), *self._outer(more, entered)]
        return [Loop(axis.name, axis.extent, tuple(body))]

    def _tiles(self) -> list[Node]:
        assert self.vector is not None
        if self.vector.is_reduced:
            return self._rows(lambda row, rows: self._folded(row, rows))
        if self.options.is_column_major:
            return self._columns(self._column_of_tiles)
        return self._rows(
            lambda row, rows: self._columns(
                lambda column, vectors, limit: self._tile(_Tile(row, rows, column, vectors, limit))
            )
        )

    def _column_of_tiles(self, column: AffineIndex, vectors: int, limit: Extent) -> list[Node]:
        """The tiles of all rows at some vectors, after the copies for these."""
        copies = [node for pack in self.packs if pack.by_panel for node in pack.by_panel(column, limit)]
        tiles = self._rows(lambda row, rows: self._tile(_Tile(row, rows, column, vectors, limit)))
        return [*copies, *tiles]

    def _rows(self, body: Callable[[AffineIndex, int], list[Node]]) -> list[Node]:
        """Loops over tiles of rows, as few as possible and as even, and what is left of them."""
        row = self.row
        if row is None:
            return body(AffineIndex(()), 1)
        base = self.box[row.name][0] if row.name in self.box else AffineIndex(())
        if isinstance(row.extent, AffineIndex):
            return _split_free(row.name, row.extent, self.options.rows, lambda at, rows: body(base + at, rows))
        tiles = -(-row.extent // self.options.rows)
        return _split(row, -(-row.extent // tiles), lambda at, rows: body(base + at, rows))

    def _columns(self, body: Callable[[AffineIndex, int, Extent], list[Node]]) -> list[Node]:
        """Loops over tiles of vectors, and what is left of them: of a free extent one vector at a time."""
        assert self.vector is not None
        extent = self.vector.extent
        if isinstance(extent, AffineIndex):
            whole, left, name = extent // self.width, extent % self.width, f"{self.vector.name}_t"
            at = AffineIndex.variable(name, largest(whole)) * self.width
            count = (left + (self.lanes - 1)) // self.lanes
            along = AffineIndex.variable(name, self.width // self.lanes) * self.lanes
            return [
                Loop(name, whole, tuple(body(at, self.width // self.lanes, self.width))),
                Loop(name, count, tuple(body(whole * self.width + along, 1, left - along))),
            ]
        return _split(self.vector, self.width, lambda at, rest: body(at, -(-rest // self.lanes), rest))

    def _at(self, tile: _Tile) -> dict[str, AffineIndex]:
        """The indices of an element in a tile."""
        at = dict(self._environment)
        if self.row is not None:
            at[self.row.name] = tile.row + self._row(tile)
        if self.vector is not None and not self.vector.is_reduced:
            at[self.vector.name] = tile.column + self._column(tile) * self.lanes + self._lane()
        return at

    def _row(self, tile: _Tile) -> AffineIndex:
        return AffineIndex.variable(f"{self.row.name}_u", tile.rows) if self.row is not None else AffineIndex(())

    def _column(self, tile: _Tile) -> AffineIndex:
        assert self.vector is not None
        return AffineIndex.variable(f"{self.vector.name}_u", tile.vectors)

    def _lane(self) -> AffineIndex:
        assert self.vector is not None
        return AffineIndex.variable(f"{self.vector.name}_l", self.lanes)

    def _register(self, name: str, tile: _Tile) -> tuple[Local, ElementRead]:
        buffer = KernelBuffer(name, self.dtype, (tile.rows, tile.vectors, self.lanes), "local")
        place = (self._row(tile), self._column(tile), self._lane())
        return Local(buffer, True, self.lanes), ElementRead.of(name, self.dtype, place)

    def _each(self, tile: _Tile, *body: Assign) -> Node:
        """Assignments for every vector of a tile, written out."""
        assert self.vector is not None
        node: Node = Vector(f"{self.vector.name}_l", self.lanes, self._column(tile) * self.lanes, tile.limit, body)
        node = Loop(f"{self.vector.name}_u", tile.vectors, (node,), "unrolled")
        return Loop(f"{self.row.name}_u", tile.rows, (node,), "unrolled") if self.row is not None else node

    def _tile(self, tile: _Tile) -> list[Node]:
        statement, at = self.statement, self._at(tile)
        local, register = self._register("acc", tile)
        target = own_element(self.chain.first)
        nodes: list[Node] = [local]
        if statement.reduced:
            start = neutral(statement.reduction, self.dtype) if statement.is_fresh else target
            nodes.append(self._each(tile, Assign(register, start, "", at)))
            update = self._each(tile, Assign(register, self.value, statement.reduction, at))
            nodes += _reduced(statement.reduced, (*self._fetched(tile), update), self.options.unroll)
        else:
            nodes.append(self._each(tile, Assign(register, self.value, "", at)))
            if statement.reduction and not statement.is_fresh:
                nodes.append(self._each(tile, Assign(register, target, statement.reduction, at)))
        return [*nodes, *self._stored(register, tile, at)]

    def _fetched(self, tile: _Tile) -> list[Node]:
        """Hints for what later rounds of the innermost reduced loop read of memory, where that lies close behind."""
        vector, inner = self.vector, self.statement.reduced[-1]
        if not self.options.prefetch or vector is None:
            return []
        found = dict.fromkeys(
            one
            for one in reads(self.value)
            if one.buffer in self.buffers  # copies are in the cache
            and stride(one, vector.name, self.buffers) == 1
            and 0 < (stride(one, inner.name, self.buffers) or 0) <= self.width
        )
        at = {**self._at(tile), vector.name: tile.column + self._column(tile) * self.lanes}
        hints = tuple(Prefetch(one, self.options.prefetch, at) for one in found)
        return [Loop(f"{vector.name}_u", tile.vectors, hints, "unrolled")] if hints else []

    def _stored(self, register: ElementRead, tile: _Tile, at: Mapping[str, AffineIndex]) -> list[Node]:
        """The statements that follow, on registers, and the stores of targets."""
        return following_nodes(
            self.chain, register, lambda name: self._register(name, tile), lambda one: self._each(tile, one), at
        )

    def _folded(self, row: AffineIndex, rows: int) -> list[Node]:
        """A tile of rows whose vectors run along a reduced index, and are added up in the end."""
        statement, vector = self.statement, self.vector
        assert vector is not None
        wide = largest(vector.extent) // self.lanes
        tile = _Tile(row, rows, AffineIndex(()), min(self.options.vectors, max(wide, 1)), 1 << 62)
        self.width = tile.vectors * self.lanes
        extent = sum_of(vector.extent)
        rounds, left = extent // self.width, extent % self.width
        scalar = replace(tile, vectors=1)
        at = self._at(tile)
        local, lanes = self._register("lanes", tile)
        total_buffer = KernelBuffer("acc", self.dtype, (rows, 1), "local")
        total = ElementRead.of("acc", self.dtype, (self._row(tile), AffineIndex(())))
        start = neutral(statement.reduction, self.dtype)
        begin = start if statement.is_fresh else own_element(self.chain.first)
        nodes: list[Node] = [Local(total_buffer, True), self._scalars(scalar, Assign(total, begin, "", at))]
        body: list[Node] = []
        has_vectors = not rounds.is_number or rounds.constant > 0
        if has_vectors:
            along = AffineIndex.variable(f"{vector.name}_t", largest(number_or_sum(rounds))) * self.width
            place = {**at, vector.name: along + self._column(tile) * self.lanes + self._lane()}
            nodes += [local, self._each(tile, Assign(lanes, start, "", at))]
            update = self._each(tile, Assign(lanes, self.value, statement.reduction, place))
            body.append(Loop(f"{vector.name}_t", number_or_sum(rounds), (update,), is_reduced=True))
        if not left.is_number or left.constant > 0:
            rest = AffineIndex.variable(f"{vector.name}_t", largest(number_or_sum(left))) + rounds * self.width
            one = self._scalars(scalar, Assign(total, self.value, statement.reduction, {**at, vector.name: rest}))
            body.append(Loop(f"{vector.name}_t", number_or_sum(left), (one,), is_reduced=True))
        others = [axis for axis in statement.reduced if axis is not vector]
        nodes += _reduced(others, tuple(body), 1)
        if has_vectors:
            fold = LaneFold(total, lanes, statement.reduction, at)
            node: Node = Loop(f"{vector.name}_u", tile.vectors, (fold,), "unrolled")
            row_name = self.row.name if self.row is not None else ""
            nodes.append(Loop(f"{row_name}_u", rows, (node,), "unrolled") if row_name else node)
        return [*nodes, *self._stored_scalars(total, scalar, at)]

    def _scalars(self, tile: _Tile, body: Assign) -> Node:
        return Loop(f"{self.row.name}_u", tile.rows, (body,), "unrolled") if self.row is not None else body

    def _stored_scalars(self, total: ElementRead, tile: _Tile, at: Mapping[str, AffineIndex]) -> list[Node]:
        def register(name: str) -> tuple[Node, ElementRead]:
            buffer = KernelBuffer(name, self.dtype, (tile.rows, 1), "local")
            return Local(buffer, True), ElementRead.of(name, self.dtype, (self._row(tile), AffineIndex(())))

        return following_nodes(self.chain, total, register, lambda one: self._scalars(tile, one), at)


def _split(axis: LoopAxis, size: int, body: Callable[[AffineIndex, int], list[Node]]) -> list[Node]:
    """A loop over whole tiles of an index, and the rest of it."""
    whole, rest = divmod(axis.count, size)
    nodes: list[Node] = []
    if whole == 1:
        nodes += body(AffineIndex(()), size)
    elif whole:
        tile = f"{axis.name}_t"
        nodes.append(Loop(tile, whole, tuple(body(AffineIndex.variable(tile, whole) * size, size))))
    if rest:
        nodes += body(AffineIndex.number(whole * size), rest)
    return nodes


def _split_free(
    name: str, extent: AffineIndex, size: int, body: Callable[[AffineIndex, int], list[Node]]
) -> list[Node]:
    """Loops over tiles of an index whose extent a call gives: of a size, then of the powers of 2 below, down to 1."""
    nodes: list[Node] = []
    tile, begin, left = f"{name}_t", AffineIndex(()), extent
    while True:
        count = left // size
        nodes.append(Loop(tile, count, tuple(body(begin + AffineIndex.variable(tile, largest(count)) * size, size))))
        if size == 1:
            return nodes
        begin, left = begin + count * size, left % size
        size = 1 << ((size - 1).bit_length() - 1)


def _reduced(axes: Sequence[LoopAxis], body: tuple[Node, ...], unroll: int) -> list[Node]:
    """Loops over reduced indices, the last innermost."""
    nodes = body
    for number, axis in enumerate(reversed(axes)):
        nodes = (Loop(axis.name, axis.extent, nodes, "serial", unroll if not number else 1, True),)
    return list(nodes)
