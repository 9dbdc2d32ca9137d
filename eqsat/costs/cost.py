"""What running something once costs, as a vector that adds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from types import MappingProxyType

from eqsat.errors import UsageError


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, arithmetic operations, bytes moved, kernels launched, bytes of constants, and error of rounding.

    `weight_bytes` belong to constants, each of which is there once however many read it; `error` is what rounding to a
    lower precision may change, relative to the values, to first order. `estimated` is True where any part of `seconds`
    comes from a roofline instead of a measurement. Costs form a monoid:
    `Cost()` is the identity, addition is associative and commutative.

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

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.seconds + other.seconds,
            self.flops + other.flops,
            self.bytes + other.bytes,
            self.launches + other.launches,
            self.weight_bytes + other.weight_bytes,
            self.error + other.error,
            self.estimated or other.estimated,
        )


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
#: The term that depends on the order in which a graph is computed.
PEAK_MEMORY = "peak_memory"


def check_objective(objective: Mapping[str, float]) -> None:
    """UsageError for weights that are no objective."""
    if not isinstance(objective, Mapping):
        raise UsageError(
            f"objective = {objective!r}",
            expected="weights of terms, such as {'time': 1.0}",
            remedy="pass a function of one operator as cost=",
        )
    known = (*TERMS, PEAK_MEMORY)
    for term, weight in objective.items():
        if term not in known:
            raise UsageError(
                f"objective has no term {term!r}",
                expected="terms of " + ", ".join(known),
                remedy="pass for example {'time': 1.0}, or a function of one operator as cost=",
            )
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not (number and math.isfinite(weight) and weight >= 0):
            raise UsageError(f"objective weighs {term} by {weight!r}", expected="finite weights of 0 or more")
    if not any(objective.values()):
        raise UsageError("objective weighs nothing", expected="at least one weight above 0")
