"""Kernels of operators element by element and of those that copy elements: a thread for each few of the results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.runtime.cuda.body import THREADS, Access, Body, entry_name, is_pointwise
from eqsat.runtime.cuda.coordinates import INT_LIMIT, Coords, Index, offset, unflattened
from eqsat.runtime.cuda.expression import STORED
from eqsat.runtime.cuda.group import Group
from eqsat.runtime.cuda.movement import MOVES
from eqsat.runtime.cuda.source import Source
from eqsat.runtime.cuda.transposition import generate_transposition
from eqsat.runtime.cuda.view import WIDEST_ACCESS, View

#: Blocks are made smaller until there are so many, which keeps all multiprocessors at work.
FEW_BLOCKS = 256
LEAST_THREADS = 64


def generate(group: Group) -> Source | None:
    """One kernel for all results; None where some operator is of another kind. Results overlap no operand."""
    if not all(is_pointwise(node) or node.op in MOVES for node in group.nodes):
        return None
    shapes = dict.fromkeys(view.shape for view in group.results.values())
    parts = [_Part(group, [n for n, v in group.results.items() if v.shape == shape]) for shape in shapes]
    parts = [part for part in parts if part.count]
    if len(parts) == 1 and len(shapes) == 1 and parts[0].width == 1:
        transposed = generate_transposition(group)
        if transposed is not None:
            return transposed
    return _launched(group, parts)


def _launched(group: Group, parts: Sequence[_Part]) -> Source:
    """The kernel whose blocks are shared out among results of different shapes."""
    body = Body(group)
    threads = THREADS
    while threads > LEAST_THREADS and sum(-(-p.threads // threads) for p in parts) < FEW_BLOCKS:
        threads //= 2
    blocks = [-(-part.threads // threads) for part in parts]
    for place, part in enumerate(parts):
        before = sum(blocks[:place])
        if len(parts) == 1:
            part.write(body, "blockIdx.x", threads)
            continue
        with body.writer.block(f"if (blockIdx.x >= {before} && blockIdx.x < {before + blocks[place]})"):
            part.write(body, f"(blockIdx.x - {before})" if before else "blockIdx.x", threads)
    for name in group.results:
        body.pointer(name)
    return body.source(entry_name(group), (sum(blocks), 1, 1), (threads, 1, 1))


@dataclass(frozen=True)
class _Packs:
    """Operands that are read several elements at once, and those that all elements of a thread share."""

    together: tuple[Access, ...]
    shared: tuple[Access, ...]


class _Part:
    """Results of one shape, walked in the order in which the first lies in memory."""

    def __init__(self, group: Group, names: Sequence[str]) -> None:
        self.group, self.names = group, names
        view = group.results[names[0]]
        self.shape = view.shape
        self.order = sorted(range(view.rank), key=lambda axis: -abs(view.strides[axis]))
        self.count = view.count
        self.width, self.packs = self._widest() if self.count else (1, _Packs((), ()))
        self.threads = self.count // self.width

    def _coords(self, width: int) -> Coords:
        """The coordinates of element k of those of thread t."""
        position = Index.variable("t", self.count // width) * width + Index.variable("k", width)
        walked = unflattened(position, [self.shape[a] for a in self.order])
        return tuple(walked[self.order.index(axis)] for axis in range(len(self.shape)))

    def _widest(self) -> tuple[int, _Packs]:
        """How many elements a thread makes at once, and what it reads for them."""
        width = WIDEST_ACCESS
        while True:
            packs = self._packs(width) if self.count % width == 0 else None
            if packs is not None:
                return width, packs
            width //= 2

    def _packs(self, width: int) -> _Packs | None:
        """What is read at once for so many elements; None where that is not worth it, or the results lie apart."""
        coords = self._coords(width)
        views = [self.group.results[name] for name in self.names]
        if width > 1 and not all(fits(v, offset(coords, v.strides), width) for v in views):
            return None
        probe = Body(self.group)
        for name in self.names:
            probe.value(name, coords)
        accesses = list({(a.value, a.coords): a for a in probe.accesses if not a.conditional}.values())
        varying = [a for a in accesses if a.offset.reads("k")]
        together = [a for a in varying if fits(self.group.operands[a.value], a.offset, width)]
        apart = [a for a in varying if a not in together and self.group.operands[a.value].count * 2 >= self.count]
        if width > 1 and apart:
            return None
        return _Packs(tuple(together), tuple(a for a in accesses if not a.offset.reads("k")))

    def write(self, body: Body, block: str, threads: int) -> None:
        """Writes what the threads of this part do."""
        writer, coords = body.writer, self._coords(self.width)
        wide = "long long" if self.threads >= INT_LIMIT - threads else "int"
        cast = "(long long)" if wide != "int" else ""
        writer.line(f"const {wide} t = {cast}{block} * {threads} + threadIdx.x;")
        writer.line(f"if (t >= {self.threads}) return;")
        if self.width == 1:
            for name in self.names:
                body.store(name, coords, body.value(name, coords))
            return
        packs = [(access, self._loaded(body, access)) for access in self.packs.together]
        for access in self.packs.shared:
            body.value(access.value, access.coords)
        made = {name: writer.name(f"{body.pointer(name)}_pack") for name in self.names}
        for name, pack in made.items():
            writer.line(f"Pack<{STORED[self.group.results[name].dtype]}, {self.width}> {pack};")
        writer.line("#pragma unroll")
        with writer.block(f"for (int k = 0; k < {self.width}; ++k)"):
            for access, pack in packs:
                body.hold(access, f"{pack}.at[k]")
            for name, pack in made.items():
                writer.line(f"{pack}.at[k] = {body.stored(name, body.value(name, coords))};")
        for name, pack in made.items():
            place = writer.index(_first(offset(coords, self.group.results[name].strides)))
            writer.line(f"store<{self.width}>({body.pointer(name)} + {place}, {pack});")

    def _loaded(self, body: Body, access: Access) -> str:
        pointer = body.pointer(access.value)
        place = body.writer.index(_first(access.offset))
        type = f"Pack<{STORED[self.group.operands[access.value].dtype]}, {self.width}>"
        return body.writer.define(type, f"{pointer}_pack", f"load<{self.width}>({pointer} + {place})")


def _first(place: Index) -> Index:
    """The place of the first of several elements."""
    return Index(tuple((v, c) for v, c in place.terms if v.name != "k"), place.constant)


def fits(view: View, place: Index, width: int) -> bool:
    """Whether `width` elements, numbered by k, follow each other from an address that is a multiple of their bytes."""
    size = width * view.dtype.itemsize
    if place.coefficient("k") != 1 or size > WIDEST_ACCESS or view.alignment % size:
        return False
    rest = _first(place)
    if rest.reads("k"):
        return False
    return math.gcd(rest.constant, *(c for _, c in rest.terms)) % width == 0
