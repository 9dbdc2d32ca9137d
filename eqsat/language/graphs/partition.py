"""Partitions of a graph into parts of bounded size, cut where the least is lost (MetaFlow, Jia et al., 2019)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from eqsat.errors import GraphError
from eqsat.language.terms import Array, Graph
from eqsat.system.deadline import check

#: The share of nodes at either end that a cut by flow leaves on its side, and that of a balanced cut.
_FLOW_SHARE, _BALANCED_SHARE = 1 / 3, 0.45
#: What capacities stay below: SciPy's flows are 32 bits wide, and the residue of an edge may be twice its capacity.
_WIDEST = 2**30


@dataclass(frozen=True)
class VertexCut:
    """Nodes split in two, by their numbers in ascending order: none of `before` reads what one of `after` makes.

    `cut` are those of `before` whose results `after` reads, and `loss` is the sum of what is lost at each of them.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    cut: tuple[int, ...]
    loss: int


class WideCutError(GraphError):
    """Losses that 32 bits cannot tell apart at the cheapest cut of so many nodes."""


class FlowNetwork:
    """The nodes of a graph by their numbers, the nodes that each reads from, and what a cut at each of them loses.

    `losses` are whole numbers, such as the substitutions that match an in-edge and an out-edge of an operator. Nothing
    is lost at a node that makes nothing. GraphError for a negative loss, or not as many of them as nodes.
    """

    def __init__(self, graph: Graph, losses: Sequence[int]) -> None:
        if len(losses) != len(graph.nodes) or any(loss < 0 for loss in losses):
            raise GraphError(
                f"{len(losses)} losses, the least of them {min(losses, default=0)}",
                where=graph.name,
                expected=f"{len(graph.nodes)} numbers of at least 0, one a node",
                remedy="count the substitutions that a cut at each node loses",
            )
        self.losses = tuple(losses)
        makers = {value: number for number, node in enumerate(graph.nodes) for value in node.outputs if value}
        self.read = tuple(
            tuple(sorted({makers[value] for value in node.inputs if value is not None and value in makers}))
            for node in graph.nodes
        )

    def in_units(self, unit: int) -> FlowNetwork:
        """The same network with losses in whole units of so many, the rest of each left out."""
        other = copy(self)
        other.losses = tuple(loss // unit for loss in self.losses)
        return other

    def minimum_cut(self, nodes: Sequence[int], first: int, last: int) -> VertexCut:
        """The cut of some nodes that loses the least, and of those the one with the fewest nodes.

        Of `nodes`, ascending and so in topological order, the first ones are on the side before, the last ones on the
        side after. Each node is an edge of a flow network, with its loss as the capacity; a side cannot read what the
        side after it makes, since edges back to what a node reads have no limit. GraphError for a side without nodes.
        """
        if first < 1 or last < 1 or first + last > len(nodes):
            raise GraphError(
                f"a cut of {len(nodes)} nodes between {first} first and {last} last ones",
                expected="at least one on either side, and no node on both",
            )
        place = {node: number for number, node in enumerate(nodes)}
        readers: list[list[int]] = [[] for _ in nodes]
        for number, node in enumerate(nodes):
            for read in self.read[node]:
                if read in place:
                    readers[place[read]].append(number)
        before = _cheapest_prefix([self.losses[node] for node in nodes], readers, first, last)
        left: list[int] = []
        right: list[int] = []
        for number, node in enumerate(nodes):
            (left if before[number] else right).append(node)
        cut = tuple(
            node for number, node in enumerate(nodes) if before[number] and not all(before[r] for r in readers[number])
        )
        return VertexCut(tuple(left), tuple(right), cut, sum(self.losses[node] for node in cut))


def _cheapest_prefix(losses: Sequence[int], readers: Sequence[Sequence[int]], first: int, last: int) -> Array:
    """For each node, True if it is before the cheapest cut; the fewest nodes are where several are the cheapest."""
    count = len(losses)
    bound = _contiguous_loss(losses, readers, first, last)
    # A node more costs less than one substitution, however many nodes are cut.
    if (bound + 1) * (count + 1) >= _WIDEST:
        raise WideCutError(
            f"{bound} substitutions lost at a cut of {count} nodes",
            expected=f"a product with the number of nodes below {_WIDEST}",
            remedy="cut fewer nodes at a time, or scale what is lost",
        )
    unlimited = (bound + 1) * (count + 1)
    capacities = [min(loss * (count + 1) + 1, unlimited) for loss in losses]
    # The node `number` has its way in at `number` and its way out at `count + number`.
    source, sink = 2 * count, 2 * count + 1
    edges = [(number, count + number, capacities[number]) for number in range(count)]
    for number, some in enumerate(readers):
        for reader in some:
            edges += [(count + number, reader, unlimited), (reader, number, unlimited)]
    edges += [(source, number, unlimited) for number in range(first)]
    edges += [(number, sink, unlimited) for number in range(count - last, count)]
    return _reached(np.array(edges, dtype=np.int64), source, sink)[:count]


def _contiguous_loss(losses: Sequence[int], readers: Sequence[Sequence[int]], first: int, last: int) -> int:
    """The least that is lost by cutting between neighbours in the order, which bounds what any cut has to lose."""
    ends: dict[int, int] = {}
    lost, least = 0, -1
    for number in range(len(losses) - last):
        lost -= ends.pop(number, 0)
        if readers[number]:
            lost += losses[number]
            end = max(readers[number])
            ends[end] = ends.get(end, 0) + losses[number]
        if number >= first - 1:
            least = lost if least < 0 else min(least, lost)
    return least


def _reached(edges: Array, source: int, sink: int) -> Array:
    """For each vertex of a network, True if more could flow to it from the source once all flows that can."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    check(0)
    vertices = sink + 1
    network = csr_array((edges[:, 2].astype(np.int32), (edges[:, 0], edges[:, 1])), shape=(vertices, vertices))
    residue = (network - maximum_flow(network, source, sink).flow).tocsr()
    residue.eliminate_zeros()
    check(0)
    reached = np.zeros(vertices, dtype=bool)
    reached[breadth_first_order(residue, source, return_predecessors=False)] = True
    return reached


def _by_flow(flow: FlowNetwork, nodes: Sequence[int]) -> VertexCut:
    """The cut in the middle third that loses the least."""
    end = max(1, int(len(nodes) * _FLOW_SHARE))
    return flow.minimum_cut(nodes, end, end)


def _balanced(flow: FlowNetwork, nodes: Sequence[int]) -> VertexCut:
    """The cut that loses the least of those with nearly as many nodes on either side."""
    end = max(1, int(len(nodes) * _BALANCED_SHARE))
    return flow.minimum_cut(nodes, end, end)


#: A way to cut some nodes of a graph in two.
Partitioner: TypeAlias = Callable[[FlowNetwork, Sequence[int]], VertexCut]
#: The ways to cut, by name.
PARTITIONERS: Mapping[str, Partitioner] = MappingProxyType({"flow": _by_flow, "balanced": _balanced})


@dataclass(frozen=True)
class Partition:
    """The nodes of a graph in parts, by their numbers, and the cuts that made them, the first of the whole graph.

    The parts are in an order in which none reads what a later one makes. `loss` is the sum of what is lost at the nodes
    that were cut, each counted once.
    """

    parts: tuple[tuple[int, ...], ...]
    cuts: tuple[VertexCut, ...]
    loss: int


def _cut(flow: FlowNetwork, nodes: Sequence[int], partitioner: Partitioner) -> VertexCut:
    """A cut by a partitioner; of losses in as coarse units as 32 bits ask for."""
    unit = 1
    while True:
        try:
            cut = partitioner(flow if unit == 1 else flow.in_units(unit), nodes)
        except WideCutError:
            unit *= 2
        else:
            return replace(cut, loss=sum(flow.losses[node] for node in cut.cut))


def partition(graph: Graph, losses: Sequence[int], most: int, method: str = "flow") -> Partition:
    """A graph in parts of at most `most` nodes, cut in two again and again by one of the partitioners.

    Where losses are too large for one cut of so many nodes, that cut is the cheapest in coarser units. GraphError where
    `most` is below 1, where no partitioner has the name, and for what the flow network refuses.
    """
    if most < 1 or method not in PARTITIONERS:
        raise GraphError(
            f"a partition by {method!r} into parts of {most} nodes",
            where=graph.name,
            expected="at least 1 node a part, and one of " + ", ".join(repr(name) for name in PARTITIONERS),
        )
    flow, cuts, parts = FlowNetwork(graph, losses), [], []
    pending: list[Sequence[int]] = [range(len(graph.nodes))]
    while pending:
        nodes = pending.pop()
        if len(nodes) <= most:
            parts.append(tuple(nodes))
            continue
        cut = _cut(flow, nodes, PARTITIONERS[method])
        cuts.append(cut)
        pending += [cut.after, cut.before]
    lost = {node for cut in cuts for node in cut.cut}
    return Partition(tuple(parts), tuple(cuts), sum(losses[node] for node in lost))
