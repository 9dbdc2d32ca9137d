"""Costs of the e-nodes of a tensor e-graph, in each implementation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.costs.kernels.implementations import Choices, implementations
from eqsat.costs.model.cost import Cost
from eqsat.costs.model.model import CostModel
from eqsat.egraph.egraph import ABSENT, CONST, INPUT, OPAQUE, PROJECTION
from eqsat.egraph.snapshot import Snapshot, SnapshotNode, may_derive
from eqsat.language.ops import spec
from eqsat.language.terms import OPAQUE as OPAQUE_NODE
from eqsat.language.terms import PLAIN, Attrs, Implementation, State, TensorType

#: Amount that a byte of derived weights adds to the objective: too little to matter, but it breaks ties for fewer
#: bytes.
_BYTE = 1e-15

#: The ways to split a tensor along an axis that are offered.
_MOST_SPLITS = 4

Priced = tuple[float, Cost]
"""The price of a cost by the objective, and the cost."""


@dataclass(frozen=True, slots=True)
class Split:
    """Slices of the class `source`, as positions in the order of their elements, that are the results of one split."""

    source: int
    attrs: Attrs
    positions: tuple[int, ...]
    price: float
    cost: Cost


@dataclass(frozen=True, slots=True)
class KernelOption:
    """E-nodes run as one kernel, as positions in the snapshot with operands first: the last makes the result.

    `links` says for each which earlier one makes each of its operands, None for one that is read from memory. With
    `split` they are the results of that one operator instead, in a class of its own that each of them is read from.
    `fetch` is no kernel, but the time to bring a constant into the caches, in a class of its own that kernels which
    share the constant need. One that is `stated` is written as its e-nodes: a runtime makes a kernel of them by itself.
    """

    positions: tuple[int, ...]
    cost: Cost
    implementations: tuple[Implementation, ...] = ()
    links: tuple[tuple[int | None, ...], ...] = ()
    split: Split | None = None
    fetch: bool = False
    stated: bool = False


class Pricing:
    """Prices under a cost model; `derived` are the constant classes that are computed at compile time.

    `splits` are slices that together are a whole tensor, and so can be made at once. A constant too large to derive is
    computed when the program runs.
    """

    def __init__(self, snapshot: Snapshot, model: CostModel) -> None:
        self.snapshot, self.model = snapshot, model
        self._implementations: dict[Any, tuple[Implementation, ...]] = {}
        self.derived = self._derived()
        self.splits = tuple(self._splits())

    def operator(self, position: int, implementation: Implementation | None = None) -> Priced:
        """An e-node run as a kernel of its own; `implementation` is None for the plain one."""
        node = self.snapshot.nodes[position]
        if node.op in (INPUT, CONST, ABSENT, PROJECTION):
            return 0.0, Cost()
        op = OPAQUE_NODE if node.op == OPAQUE else node.op
        operands, results, const = self.types(node), self.results(node), self.constants(node)
        cost = self.model.node(op, node.attrs, operands, results, const, implementation)
        if self.model.cost is None:
            return self.model.weigh(cost), cost
        return self.model.price(op, node.attrs, operands, results, const, implementation), cost

    def implementations(self, node: SnapshotNode, choices: Choices) -> tuple[Implementation, ...]:
        """The implementations of an e-node."""
        operands, results, const = tuple(self.types(node)), tuple(self.results(node)), tuple(self.constants(node))
        question = (node.op, node.attrs, operands, results, const)
        if question not in self._implementations:
            self._implementations[question] = implementations(node.op, node.attrs, operands, results, const, choices)
        return self._implementations[question]

    def constant(self, leader: int, state: State = PLAIN) -> Priced:
        """A constant class held in a state."""
        cost = self.model.constant(self.type(leader), state)
        weighed = 0.0 if self.model.cost is not None else self.model.weigh(cost)
        return weighed + self.derived.get(leader, 0.0), cost

    def types(self, node: SnapshotNode) -> list[TensorType | None]:
        """The types of a node's operands."""
        return [self.type(k) for k in node.operands]

    def results(self, node: SnapshotNode) -> list[TensorType | None]:
        """The types of a node's results."""
        return [t if isinstance(t, TensorType) else None for t in node.types]

    def constants(self, node: SnapshotNode) -> list[bool]:
        """For each operand, whether it is known before the program runs."""
        return [self.snapshot.classes[k].constant for k in node.operands]

    def type(self, leader: int) -> TensorType | None:
        """The type of a class, where it is a tensor's."""
        found = self.snapshot.classes[leader].type
        return found if isinstance(found, TensorType) else None

    def _derived(self) -> dict[int, float]:
        """The constant classes small enough to derive, and the amounts that break ties between them."""
        prices: dict[int, float] = {}
        sizes: dict[int, int] = {}
        sources: dict[int, frozenset[int]] = {}
        for leader, position in self.snapshot.recipes.items():
            node, type = self.snapshot.nodes[position], self.snapshot.classes[leader].type
            size = _bytes(type)
            if node.op == CONST:
                prices[leader], sizes[leader], sources[leader] = 0.0, size, frozenset((leader,))
                continue
            absent = [k for k in node.operands if k not in self.snapshot.recipes]
            if all(k in prices or k in absent for k in node.operands):
                sources[leader] = frozenset[int]().union(*(sources.get(k, frozenset()) for k in node.operands))
                if may_derive(size, sum(sizes[k] for k in sources[leader])):
                    prices[leader] = _BYTE * size
        return prices

    def _splits(self) -> Iterator[Split]:
        groups: dict[tuple[int, int], dict[int, dict[int, int]]] = {}
        for position, node in enumerate(self.snapshot.nodes):
            if node.op == "slice" and len(node.attrs["axes"]) == 1 and node.attrs["steps"] == (1,):
                start, end = node.attrs["starts"][0], node.attrs["ends"][0]
                if isinstance(start, int) and isinstance(end, int):
                    cuts = groups.setdefault((node.operands[0], node.attrs["axes"][0]), {})
                    cuts.setdefault(start, {})[end] = position
        for (source, axis), cuts in groups.items():
            type = self.type(source)
            if type is None or type.shape is None or source in self.derived:
                continue
            for chain in itertools.islice(_chains(cuts, type.dims[axis]), _MOST_SPLITS):
                attrs = spec("split").complete({"axis": axis, "sizes": tuple(b - a for a, b, _ in chain)})
                results = spec("split").result_types([type], attrs)
                price = self.model.price("split", attrs, [type], results, [False])
                cost = self.model.node("split", attrs, [type], results, [False])
                yield Split(source, attrs, tuple(position for _, _, position in chain), price, cost)


def _chains(cuts: Mapping[int, Mapping[int, int]], dim: object) -> Iterator[list[tuple[int, int, int]]]:
    """The ways to follow an axis from 0 to its end by two pieces (start, end, position) or more, smaller pieces first.

    `cuts` have the position of each piece, by where it starts and where it ends.
    """
    if not isinstance(dim, int):
        return
    arrives = {dim}  # the places from which the end can be reached
    for start in sorted(cuts, reverse=True):
        if any(start < end and end in arrives for end in cuts[start]):
            arrives.add(start)
    stack: list[list[tuple[int, int, int]]] = [[]]
    while stack:
        chain = stack.pop()
        start = chain[-1][1] if chain else 0
        if start == dim:
            if len(chain) > 1:
                yield chain
            continue
        ends = sorted((end for end in cuts.get(start, ()) if start < end and end in arrives), reverse=True)
        stack += [[*chain, (start, end, cuts[start][end])] for end in ends]


def _bytes(type: object) -> int:
    if not isinstance(type, TensorType) or not type.is_static:
        return 0
    return type.elements({}) * type.dtype.itemsize
