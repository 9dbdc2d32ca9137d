"""Repeated blocks: runs of equal blocks of nodes, and the graph in which the inner ones of a run are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from eqsat.language.ops import OPS
from eqsat.language.terms import OPAQUE, Array, Constant, Graph, Node
from eqsat.system.deadline import check

#: The blocks of a run that stay: the first, one that stands for all inner ones, and the last. Both borders of the
#: second are as those of the blocks it stands for.
KEPT = 3
#: The fewest blocks of a run, and the fewest nodes that are left out of one: below, a whole graph is as fast.
_LEAST, _FEWEST = 5, 24
#: The most runs of labels, and rotations of one, that are tried.
_RUNS, _ROTATIONS = 64, 8
#: The labels of a period that are compared before all are.
_SAMPLES = 16
#: Elements of a constant that rules may ask for the values of, and the share of zeros from which larger ones are known
#: by where they are.
_SMALL, _ZEROS = 4096, 0.25

#: The place of a node's result in a block: the number of the node, and that of the result.
Place: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Repeat:
    """A run of `count` equal blocks of `length` nodes, which begins at the node `start`.

    Each block is computed from what the one before it made at the places `carried`, and from what all share. `leaves`
    are the constants and inputs that are a block's own, in the same order in each.
    """

    graph: Graph
    start: int
    length: int
    count: int
    carried: tuple[Place, ...]
    leaves: tuple[tuple[str, ...], ...]

    @property
    def inner(self) -> range:
        """The numbers of the blocks that the second stands for."""
        return range(2, self.count - 1)

    @property
    def left_out(self) -> int:
        """The number of nodes of the blocks that another one stands for."""
        return len(self.inner) * self.length

    def block(self, index: int) -> Sequence[Node]:
        """The nodes of a block."""
        begin = self.start + index * self.length
        return self.graph.nodes[begin : begin + self.length]

    def values(self, index: int) -> tuple[str, ...]:
        """The names of all that a block has of its own: its leaves, then the results of its nodes, unnamed ones too."""
        return (*self.leaves[index], *(o for node in self.block(index) for o in node.outputs))

    def counterparts(self, index: int, other: int) -> dict[str, str]:
        """The values of one block with those of another that they stand for; none where either has no name."""
        pairs = zip(self.values(index), self.values(other), strict=True)
        return {one: another for one, another in pairs if one and another}

    def titles(self, index: int, other: int) -> dict[str, str]:
        """The names of the nodes of one block, with those of the nodes of another."""
        pairs = zip(self.block(index), self.block(other), strict=True)
        return {one.name: another.name for one, another in pairs if one.name}

    def made(self, index: int) -> tuple[str, ...]:
        """The values that a block hands to the next."""
        nodes = self.block(index)
        return tuple(nodes[node].outputs[output] for node, output in self.carried)


@dataclass(frozen=True)
class Condensed:
    """A graph whose runs of equal blocks have three blocks each: the `whole`, and the `graph` without the others."""

    whole: Graph
    graph: Graph
    repeats: tuple[Repeat, ...]

    @property
    def copies(self) -> list[dict[str, str]]:
        """For each block that another one stands for, the values of that one with those they stand for."""
        return [repeat.counterparts(1, index) for repeat in self.repeats for index in repeat.inner]


def condensed(graph: Graph) -> Condensed | None:
    """A graph with three blocks of each run of equal ones, None where it has no run that is long enough."""
    repeats = tuple(repeats_of(graph))
    return Condensed(graph, _without_inner(graph, repeats), repeats) if repeats else None


def repeats_of(graph: Graph) -> list[Repeat]:
    """The runs of equal blocks of a graph, none of which overlap, in their order.

    Blocks are equal if they have the same operators, attributes, types and wires, and constants of their own of which
    rules are told the same. Runs whose blocks hold products that could be computed all at once are none: what one
    block does not need of the one before is better seen in the whole.
    """
    found: list[Repeat] = []
    labels = _labels(graph)
    for start, length, covered in _runs(labels)[:_RUNS]:
        taken = [(r.start, r.start + r.length * r.count) for r in found]
        if any(start < end and begin < start + covered for begin, end in taken):
            continue
        repeat = _Finder(graph, start, length, covered).repeat()
        if repeat is not None:
            found.append(repeat)
    return sorted(found, key=lambda repeat: repeat.start)


def _labels(graph: Graph) -> Array:
    """A number for each node, the same for nodes that may stand at one place of equal blocks."""
    numbers: dict[Any, int] = {}
    types = {value: str(graph.type(value)) for value in (*graph.types, *graph.constants)}
    labels = np.empty(len(graph.nodes), np.int64)
    for index, node in enumerate(graph.nodes):
        check()
        key: Any = index  # what is never looked into is equal to nothing
        if node.op != OPAQUE and not OPS[node.op].random:
            operands = tuple(v and (v in graph.constants, types[v]) for v in node.inputs)
            key = (node.op, node.attrs, operands, tuple(o and types[o] for o in node.outputs))
        labels[index] = numbers.setdefault(key, len(numbers))
    return labels


def _runs(labels: Array) -> list[tuple[int, int, int]]:
    """The maximal runs of labels that repeat: start, period and number of labels, those that save most first."""
    runs: list[tuple[int, int, int]] = []
    for period in range(1, len(labels) // _LEAST + 1):
        check()
        if not _may_repeat(labels, period):
            continue
        equal = np.concatenate(([0], labels[:-period] == labels[period:], [0])).astype(np.int8)
        edges = np.flatnonzero(np.diff(equal))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            covered = end - begin + period
            if covered >= _LEAST * period and (covered // period - KEPT) * period >= _FEWEST:
                runs.append((begin, period, covered))
    return sorted(runs, key=lambda run: (-(run[2] // run[1] - KEPT) * run[1], run[1], run[0]))


def _may_repeat(labels: Array, period: int) -> bool:
    """False if no run of this period is long enough, as some labels show.

    A run of five blocks has four periods of labels in a row that are equal to those a period on. Of these, sixteen a
    period are compared: n log n comparisons of n labels for all periods, where comparing all labels takes n squared.
    """
    step = -(-period // _SAMPLES)
    equal = np.concatenate(([0], labels[:-period:step] == labels[period::step], [0])).astype(np.int8)
    edges = np.flatnonzero(np.diff(equal))
    return bool((edges[1::2] - edges[::2]).max(initial=0) >= (_LEAST - 1) * period // step)


@dataclass(frozen=True)
class _Wires:
    """The operands of a block: "inside" and "before" with a place, or "leaf" with the number of a value by first use.

    `leaves` are the values that are read as such.
    """

    operands: tuple[tuple[str, Any], ...]
    leaves: tuple[str, ...]


class _Finder:
    """Finds where the blocks of a run of labels begin: where they hand on least."""

    def __init__(self, graph: Graph, start: int, length: int, covered: int) -> None:
        self.graph, self.start, self.length, self.covered = graph, start, length, covered
        self.outputs = set(graph.outputs.values())

    @cached_property
    def made_by(self) -> Mapping[str, Place]:
        """The node, by its number, and the output of it that each value is."""
        return {o: (i, k) for i, n in enumerate(self.graph.nodes) for k, o in enumerate(n.outputs) if o}

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """The numbers of the nodes that read each value."""
        found: dict[str, list[int]] = {}
        for index, node in enumerate(self.graph.nodes):
            for value in node.inputs:
                if value is not None:
                    found.setdefault(value, []).append(index)
        return {value: tuple(nodes) for value, nodes in found.items()}

    def repeat(self) -> Repeat | None:
        """The run of blocks that hands on least from one to the next, None where there is none."""
        starts = range(self.start, self.start + min(self.length, self.covered - _LEAST * self.length + 1))
        order = sorted(starts, key=lambda start: (self._handed_on(start), -self._count(start), start))
        for start in order[:_ROTATIONS]:
            repeat = self._at(start)
            if repeat is not None and repeat.left_out >= _FEWEST:
                return repeat
        return None

    def _count(self, start: int) -> int:
        return (self.start + self.covered - start) // self.length

    def _handed_on(self, start: int) -> int:
        """The number of values that pass from the second of the blocks that begin there to the third."""
        begin, end = start + self.length, start + 2 * self.length
        made = (o for node in self.graph.nodes[begin:end] for o in node.outputs if o)
        return sum(any(reader >= end for reader in self.readers.get(value, ())) for value in made)

    def _at(self, start: int) -> Repeat | None:
        """The run of blocks that begins at a node, None where its blocks are not equal."""
        count = self._count(start)
        wires = [self._wires(start, index) for index in range(count)]
        second = wires[1]
        if second is None:
            return None
        carried = tuple(sorted({place for kind, place in second.operands if kind == "before"}))
        if not carried or any(one is None or one.operands != second.operands for one in wires[2:]):
            return None
        first = self._first(start, second)
        if first is None or not self._is_chain(start, count):
            return None
        known = [first, *(one.leaves for one in wires[1:] if one is not None)]
        leaves = self._own(start, known)
        if not leaves or not leaves[0] or self._may_be_joined(start, second, leaves):
            return None
        return Repeat(self.graph, start, self.length, count, carried, leaves)

    def _wires(self, start: int, index: int) -> _Wires | None:
        """The operands of a block, None where it reads what a block before the last one made."""
        begin = start + index * self.length
        operands: list[tuple[str, Any]] = []
        leaves: dict[str, int] = {}
        for node in self.graph.nodes[begin : begin + self.length]:
            check()
            for value in node.inputs:
                if value is None:
                    operands.append(("none", 0))
                    continue
                number, output = self.made_by.get(value, (-1, 0))
                if number >= begin:
                    operands.append(("inside", (number - begin, output)))
                elif index and number >= begin - self.length:
                    operands.append(("before", (number - begin + self.length, output)))
                elif number >= start:
                    return None
                else:
                    operands.append(("leaf", leaves.setdefault(value, len(leaves))))
        return _Wires(tuple(operands), tuple(leaves))

    def _first(self, start: int, second: _Wires) -> tuple[str, ...] | None:
        """The leaves of the first block in the others' order; None where it is not wired as they are.

        One value stands for each that others read of the block before.
        """
        entries: dict[Place, str] = {}
        leaves: dict[int, str] = {}
        values = [v for node in self.graph.nodes[start : start + self.length] for v in node.inputs]
        for value, (kind, place) in zip(values, second.operands, strict=True):
            known: dict[Any, str] = entries if kind == "before" else leaves
            if kind == "inside":
                number, output = self.made_by.get(value or "", (-1, 0))
                if (number - start, output) != place:
                    return None
            elif kind != "none" and (
                value is None or self.made_by.get(value, (-1, 0))[0] >= start or known.setdefault(place, value) != value
            ):
                return None
        return tuple(leaves[number] for number in range(len(leaves)))

    def _is_chain(self, start: int, count: int) -> bool:
        """True if no block but the last is read by others than the next; outputs of the graph may be made anywhere."""
        for index in range(start, start + (count - 1) * self.length):
            end = start + ((index - start) // self.length + 2) * self.length
            for value in self.graph.nodes[index].outputs:
                if any(reader >= end for reader in self.readers.get(value, ())):
                    return False
        return True

    def _own(self, start: int, leaves: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
        """The leaves that each block has for itself; none where others read them too, or rules can tell them apart."""
        own: list[int] = []
        for place, names in enumerate(zip(*leaves, strict=True)):
            if len(set(names)) == 1:
                continue
            if len(set(names)) < len(names) or not self._alike(names):
                return ()
            begins = range(start, start + len(names) * self.length, self.length)
            for begin, name in zip(begins, names, strict=True):
                if name in self.outputs or any(not begin <= r < begin + self.length for r in self.readers[name]):
                    return ()
            own.append(place)
        return tuple(tuple(block[place] for place in own) for block in leaves)

    def _alike(self, names: Sequence[str]) -> bool:
        """True if leaves at one place of all blocks are inputs, or constants of which rules are told the same.

        Those of the first and of the last block are looked at by themselves.
        """
        constants = self.graph.constants
        if any(self.graph.type(name) != self.graph.type(names[0]) for name in names):
            return False
        if all(name in constants for name in names):
            told = _told(constants[names[1]])
            return all(_told(constants[name]) == told for name in names[2:-1])
        return all(name in self.graph.inputs for name in names)

    def _may_be_joined(self, start: int, second: _Wires, own: Sequence[Sequence[str]]) -> bool:
        """True if blocks hold products of values that none of them waits for: those of all can be computed at once."""
        begin = start + self.length
        waits: set[str] = set()
        given: set[str] = set(own[1]) | set(self.graph.constants)
        operands = iter(second.operands)
        for node in self.graph.nodes[begin : begin + self.length]:
            kinds = [next(operands)[0] for _ in node.inputs]
            names = [v for v in node.inputs if v is not None]
            made = {o for o in node.outputs if o}
            if "before" in kinds or not waits.isdisjoint(names):
                waits |= made
            elif given.issuperset(names) and not set(names).intersection(self.graph.inputs):
                given |= made
            elif OPS[node.op].product:
                return True
        return False


def _told(constant: Constant) -> tuple[Any, ...]:
    """All that rules may be told of a constant, but for the elements of one that has many different ones."""
    known: tuple[Any, ...] = (constant.type, constant.is_finite)
    if not constant.type.dtype.is_float or constant.nbytes <= constant.type.dtype.itemsize:
        return (*known, constant.digest)
    zeros = constant.array == 0
    # Rules ask for matrices that select, add up, or have blocks: all have more zeros than numbers that are drawn.
    form = np.packbits(zeros).tobytes() if zeros.mean() >= _ZEROS else b""
    known = (*known, constant.diagonal, form)
    if constant.nbytes > _SMALL * constant.type.dtype.itemsize:
        return known
    elements = constant.array.astype(np.float64).ravel()
    first = elements[0].item() if (elements == elements[0]).all() else None
    with np.errstate(invalid="ignore"):
        signs = bool((elements > 0).all()), bool((elements < 0).all()), bool((elements == 0).any())
    return (*known, first, *signs, constant.attends)


def _without_inner(graph: Graph, repeats: Sequence[Repeat]) -> Graph:
    """A graph without the inner blocks of runs, but for the first of each: what it hands on goes to the last block."""
    gone: set[str] = set()
    nodes: set[int] = set()
    renamed: dict[str, str] = {}
    for repeat in repeats:
        for index in repeat.inner:
            gone.update(v for v in repeat.values(index) if v)
        nodes.update(range(repeat.start + 2 * repeat.length, repeat.start + (repeat.count - 1) * repeat.length))
        renamed |= dict(zip(repeat.made(repeat.count - 2), repeat.made(1), strict=True))
    kept = tuple(
        replace(node, inputs=tuple(v and renamed.get(v, v) for v in node.inputs))
        for index, node in enumerate(graph.nodes)
        if index not in nodes
    )
    return replace(
        graph,
        inputs=tuple(v for v in graph.inputs if v not in gone),
        outputs={name: value for name, value in graph.outputs.items() if value not in gone},
        nodes=kept,
        constants={name: constant for name, constant in graph.constants.items() if name not in gone},
        types={name: type for name, type in graph.types.items() if name not in gone},
    ).without_dead()
