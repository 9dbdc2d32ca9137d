"""Parts of a graph as graphs of their own, and the graph that is stitched of what became of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.language.terms import Constant, Graph, Node


@dataclass(frozen=True)
class CutPart:
    """Some nodes of a graph, by their numbers, and the graph of them alone.

    Its inputs are what the nodes read of others, its outputs, each under its own name, what others read of them.
    """

    numbers: tuple[int, ...]
    graph: Graph


def parts_of(graph: Graph, numbers: Iterable[Sequence[int]]) -> list[CutPart]:
    """The parts of a graph; each set of numbers is ascending."""
    read_by: dict[str, set[int]] = {}
    for number, node in enumerate(graph.nodes):
        for value in node.inputs:
            if value is not None:
                read_by.setdefault(value, set()).add(number)
    wanted = set(graph.outputs.values())
    return [_part(graph, tuple(some), read_by, wanted) for some in numbers]


def _part(graph: Graph, numbers: tuple[int, ...], read_by: Mapping[str, set[int]], wanted: set[str]) -> CutPart:
    inside = set(numbers)
    nodes = [graph.nodes[number] for number in numbers]
    made = {value: None for node in nodes for value in node.outputs if value}
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value is not None and value not in made)
    outputs = {value: value for value in made if value in wanted or not read_by.get(value, set()) <= inside}
    constants = {value: graph.constants[value] for value in read if value in graph.constants}
    inputs = tuple(value for value in read if value not in constants)
    types = {value: graph.types[value] for value in (*read, *made) if value in graph.types}
    name = f"{graph.name}: nodes {numbers[0]} to {numbers[-1]}"
    part = Graph(name, inputs, outputs, tuple(nodes), constants, types)
    return CutPart(numbers, part)


def stitched(graph: Graph, parts: Sequence[tuple[CutPart, Graph | None]]) -> Graph:
    """A graph with parts of it replaced by graphs that are equal to them, None for one that stays.

    The parts hold every node, in an order in which none reads what a later one makes. Names of inputs and outputs stay,
    and those of values between parts where a node makes them.
    """
    return _Stitching(graph, parts).whole()


class _Stitching:
    def __init__(self, graph: Graph, parts: Sequence[tuple[CutPart, Graph | None]]) -> None:
        self.graph = graph
        self.parts = parts
        self.nodes: list[Node] = []
        self.types = {value: graph.types[value] for value in graph.inputs}
        self.constants: dict[str, Constant] = {}
        #: What stands for a value that no node makes any longer.
        self.instead: dict[str, str] = {}
        self.taken = {*graph.inputs, *graph.constants, *graph.types, *(v for n in graph.nodes for v in n.outputs)}

    def whole(self) -> Graph:
        for part, new in self.parts:
            self.add(part.graph, part.graph if new is None else new)
        outputs = {name: self._found(value) for name, value in self.graph.outputs.items()}
        for value in outputs.values():
            if value in self.graph.constants:
                self.constants.setdefault(value, self.graph.constants[value])
        types = self.types | {name: constant.type for name, constant in self.constants.items()}
        whole = replace(self.graph, nodes=tuple(self.nodes), constants=self.constants, types=types, outputs=outputs)
        return whole.without_dead()

    def add(self, old: Graph, new: Graph) -> None:
        """Add the nodes of what became of a part, under names that nothing else has."""
        names = {value: self._found(value) for value in new.inputs}
        made = {value for node in new.nodes for value in node.outputs if value}
        for name, value in new.outputs.items():
            if value in made and value not in names:
                names[value] = name
        for value, constant in new.constants.items():
            names[value] = self._constant(value, constant)
        own = {value for node in old.nodes for value in node.outputs} - set(old.outputs.values())
        for value in sorted(made - names.keys()):
            names[value] = value if value in own else self._unused(value)
            own.discard(value)
            self.taken.add(names[value])
        for name, value in new.outputs.items():
            if names[value] != name:
                self.instead[name] = names[value]
        for node in new.nodes:
            inputs = tuple(None if v is None else names[v] for v in node.inputs)
            self.nodes.append(replace(node, inputs=inputs, outputs=tuple(v and names[v] for v in node.outputs)))
        self.types |= {names[value]: new.types[value] for value in sorted(made) if value in new.types}

    def _constant(self, value: str, constant: Constant) -> str:
        known = self.constants.get(value, self.graph.constants.get(value))
        if known is not None and (known is constant or known == constant):
            constant = known
        elif value in self.taken:
            value = self._unused(value)
        self.taken.add(value)
        self.constants[value] = constant
        return value

    def _found(self, value: str) -> str:
        while value in self.instead:
            value = self.instead[value]
        return value

    def _unused(self, base: str) -> str:
        return next(name for n in itertools.count(1) if (name := f"{base}_{n}") not in self.taken)
