"""The part of a graph between some of its values and values where the walk back stops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from eqsat.language.terms.graph import OPAQUE, Graph, Node


class Cone:
    """The nodes that make `values` from `leaves`, the values where `stop` holds or that no node makes.

    `constants` are the constants its nodes read. A value asked for is never a leaf, unless nothing makes it.
    """

    def __init__(
        self, graph: Graph, positions: Mapping[str, int], values: Sequence[str], stop: Callable[[str], bool]
    ) -> None:
        self.graph, self.values = graph, tuple(values)
        self.leaves: set[str] = set()
        self.constants: set[str] = set()
        needed: set[int] = set()
        seen: set[str] = set()
        stack, asked = list(values), set(values)
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if value in graph.constants:
                self.constants.add(value)
            elif value not in positions or (value not in asked and stop(value)):
                self.leaves.add(value)
            else:
                needed.add(positions[value])
                stack += [v for v in graph.nodes[positions[value]].inputs if v is not None]
        self.nodes = tuple(self._needed(graph.nodes[i]) for i in sorted(needed))

    def _needed(self, node: Node) -> Node:
        """A node without those of its outputs that are leaves."""
        if self.leaves.isdisjoint(node.outputs):
            return node
        return replace(node, outputs=tuple("" if o in self.leaves else o for o in node.outputs))

    @property
    def opaque(self) -> bool:
        """True if it holds a node that cannot be run."""
        return any(n.op == OPAQUE for n in self.nodes)

    @cached_property
    def subgraph(self) -> Graph:
        """The cone as a graph from its leaves to its values, which are its outputs "0", "1", …"""
        known = {v for n in self.nodes for v in (*n.inputs, *n.outputs) if v} | self.leaves | set(self.values)
        return Graph(
            name=self.graph.name,
            inputs=tuple(sorted(self.leaves)),
            outputs={str(i): v for i, v in enumerate(self.values)},
            nodes=self.nodes,
            constants={v: self.graph.constants[v] for v in sorted(self.constants)},
            types={v: self.graph.type(v) for v in known},
        )


def positions(graph: Graph) -> dict[str, int]:
    """The index of the node that makes each value of a graph."""
    return {o: i for i, n in enumerate(graph.nodes) for o in n.outputs if o}
