"""The cost of operators and graphs on a device: measured where the table knows, else estimated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from eqsat.costs.cost import TERMS, Cost
from eqsat.costs.device import Device
from eqsat.costs.entry import Entry
from eqsat.costs.environment import Environment
from eqsat.costs.fit import Fit
from eqsat.costs.key import OpKey
from eqsat.costs.table import CostTable
from eqsat.costs.work import work_of
from eqsat.errors import CostError, UsageError
from eqsat.language.graph import OPAQUE, Graph, Node
from eqsat.language.spec import OPS
from eqsat.language.types import TensorType

#: What a named dim is costed at where `sizes` does not say.
DEFAULT_SIZE = 16


@dataclass(frozen=True)
class Application:
    """An operator applied to typed operands, and its cost: what a user's own cost function is given."""

    op: str
    attrs: Mapping[str, Any]
    operands: tuple[TensorType | None, ...]
    results: tuple[TensorType | None, ...]
    const_operands: tuple[bool, ...]
    cost: Cost


Objective: TypeAlias = "Mapping[str, float] | Callable[[Application], float]"


@dataclass(frozen=True)
class GraphCost:
    """The cost of a graph: the sum over its nodes, its price under the objective, and each node's own."""

    total: Cost
    price: float
    nodes: tuple[tuple[Node, Cost], ...]

    @property
    def estimated_share(self) -> float:
        """The share of the seconds that is estimated, from 0 to 1."""
        if not self.total.seconds:
            return 0.0
        return sum(c.seconds for _, c in self.nodes if c.estimated) / self.total.seconds


class Sizes(dict[str, int]):
    """Sizes of named dims; DEFAULT_SIZE for a name that is not given."""

    def __missing__(self, name: str) -> int:
        return DEFAULT_SIZE


class CostModel:
    """Costs on one device.

    `objective` weighs the terms time (seconds), flops, bytes, launches and weight_bytes, or is a function from an
    Application to a number that is finite and not negative. `sizes` says what a named dim is costed at. A time comes
    from `table` where the operator was measured in this environment, else from the device's roofline, fitted to
    what the table holds, and is marked as estimated.

    A sum over operators cannot know what a backend does across them: ONNX Runtime folds a batch normalisation into the
    convolution before it, fuses patterns such as layer normalisation from its parts, and keeps a layout of its own
    between convolutions. Nor does it know times that depend on data: a softmax over masked scores takes ten times as
    long as one over small numbers. So finalists are measured whole.
    """

    def __init__(
        self,
        device: Device | str = "onnxruntime-cpu",
        table: CostTable | None = None,
        objective: Objective | None = None,
        sizes: Mapping[str, int] | None = None,
        *,
        threads: int = 1,
    ) -> None:
        self.device = Device.of(device) if isinstance(device, str) else device
        self.objective: Objective = {"time": 1.0} if objective is None else objective
        _check_objective(self.objective)
        self.sizes = Sizes(sizes or {})
        self.environment = Environment.current(self.device.name, threads)
        measured = table.entries(self.environment) if table is not None and self.device.kind == "measured" else {}
        self._measured: Mapping[str, Entry] = measured
        self._fit = Fit(self.device, measured)
        self._costs: dict[Any, Cost] = {}

    def node(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operand_types: Sequence[TensorType | None],
        result_types: Sequence[TensorType | None],
        const_operands: Sequence[bool],
    ) -> Cost:
        """The cost of one operator; nothing for constants and for what constants alone decide."""
        operands, results, const = tuple(operand_types), tuple(result_types), tuple(const_operands)
        question = (op, attrs, operands, results, const)
        try:
            known = self._costs.get(question)
        except TypeError:  # attributes given as a plain dict
            return self._cost(op, attrs, operands, results, const)
        if known is None:
            known = self._costs[question] = self._cost(op, attrs, operands, results, const)
        return known

    def price(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operand_types: Sequence[TensorType | None],
        result_types: Sequence[TensorType | None],
        const_operands: Sequence[bool],
    ) -> float:
        """What the objective makes of the cost of one operator."""
        cost = self.node(op, attrs, operand_types, result_types, const_operands)
        if not callable(self.objective):
            return float(sum(weight * getattr(cost, TERMS[term]) for term, weight in self.objective.items()))
        applied = Application(op, attrs, tuple(operand_types), tuple(result_types), tuple(const_operands), cost)
        price = float(self.objective(applied))
        if not (math.isfinite(price) and price >= 0):
            raise CostError(
                f"the objective gives {price} for {op}",
                expected="a finite number of 0 or more for every operator",
                remedy="change the function passed as objective",
            )
        return price

    def graph(self, graph: Graph) -> GraphCost:
        """The cost of a whole graph, node by node."""
        nodes: list[tuple[Node, Cost]] = []
        total, price = Cost(), 0.0
        for node, operands, results, const in applications(graph):
            cost = self.node(node.op, node.attrs, operands, results, const)
            price += self.price(node.op, node.attrs, operands, results, const)
            total += cost
            nodes.append((node, cost))
        return GraphCost(total, price, tuple(nodes))

    def _cost(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operands: tuple[TensorType | None, ...],
        results: tuple[TensorType | None, ...],
        const: tuple[bool, ...],
    ) -> Cost:
        if is_free(op, operands, const):
            return Cost()
        key = OpKey.of(op, attrs, operands, const, self.sizes)
        work = work_of(op, key.attrs, key.operands, [None if t is None else t.at(self.sizes) for t in results], const)
        declared = OPS.get(op)
        if declared is not None and declared.view:
            return Cost(seconds=0.0 if op == "identity" else self.device.view, estimated=True)
        entry = self._measured.get(key.text) if self._measured and key.is_measurable else None
        if entry is not None:
            return Cost(entry.seconds, work.flops, work.bytes, 1, work.weight_bytes)
        return Cost(self._fit.seconds(work), work.flops, work.bytes, 1, work.weight_bytes, estimated=True)


def is_free(op: str, operands: Sequence[TensorType | None], const_operands: Sequence[bool]) -> bool:
    """True for a term without data: a constant, or what constants alone decide, computed before the program runs."""
    declared = OPS.get(op)
    if op == OPAQUE or (declared is not None and declared.random):
        return False
    settled = all(const or t is None for t, const in zip(operands, const_operands, strict=True))
    return settled and (any(const_operands) or not operands)


Applied: TypeAlias = "tuple[Node, tuple[TensorType | None, ...], tuple[TensorType | None, ...], tuple[bool, ...]]"


def applications(graph: Graph) -> list[Applied]:
    """Every node with the types of its operands and results, and which operands constants alone decide."""
    const = set(graph.constants)
    found: list[Applied] = []
    for node in graph.nodes:
        operands = tuple(_tensor(graph, v) for v in node.inputs)
        flags = tuple(v in const for v in node.inputs)
        results = tuple(_tensor(graph, v) for v in node.outputs if v)
        found.append((node, operands, results, flags))
        if is_free(node.op, operands, flags):
            const |= {o for o in node.outputs if o}
    return found


def keys_of(graph: Graph, sizes: Mapping[str, int] | None = None) -> tuple[OpKey, ...]:
    """The distinct keys of a graph's operators that can be measured, in the order of first use."""
    chosen = Sizes(sizes or {})
    keys: dict[OpKey, None] = {}
    for node, operands, _, const in applications(graph):
        if node.op == OPAQUE or is_free(node.op, operands, const) or OPS[node.op].view:
            continue
        unknown = any(v is not None and t is None for v, t in zip(node.inputs, operands, strict=True))
        key = OpKey.of(node.op, node.attrs, operands, const, chosen)
        if not unknown and key.is_measurable:
            keys.setdefault(key)
    return tuple(keys)


def _tensor(graph: Graph, value: str | None) -> TensorType | None:
    found = None if value is None else graph.type(value)
    return found if isinstance(found, TensorType) else None


def _check_objective(objective: Objective) -> None:
    if callable(objective):
        return
    for term, weight in objective.items():
        if term not in TERMS:
            raise UsageError(
                f"objective has no term {term!r}",
                expected="terms of " + ", ".join(TERMS),
                remedy="pass for example {'time': 1.0}, or a function of one operator",
            )
        if not (math.isfinite(weight) and weight >= 0):
            raise UsageError(f"objective weighs {term} by {weight}", expected="finite weights of 0 or more")
    if not any(objective.values()):
        raise UsageError("objective weighs nothing", expected="at least one weight above 0")
