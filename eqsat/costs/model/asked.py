"""Costs by a user's function of one operator, in place of an objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

from eqsat.costs.model.cost import Cost
from eqsat.errors import CostError, EqsatError
from eqsat.language.terms import Implementation, TensorType


@dataclass(frozen=True)
class Application:
    """An operator applied to typed operands, its implementation and its cost: the argument of a user's cost function.

    `operands` and `results` have element types and shapes, None where one is left out or unknown; `const_operands` says
    which are weights; `cost` has seconds, bytes and counts, measured or estimated.
    """

    op: str
    attrs: Mapping[str, Any]
    operands: tuple[TensorType | None, ...]
    results: tuple[TensorType | None, ...]
    const_operands: tuple[bool, ...]
    cost: Cost
    implementation: Implementation | None = None


#: A user's own cost of one operator, in place of the price of its measured or estimated cost.
CostFunction: TypeAlias = Callable[[Application], float]


def asked(function: CostFunction, applied: Application) -> float:
    """The cost of an operator by a user's cost function; CostError where that raises, or gives no cost."""
    try:
        cost: Any = function(applied)
    except EqsatError:
        raise
    except Exception as error:
        raise CostError(
            f"the cost function raised {type(error).__name__}: {error}",
            where=f"cost of {applied.op}",
            expected="a number for every operator",
            remedy="change the function passed as cost",
        ) from error
    if not is_cost(cost):
        raise CostError(
            f"the cost function gives {cost!r}",
            where=f"cost of {applied.op}",
            expected="a finite number of 0 or more for every operator",
            remedy="change the function passed as cost",
        )
    return float(cost)


def is_cost(value: object) -> bool:
    """Return whether the result of a user's function is a cost: a finite number of 0 or more."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value) and float(value) >= 0
