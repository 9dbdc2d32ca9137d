"""The extraction problem of a tensor e-graph under a cost model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from eqsat.costs.model import CostModel
from eqsat.egraph.egraph import ABSENT, CONST, INPUT, OPAQUE, PROJECTION
from eqsat.egraph.snapshot import Snapshot, SnapshotNode, may_derive
from eqsat.extract.problem import Node, Problem
from eqsat.extract.solution import Solution
from eqsat.language.graph import OPAQUE as OPAQUE_NODE
from eqsat.language.graph import Attrs
from eqsat.language.onnx.availability import lacking
from eqsat.language.spec import OPS, spec
from eqsat.language.types import TensorType
from eqsat.rewrites.definitions import definition

#: Whether an operator on operands of these types runs where the result will run.
Available: TypeAlias = Callable[[str, Sequence[TensorType | None]], bool]
#: What a byte of derived weights adds to the objective: too little to matter, but it settles ties for the smaller.
_BYTE = 1e-15


@dataclass(frozen=True)
class TensorProblem:
    """A problem with the way back: `positions` says which e-node of the snapshot each node of the problem is."""

    problem: Problem
    snapshot: Snapshot
    leaders: tuple[int, ...]
    positions: tuple[int, ...]

    def choice(self, solution: Solution) -> dict[int, int]:
        """For each class the position of its e-node in the snapshot; derived constants with what they are made of."""
        chosen = {self.leaders[eclass]: self.positions[node] for (eclass, _), node in solution.chosen.items()}
        stack = [leader for leader in chosen if chosen[leader] == self.snapshot.recipes.get(leader)]
        while stack:
            for operand in self.snapshot.nodes[chosen[stack.pop()]].operands:
                if operand not in chosen:
                    recipes = self.snapshot.recipes
                    chosen[operand] = recipes.get(operand, self.snapshot.classes[operand].nodes[0])
                    stack.append(operand)
        return chosen


def tensor_problem(
    snapshot: Snapshot, model: CostModel, available: Available = lambda op, operands: True
) -> TensorProblem:
    """Every e-node priced by the objective; a class known before the program runs costs nothing then.

    Slices that together are a whole tensor are priced as the split they come out as, so the bound of a solution holds
    for the graph it becomes. A constant too large to derive is computed when the program runs. Operators that are not
    `available` where the result will run are chosen only where the original has them.
    """
    pricing = _Pricing(snapshot, model)
    given = frozenset(n.op for n in snapshot.nodes if n.original is not None)
    leaders = tuple(sorted(snapshot.classes))
    index = {leader: i for i, leader in enumerate(leaders)}
    nodes: list[Node] = []
    positions: list[int] = []
    for leader in leaders:
        if leader in pricing.derived:
            recipe = snapshot.recipes[leader]
            nodes.append(Node(index[leader], (), pricing.derived[leader], name=snapshot.nodes[recipe].op))
            positions.append(recipe)
            continue
        for position in snapshot.classes[leader].nodes:
            node = snapshot.nodes[position]
            if (
                node.original is None
                and node.op in OPS
                and not (_runs(node, given) and available(node.op, pricing.types(node)))
            ):
                continue
            operands = tuple((index[k], 0) for k in dict.fromkeys(node.operands))
            nodes.append(Node(index[leader], operands, pricing.price(position, node), name=node.op))
            positions.append(position)
    nodes, positions = _with_operands(nodes, positions)
    roots = [(index[leader], 0) for leader in dict.fromkeys(snapshot.roots.values())]
    return TensorProblem(Problem(nodes, roots), snapshot, leaders, tuple(positions))


def _with_operands(nodes: list[Node], positions: list[int]) -> tuple[list[Node], list[int]]:
    """The nodes whose operands can be made by some node: a class of which no e-node is available is none to rely on."""
    while True:
        made = {n.eclass for n in nodes}
        kept = [i for i, n in enumerate(nodes) if all(c in made for c, _ in n.operands)]
        if len(kept) == len(nodes):
            return nodes, positions
        nodes, positions = [nodes[i] for i in kept], [positions[i] for i in kept]


def _runs(node: SnapshotNode, given: frozenset[str]) -> bool:
    """False for terms that are only ever computed at compile time, such as enlarge of a filter.

    A user's operator runs where one is among those `given`, or a law of its declaration says how to write it out.
    """
    declared = OPS[node.op]
    if declared.onnx is not None or not node.operands:
        return True
    return not declared.is_shipped and (node.op in given or definition(node.op, lacking()) is not None)


class _Pricing:
    def __init__(self, snapshot: Snapshot, model: CostModel) -> None:
        self.snapshot, self.model = snapshot, model
        self.derived = self._derived()
        self.pieces = self._pieces()

    def price(self, position: int, node: SnapshotNode) -> float:
        if node.op in (INPUT, CONST, ABSENT, PROJECTION):
            return 0.0
        if position in self.pieces:
            return self.pieces[position]
        op = OPAQUE_NODE if node.op == OPAQUE else node.op
        operands = self.types(node)
        const = [self.snapshot.classes[k].constant for k in node.operands]
        results = [t if isinstance(t, TensorType) else None for t in node.types]
        return self.model.price(op, node.attrs, operands, results, const)

    def types(self, node: SnapshotNode) -> list[TensorType | None]:
        """The types of a node's operands."""
        return [self._type(k) for k in node.operands]

    def _type(self, leader: int) -> TensorType | None:
        found = self.snapshot.classes[leader].type
        return found if isinstance(found, TensorType) else None

    def _derived(self) -> dict[int, float]:
        """The constant classes small enough to derive, and their price."""
        prices: dict[int, float] = {}
        base: dict[int, int] = {}
        for leader, position in self.snapshot.recipes.items():
            node, type = self.snapshot.nodes[position], self.snapshot.classes[leader].type
            size = _bytes(type)
            if node.op == CONST:
                prices[leader], base[leader] = 0.0, size
                continue
            absent = [k for k in node.operands if k not in self.snapshot.recipes]
            if all(k in prices or k in absent for k in node.operands):
                base[leader] = sum(base.get(k, 0) for k in node.operands)
                if may_derive(size, base[leader]):
                    prices[leader] = _BYTE * size
        return prices

    def _pieces(self) -> dict[int, float]:
        """Slices that tile an axis, each with its part of the price of the split."""
        groups: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        for position, node in enumerate(self.snapshot.nodes):
            if node.op == "slice" and len(node.attrs["axes"]) == 1 and node.attrs["steps"] == (1,):
                start, end = node.attrs["starts"][0], node.attrs["ends"][0]
                if isinstance(start, int) and isinstance(end, int):
                    groups.setdefault((node.operands[0], node.attrs["axes"][0]), {})[start] = (end, position)
        prices: dict[int, float] = {}
        for (source, axis), cuts in groups.items():
            type = self._type(source)
            chain = _chain(cuts, type.dims[axis]) if type is not None and type.shape is not None else []
            if len(chain) < 2 or type is None or source in self.derived:
                continue
            attrs = spec("split").complete({"axis": axis, "sizes": tuple(b - a for a, b, _ in chain)})
            prices |= self._shares(type, attrs, [position for _, _, position in chain])
        return prices

    def _shares(self, type: TensorType, attrs: Attrs, positions: list[int]) -> dict[int, float]:
        results = spec("split").result_types([type], attrs)
        whole = self.model.price("split", attrs, [type], results, [False])
        alone = {
            p: self.model.price("slice", self.snapshot.nodes[p].attrs, [type], [r], [False])
            for p, r in zip(positions, results, strict=True)
        }
        return {p: min(whole / len(positions), alone[p]) for p in positions}


def _chain(cuts: Mapping[int, tuple[int, int]], dim: object) -> list[tuple[int, int, int]]:
    """Pieces (start, end, position) that follow each other from 0 to the end of an axis; none where they do not."""
    chain: list[tuple[int, int, int]] = []
    start = 0
    while start in cuts and start != dim:
        end, position = cuts[start]
        if end <= start:
            return []
        chain.append((start, end, position))
        start = end
    return chain if start == dim else []


def _bytes(type: object) -> int:
    if not isinstance(type, TensorType) or not type.is_static:
        return 0
    return type.elements({}) * type.dtype.itemsize
