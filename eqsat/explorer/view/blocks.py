"""The blocks that the nodes of a graph belong to: from names where a model has them, else from its narrow points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from eqsat.language.terms.graph import Graph, Node

#: The path of a block: outer blocks first; () for a node in none.
Path = tuple[str, ...]

#: Most nodes that lie directly in one block, and least in a block inside another.
MOST, LEAST = 40, 4
#: The share of nodes that must have names with a path, or read weights whose names have one, to go by those.
_NAMED, _WEIGHTED = 0.5, 0.15
#: How many parts of a path nodes between two blocks may leave out to be in what is around both.
_UP = 2
#: Different paths that make names a hierarchy.
_PATHS = 3


def blocks(graph: Graph) -> list[Path]:
    """The path of the block of each node, in their order; no node is in none.

    A node's name, such as "/encoder/layer.0/attention/MatMul", says which one; in models whose nodes are only numbered
    the names of the weights do, such as "encoder.layer.0.attention.query.weight". Where neither has paths, the order of
    the nodes is cut where few values cross.

    >>> import eqsat
    >>> g = eqsat.Graph()
    >>> g.output("y", eqsat.relu(g.input("x", (2,))))
    >>> blocks(g.build())
    [('block 1',)]
    """
    if not graph.nodes:
        return []
    named = [_of_name(node.name) for node in graph.nodes]
    weighted = [_of_weights(graph, node) for node in graph.nodes]
    for paths, least in ((named, _NAMED), (weighted, _WEIGHTED)):
        known = [path for path in paths if path]
        if len(known) >= least * len(paths) and len(set(known)) >= _PATHS:
            return _bounded(graph, _without_small(_filled(graph, _without_root(paths))))
    return [(f"block {number}",) for number in _cuts(graph, range(len(graph.nodes)))]


def by_value(graph: Graph) -> dict[str, Path]:
    """The block of each value that a node makes."""
    return {v: path for node, path in zip(graph.nodes, blocks(graph), strict=True) for v in node.outputs if v}


def inherited(graph: Graph, known: Mapping[str, Path]) -> list[Path]:
    """The blocks of the nodes of another graph: those `known` of values, else of the values they lead to."""
    paths: list[Path] = [()] * len(graph.nodes)
    wanted: dict[str, Path] = {}
    for index, node in reversed(list(enumerate(graph.nodes))):
        results = [v for v in node.outputs if v]
        paths[index] = next((p for p in (*map(known.get, results), *map(wanted.get, results)) if p), ())
        for value in node.inputs:
            if value is not None:
                wanted.setdefault(value, paths[index])
    return paths


def _of_name(name: str) -> Path:
    """The path in a node's name, its own last part left out."""
    return tuple(part for part in name.split("/") if part)[:-1]


def _of_weights(graph: Graph, node: Node) -> Path:
    """The path in the names of the weights that a node reads."""
    for value in node.inputs:
        if value is not None and value in graph.constants and "." in value:
            path: list[str] = []
            for part in value.split(".")[:-1]:
                if part.isdecimal() and path:
                    path[-1] += f".{part}"
                elif part:
                    path.append(part)
            if path:
                return tuple(path)
    return ()


def _without_root(paths: Sequence[Path]) -> list[Path]:
    """The paths without the first parts that all share; one that is no longer than those keeps its last part."""
    shorter = list(paths)
    while True:
        known = [path for path in shorter if path]
        if len({path[0] for path in known}) > 1 or all(len(path) == 1 for path in known):
            return shorter
        shorter = [path[1:] if len(path) > 1 else path for path in shorter]


def _filled(graph: Graph, paths: Sequence[Path]) -> list[Path]:
    """The paths, with missing ones taken from neighbours.

    That is what both have in common where it says about as much as the latter, else the latter: a projection belongs to
    the layer it begins.
    """
    nodes = graph.nodes
    before: dict[str, tuple[int, Path]] = {}
    above: list[Path] = []
    for index, (node, path) in enumerate(zip(nodes, paths, strict=True)):
        near = max((before[v] for v in node.inputs if v in before), default=(-1, ()))
        above.append(near[1])
        for value in node.outputs:
            before[value] = (index, path) if path else near
    filled = list(paths)
    after: dict[str, Path] = {}
    last = next(path for path in paths if path)
    for index, node in reversed(list(enumerate(nodes))):
        below = next((after[v] for v in node.outputs if after.get(v)), ())
        if not filled[index]:
            shared = _shared(above[index], below)
            within = shared and len(below) - len(shared) <= _UP
            filled[index] = shared if within else below or above[index] or last
        last = filled[index]
        after |= {v: paths[index] or below for v in node.inputs if v is not None}
    return filled


def _shared(one: Path, other: Path) -> Path:
    depth = 0
    while depth < min(len(one), len(other)) and one[depth] == other[depth]:
        depth += 1
    return one[:depth]


def _without_small(paths: Sequence[Path]) -> list[Path]:
    """The paths, with blocks of few nodes dissolved into the ones around them."""
    members = Counter(path[:depth] for path in paths for depth in range(1, len(path) + 1))
    merged = []
    for path in paths:
        depth = len(path)
        while depth > 1 and members[path[:depth]] < LEAST:
            depth -= 1
        merged.append(path[:depth])
    return _joined(merged)


def _joined(paths: Sequence[Path]) -> list[Path]:
    """The paths, with neighbouring outermost blocks of few nodes made one."""
    sizes = Counter(path[0] for path in paths)
    joined = list(paths)
    for small, run in groupby(range(len(paths)), key=lambda index: sizes[paths[index][0]] < LEAST):
        members = list(run)
        first, last = paths[members[0]][0], paths[members[-1]][0]
        if small and first != last:
            for index in members:
                joined[index] = (f"{first} to {last}",)
    return joined


def _bounded(graph: Graph, paths: list[Path]) -> list[Path]:
    """The paths, with blocks that hold too many nodes by themselves cut into parts."""
    members: dict[Path, list[int]] = {}
    for index, path in enumerate(paths):
        members.setdefault(path, []).append(index)
    bounded = list(paths)
    for path, indices in members.items():
        if len(indices) > MOST:
            for index, number in zip(indices, _cuts(graph, indices), strict=True):
                bounded[index] = (*path, f"part {number}")
    return bounded


def _cuts(graph: Graph, indices: Sequence[int]) -> Iterator[int]:
    """For some nodes in order the number of the part each is in, of at most MOST nodes.

    Parts end where few values cross to a later node, in all as few as can be; by dynamic programming over the ends.
    """
    crossing = _crossing(graph)
    count = len(indices)
    best = [0.0] + [float("inf")] * count
    start = [0] * (count + 1)
    for end in range(1, count + 1):
        paid = 0 if end == count else 1 + crossing[indices[end - 1]]
        for begin in range(max(0, end - MOST), end):
            if best[begin] + paid < best[end]:
                best[end], start[end] = best[begin] + paid, begin
    ends = [count]
    while start[ends[-1]]:
        ends.append(start[ends[-1]])
    ends.reverse()
    part = 0
    for place in range(count):
        part += place == ends[part]
        yield part + 1


def _crossing(graph: Graph) -> list[int]:
    """After each node, how many values made so far are read later."""
    last: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        last |= {v: index for v in node.inputs if v is not None}
    ends = Counter(last[v] for node in graph.nodes for v in node.outputs if v in last)
    counts, live = [], 0
    for index, node in enumerate(graph.nodes):
        live += sum(v in last for v in node.outputs) - ends[index]
        counts.append(live)
    return counts
