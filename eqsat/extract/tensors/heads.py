"""Attention with the split and the join of its heads, which ONNX Runtime runs as one operator, in an e-graph."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.costs.kernels.fusion import FusedOperator
from eqsat.egraph.snapshot import Snapshot, SnapshotNode
from eqsat.extract.tensors.fused import FusedChain, member
from eqsat.extract.tensors.pricing import Pricing
from eqsat.language.onnx.fused.heads import moves_heads, splits_heads
from eqsat.language.terms import PLAIN, Implementation
from eqsat.runtime.onnxruntime.support import has_fused_kernel
from eqsat.system.deadline import check

#: Largest number of kernels that make one operand, or join the result, and of combinations tried for one attention.
_MOST_MAKERS, _MOST_TRIED = 3, 16

#: The e-nodes that make a class from another one, as positions, the first of which reads it.
_Path = tuple[int, ...]


@dataclass(frozen=True)
class _Operand:
    """A class of three axes, with the e-nodes that split and move it; and those that make it a product, if any."""

    source: int
    path: _Path
    biased: bool = False


def attentions(snapshot: Snapshot, pricing: Pricing, offered: Collection[int]) -> Iterator[FusedChain]:
    """Each attention over joined heads as one kernel, where its time was measured.

    From the tensor that is reshaped and transposed to heads, or read by three products with constants, to the result
    joined again. `offered` are the e-nodes that may be chosen, as positions.
    """
    if pricing.model.cost is not None or not pricing.model.knows_fused_with("attention"):
        return
    index = _Finding(snapshot, pricing, offered)
    for position in offered:
        node = snapshot.nodes[position]
        if node.op == "attention" and has_fused_kernel(node.op, node.attrs, pricing.types(node)):
            check()
            for operands in index.operands(node):
                yield from index.chains(position, operands)


def members(
    snapshot: Snapshot,
    pricing: Pricing,
    positions: Sequence[int],
    implementations: Sequence[Implementation],
    links: Sequence[tuple[int | None, ...]],
) -> list[FusedOperator]:
    """The e-nodes of a kernel as its parts; those of attention say which operands are one tensor."""
    if not any(snapshot.nodes[position].op == "attention" for position in positions):
        return [member(snapshot, pricing, *one) for one in zip(positions, implementations, links, strict=True)]
    first: dict[int, int] = {}
    operators: list[FusedOperator] = []
    number = 0
    for position, way, linked in zip(positions, implementations, links, strict=True):
        node = snapshot.nodes[position]
        same: list[int | None] = []
        for operand, link in zip(node.operands, linked, strict=True):
            shared = link is None and not snapshot.classes[operand].constant
            earlier = first.setdefault(operand, number) if shared else number
            same.append(None if earlier == number else earlier)
            number += 1
        operators.append(member(snapshot, pricing, position, way, linked, tuple(same)))
    return operators


def _fit_together(operands: Sequence[_Operand]) -> bool:
    """Return whether all are products of one class, with a constant added to all or to none; or none is a product."""
    return all(len(one.path) == 2 for one in operands) or len({(one.source, one.biased) for one in operands}) == 1


class _Finding:
    """The e-nodes around attention, indexed by their operands."""

    def __init__(self, snapshot: Snapshot, pricing: Pricing, offered: Collection[int]) -> None:
        self.snapshot, self.pricing = snapshot, pricing
        self.makers: Mapping[int, list[int]] = defaultdict(list)
        self.readers: Mapping[int, list[int]] = defaultdict(list)
        for position in offered:
            node = snapshot.nodes[position]
            self.makers[node.eclass].append(position)
            if node.op in ("transpose", "reshape"):
                self.readers[node.operands[0]].append(position)

    def operands(self, node: SnapshotNode) -> Iterator[list[list[_Operand]]]:
        """The makers of each operand of an attention: with products by constants, then without them."""
        makers = [list(itertools.islice(self._apart(operand), _MOST_MAKERS)) for operand in node.operands[:3]]
        yield [[product for one in options for product in self._products(one)] for options in makers]
        yield makers

    def chains(self, position: int, options: Sequence[Sequence[_Operand]]) -> Iterator[FusedChain]:
        """The kernels of an attention whose operands are each made by one of these options."""
        ends = list(itertools.islice(self._joined(self.snapshot.nodes[position].eclass), _MOST_MAKERS))
        tried = itertools.product(*options)
        for operands in itertools.islice((o for o in tried if _fit_together(o)), _MOST_TRIED):
            before = dict.fromkeys(place for one in operands for place in one.path)
            for end in ends:
                chain = self._chain([*before, position, *end])
                if chain is not None:
                    yield chain

    def _apart(self, eclass: int) -> Iterator[_Operand]:
        """The classes of three axes that are split into heads, and moved, to make a class."""
        for moving in self.makers[eclass]:
            moved = self.snapshot.nodes[moving]
            if moved.op != "transpose" or not moves_heads(moved.attrs):
                continue
            for splitting in self.makers[moved.operands[0]]:
                split = self.snapshot.nodes[splitting]
                if split.op == "reshape" and self._splits(split.operands[0], split.eclass):
                    yield _Operand(split.operands[0], (splitting, moving))

    def _joined(self, eclass: int) -> Iterator[_Path]:
        """The e-nodes that move the heads of a class back and join them."""
        for moving in self.readers[eclass]:
            moved = self.snapshot.nodes[moving]
            if moved.op != "transpose" or not moves_heads(moved.attrs):
                continue
            for joining in self.readers[moved.eclass]:
                joined = self.snapshot.nodes[joining]
                if joined.op == "reshape" and self._splits(joined.eclass, moved.eclass):
                    yield moving, joining

    def _products(self, way: _Operand) -> Iterator[_Operand]:
        """Each factor that an operand is the product of with a constant matrix, plus a constant vector or not."""
        inner: dict[int, _Path] = {}
        for first in (0, 1):
            for position in self.makers[way.source]:
                node = self.snapshot.nodes[position]
                if node.op == "matmul":
                    inner.setdefault(position, (position,))
                elif node.op == "add" and self._is_constant(node.operands[1 - first], 1):
                    for factor in self.makers[node.operands[first]]:
                        inner.setdefault(factor, (factor, position))
        for product, path in inner.items():
            node = self.snapshot.nodes[product]
            source = self.pricing.type(node.operands[0]) if node.op == "matmul" else None
            if source is not None and source.shape and source.rank == 3 and self._is_constant(node.operands[1], 2):
                yield _Operand(node.operands[0], (*path, *way.path), len(path) > 1)

    def _is_constant(self, eclass: int, rank: int) -> bool:
        type = self.pricing.type(eclass)
        known = self.snapshot.classes[eclass].constant and type is not None and type.shape is not None
        return known and type is not None and type.rank == rank

    def _splits(self, joined: int, apart: int) -> bool:
        return splits_heads(self.pricing.type(joined), self.pricing.type(apart))

    def _chain(self, positions: Sequence[int]) -> FusedChain | None:
        """The e-nodes as one kernel; None where its time is not known, or it would read its own results."""
        nodes = [self.snapshot.nodes[position] for position in positions]
        place = {node.eclass: index for index, node in enumerate(nodes)}
        if len(place) < len(nodes):
            return None
        links: list[tuple[int | None, ...]] = []
        outside: dict[tuple[int, object], None] = {}
        for index, node in enumerate(nodes):
            linked = tuple(place.get(operand) for operand in node.operands)
            if any(link is not None and link >= index for link in linked):
                return None
            links.append(linked)
            outside.update(
                dict.fromkeys((k, PLAIN) for k, link in zip(node.operands, linked, strict=True) if link is None)
            )
        implementations = tuple(Implementation((PLAIN,) * len(node.operands), PLAIN) for node in nodes)
        cost = self.pricing.model.fused(members(self.snapshot, self.pricing, positions, implementations, links))
        if cost is None:
            return None
        reads = tuple((eclass, PLAIN) for eclass, _ in outside)
        price = self.pricing.model.weigh(cost)
        return FusedChain(nodes[-1].eclass, tuple(positions), implementations, tuple(links), reads, cost, price)
