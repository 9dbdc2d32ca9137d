"""The cost of running something once, as a vector that adds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType

from eqsat.errors import UsageError, nearest
from eqsat.language.terms.graph import Node


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, arithmetic operations, bytes moved, kernels launched, bytes of constants, and error of rounding.

    `weight_bytes` belong to constants, each of which is there once however many read it; `error` is the relative change
    by rounding to a lower precision: errors of independent roundings add as the root of the sum of their squares
    (docs/adr/0037). `estimated` is True where any part of `seconds` comes from a
    roofline instead of a measurement, `borrowed` where any comes from a measurement in another environment. Costs form
    a monoid: `Cost()` is the identity, addition is associative and commutative.

    >>> (Cost(seconds=1.0) + Cost(seconds=2.0, launches=1, estimated=True)).seconds
    3.0
    """

    seconds: float = 0.0
    flops: int = 0
    bytes: int = 0
    launches: int = 0
    weight_bytes: int = 0
    error: float = 0.0
    estimated: bool = False
    borrowed: bool = False

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.seconds + other.seconds,
            self.flops + other.flops,
            self.bytes + other.bytes,
            self.launches + other.launches,
            self.weight_bytes + other.weight_bytes,
            math.hypot(self.error, other.error),
            self.estimated or other.estimated,
            self.borrowed or other.borrowed,
        )


def added(costs: Iterable[Cost]) -> Cost:
    """The sum of many costs, from the first to the last."""
    seconds, flops, moved, launches, weights, error, estimated, borrowed = 0.0, 0, 0, 0, 0, 0.0, False, False
    for cost in costs:
        seconds += cost.seconds
        flops += cost.flops
        moved += cost.bytes
        launches += cost.launches
        weights += cost.weight_bytes
        error += cost.error * cost.error
        estimated = estimated or cost.estimated
        borrowed = borrowed or cost.borrowed
    return Cost(seconds, flops, moved, launches, weights, math.sqrt(error), estimated, borrowed)


def average(costs: Iterable[tuple[float, Cost]]) -> Cost:
    """The mean of costs with their shares, which add up to 1; whole numbers stay whole.

    >>> average([(0.5, Cost(seconds=1.0, launches=1)), (0.5, Cost(seconds=3.0, launches=1))])
    Cost(seconds=2.0, flops=0, bytes=0, launches=1, weight_bytes=0, error=0.0, estimated=False, borrowed=False)
    """
    parts = list(costs)
    return Cost(
        math.fsum(share * cost.seconds for share, cost in parts),
        round(math.fsum(share * cost.flops for share, cost in parts)),
        round(math.fsum(share * cost.bytes for share, cost in parts)),
        round(math.fsum(share * cost.launches for share, cost in parts)),
        round(math.fsum(share * cost.weight_bytes for share, cost in parts)),
        math.fsum(share * cost.error for share, cost in parts),
        any(cost.estimated for _, cost in parts),
        any(cost.borrowed for _, cost in parts),
    )


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

    @property
    def borrowed_share(self) -> float:
        """The share of the seconds that was measured in another environment, from 0 to 1."""
        if not self.total.seconds:
            return 0.0
        return sum(c.seconds for _, c in self.nodes if c.borrowed and not c.estimated) / self.total.seconds


#: The terms that add up over the parts of a graph, and the field of Cost each name stands for.
TERMS: Mapping[str, str] = MappingProxyType(
    {
        "time": "seconds",
        "flops": "flops",
        "bytes": "bytes",
        "launches": "launches",
        "weight_memory": "weight_bytes",
        "error": "error",
    }
)


def additive(term: str, amount: float) -> float:
    """The quantity that adds up of an amount: the square of an error, else the amount itself."""
    return amount * amount if term == "error" else amount


def readable(amounts: Mapping[str, float]) -> dict[str, float]:
    """Amounts from quantities that were added up.

    >>> readable({"error": additive("error", 0.3) + additive("error", 0.4), "launches": 2.0})
    {'error': 0.5, 'launches': 2.0}
    """
    return {term: math.sqrt(value) if term == "error" else value for term, value in amounts.items()}


#: The term that depends on the order in which a graph is computed.
PEAK_MEMORY = "peak_memory"


def check_terms(terms: Iterable[str]) -> None:
    """UsageError for a term that an objective cannot have."""
    known = (*TERMS, PEAK_MEMORY)
    for term in terms:
        if term not in known:
            raise UsageError(
                f"objective has no term {term!r}",
                expected="terms of " + ", ".join(known),
                remedy=nearest(term, known) or "pass for example {'time': 1.0}, or a function of one operator as cost=",
            )


def check_objective(objective: Mapping[str, float]) -> None:
    """UsageError for weights that are no objective."""
    if not isinstance(objective, Mapping):
        raise UsageError(
            f"objective = {objective!r}",
            expected="weights of terms, such as {'time': 1.0}",
            remedy="pass a function of one operator as cost=",
        )
    check_terms(objective)
    for term, weight in objective.items():
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not (number and math.isfinite(weight) and weight >= 0):
            raise UsageError(f"objective weighs {term} by {weight!r}", expected="finite weights of 0 or more")
    if not any(objective.values()):
        raise UsageError("objective weighs nothing", expected="at least one weight above 0")
