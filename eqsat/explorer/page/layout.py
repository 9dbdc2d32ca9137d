"""Layout of a drawn graph: layers from the inputs down, block by block, so that blocks can be folded.

Every block is laid out on its own, with the blocks inside it as single items and a port for every value that enters or
leaves it. A page puts the insides together for whatever is unfolded; nothing is laid out anew when a block is opened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import ModuleType
from typing import Any, Literal

from eqsat.explorer.view.views import GraphView
from eqsat.system.extras import missing

#: A block with more items than this is cut into parts: the time of a layered layout grows faster than its size.
MOST_ITEMS = 400
#: How many nodes a part holds.
PART = 100
#: Rounds of crossing reduction, after which pictures no longer change visibly.
ROUNDS = 24

ItemKind = Literal["node", "block", "in", "out"]


@dataclass(frozen=True, slots=True)
class Layers:
    """A layered layout: the layer and place across of every vertex, and of every bend of every edge, in unit steps."""

    layer: tuple[int, ...]
    across: tuple[float, ...]
    bends: tuple[tuple[tuple[int, float], ...], ...]


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a block: a node or block by its index, or the port of the node whose value passes there."""

    kind: ItemKind
    index: int


@dataclass(frozen=True, slots=True)
class Line:
    """An edge between two items of a block, by their places in it; `source` is the node whose value flows."""

    start: int
    end: int
    source: int
    bends: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The inside of a block: its items with their layers and places across, and the lines between them."""

    path: tuple[str, ...]
    parent: int | None
    items: tuple[Item, ...]
    layer: tuple[int, ...]
    across: tuple[float, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """A graph's blocks, the whole graph first, and the constants that are drawn on their readers, by reader."""

    blocks: tuple[BlockLayout, ...]
    tucked: dict[int, tuple[int, ...]]


def layered(
    count: int, edges: Sequence[tuple[int, int]], top: Collection[int] = (), bottom: Collection[int] = ()
) -> Layers:
    """Lays out vertices 0..count-1 in layers along edges, `top` in the first and `bottom` in the last; cycles may be.

    >>> layered(3, [(0, 1), (1, 2), (0, 2)]).layer
    (0, 1, 2)
    """
    igraph = _igraph()
    graph = igraph.Graph(count, [(a, b) for a, b in edges if a != b], directed=True)
    if not graph.is_dag():
        # What is left without them has an order; turned round they might close a cycle among themselves.
        graph.delete_edges(graph.feedback_arc_set(None, "eades"))
    place = {vertex: number for number, vertex in enumerate(graph.topological_sorting())}
    against = {number for number, (a, b) in enumerate(edges) if place[a] > place[b]}
    along = [(b, a) if number in against else (a, b) for number, (a, b) in enumerate(edges)]
    layer = _layers(igraph.Graph(count, [(a, b) for a, b in along if a != b], directed=True), top, bottom)
    trunks = _Trunks(layer)
    routes = [trunks.route(a, b) for a, b in along]
    cut = igraph.Graph(len(trunks.layer), list(trunks.links), directed=True)
    across = [x for x, _ in cut.layout_sugiyama(layers=trunks.layer, maxiter=ROUNDS).coords]
    points = [tuple((trunks.layer[stop], across[stop]) for stop in route) for route in routes]
    bends = tuple(route[::-1] if number in against else route for number, route in enumerate(points))
    return Layers(tuple(layer), tuple(across[:count]), bends)


class _Trunks:
    """Edges cut at every layer that they pass; those that leave one vertex share the way down until they part."""

    def __init__(self, layer: Sequence[int]) -> None:
        self.layer = list(layer)
        self.links: dict[tuple[int, int], None] = {}
        self._stops: dict[tuple[int, int], int] = {}

    def route(self, start: int, end: int) -> list[int]:
        """The stops of an edge between its ends, as vertices of their own."""
        if start == end:
            return []
        stops = [self._stop(start, layer) for layer in range(self.layer[start] + 1, self.layer[end])]
        whole = [start, *stops, end]
        self.links.update(dict.fromkeys(pairwise(whole)))
        return stops

    def _stop(self, start: int, layer: int) -> int:
        if (start, layer) not in self._stops:
            self._stops[start, layer] = len(self.layer)
            self.layer.append(layer)
        return self._stops[start, layer]


def _layers(graph: Any, top: Collection[int], bottom: Collection[int]) -> list[int]:
    """Each vertex below those it reads; a node without operands stands just above its first reader."""
    order: list[int] = graph.topological_sorting()
    before, after = graph.get_adjlist("in"), graph.get_adjlist("out")
    layer = [0] * graph.vcount()
    for vertex in order:
        layer[vertex] = max((layer[v] + 1 for v in before[vertex]), default=0)
    for vertex in order:
        if not before[vertex] and after[vertex] and vertex not in top:
            layer[vertex] = min(layer[v] for v in after[vertex]) - 1
    last = max(layer, default=0)
    for vertex in bottom:
        layer[vertex] = last
    return layer


def _igraph() -> ModuleType:
    try:
        import igraph
    except ImportError as error:
        raise missing("igraph") from error
    module: ModuleType = igraph
    return module


def arrange(graph: GraphView) -> GraphLayout:
    """Lays out a graph, block by block; a constant is drawn on the nodes that read it and has no place of its own."""
    index = {node.key: number for number, node in enumerate(graph.nodes)}
    edges = list(dict.fromkeys((index[a], index[b]) for a, b, _ in graph.edges))
    tucked = _tucked(graph, edges)
    hidden = {constant for constants in tucked.values() for constant in constants}
    edges = [(a, b) for a, b in edges if a not in hidden]
    paths = _paths(graph, edges, hidden)
    numbers = _block_numbers(paths.values())
    inside = _Insides(numbers)
    for node, path in paths.items():
        inside.item(path, Item("node", node))
    for path in numbers:
        if path:
            inside.item(path[:-1], Item("block", numbers[path]))
    for a, b in edges:
        inside.edge(a, paths[a], b, paths[b])
    return GraphLayout(inside.laid_out(), tucked)


def _tucked(graph: GraphView, edges: Iterable[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    """The constants to draw on each reader: those that operators alone read."""
    readers = defaultdict(list)
    for a, b in edges:
        if graph.nodes[a].kind == "constant":
            readers[a].append(b)
    by_reader: dict[int, list[int]] = defaultdict(list)
    for constant, all_readers in readers.items():
        if not any(graph.nodes[b].kind in ("constant", "output") for b in all_readers):
            for b in all_readers:
                by_reader[b].append(constant)
    return {reader: tuple(constants) for reader, constants in sorted(by_reader.items())}


def _paths(graph: GraphView, edges: list[tuple[int, int]], hidden: Collection[int]) -> dict[int, tuple[str, ...]]:
    """The block of every node that has a place, blocks with too many nodes of their own cut into parts."""
    igraph = _igraph()
    paths = {number: node.block for number, node in enumerate(graph.nodes) if number not in hidden}
    of_block = defaultdict(list)
    whole = igraph.Graph(len(graph.nodes), edges, directed=True)
    order = whole.topological_sorting() if whole.is_dag() else range(len(graph.nodes))
    for number in order:
        if number in paths:
            of_block[paths[number]].append(number)
    for path, members in of_block.items():
        if len(members) > MOST_ITEMS:
            for place, number in enumerate(members):
                paths[number] = (*path, f"part {place // PART + 1}")
    return paths


def _block_numbers(paths: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
    """Every block and all that hold it, numbered, each after the one that holds it; the whole graph is 0."""
    numbers: dict[tuple[str, ...], int] = {(): 0}
    for path in paths:
        for depth in range(1, len(path) + 1):
            numbers.setdefault(path[:depth], len(numbers))
    return numbers


class _Insides:
    """The items and lines of all blocks, while they are gathered."""

    def __init__(self, numbers: dict[tuple[str, ...], int]) -> None:
        self._numbers = numbers
        self._items: dict[tuple[str, ...], dict[Item, int]] = {path: {} for path in numbers}
        self._lines: dict[tuple[str, ...], dict[tuple[int, int, int], None]] = {path: {} for path in numbers}

    def item(self, path: tuple[str, ...], item: Item) -> int:
        items = self._items[path]
        return items.setdefault(item, len(items))

    def edge(self, a: int, path_a: tuple[str, ...], b: int, path_b: tuple[str, ...]) -> None:
        """Draws an edge through every block between its ends, from port to port."""
        shared = 0
        while shared < min(len(path_a), len(path_b)) and path_a[shared] == path_b[shared]:
            shared += 1
        for depth in range(len(path_a), shared, -1):
            self._line(path_a[:depth], self._end(a, path_a, depth), Item("out", a), a)
        self._line(path_a[:shared], self._end(a, path_a, shared), self._end(b, path_b, shared), a)
        for depth in range(shared + 1, len(path_b) + 1):
            self._line(path_b[:depth], Item("in", a), self._end(b, path_b, depth), a)

    def _end(self, node: int, path: tuple[str, ...], depth: int) -> Item:
        return Item("node", node) if depth == len(path) else Item("block", self._numbers[path[: depth + 1]])

    def _line(self, path: tuple[str, ...], start: Item, end: Item, source: int) -> None:
        self._lines[path][self.item(path, start), self.item(path, end), source] = None

    def laid_out(self) -> tuple[BlockLayout, ...]:
        known: dict[object, Layers] = {}  # equal insides, as a network's layers are, are laid out once
        blocks = []
        for path in self._numbers:
            items, lines = list(self._items[path]), list(self._lines[path])
            pairs = tuple(dict.fromkeys((a, b) for a, b, _ in lines))
            top = tuple(place for place, item in enumerate(items) if item.kind == "in")
            bottom = tuple(place for place, item in enumerate(items) if item.kind == "out")
            key = len(items), pairs, top, bottom
            if key not in known:
                known[key] = layered(len(items), pairs, top, bottom)
            layers = known[key]
            bends = dict(zip(pairs, layers.bends, strict=True))
            parent = self._numbers[path[:-1]] if path else None
            drawn = tuple(Line(a, b, source, bends[a, b]) for a, b, source in lines)
            blocks.append(BlockLayout(path, parent, tuple(items), layers.layer, layers.across, drawn))
        return tuple(blocks)
