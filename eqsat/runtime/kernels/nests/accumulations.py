"""Reductions of all elements along axes to one by an operation that joins two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eqsat.language.terms import Node
from eqsat.runtime.kernels.expressions.expression import Expr, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import Reduction


def _plain(x: Expr) -> Expr:
    return x


def _square(x: Expr) -> Expr:
    return FUNCTIONS["multiply"](x, x)


def _total(total: Expr, count: int) -> Expr:
    return total


def _average(total: Expr, count: int) -> Expr:
    return FUNCTIONS["divide"](total, number(count, total.dtype))


def _root(total: Expr, count: int) -> Expr:
    return FUNCTIONS["sqrt"](total)


def _logarithm(total: Expr, count: int) -> Expr:
    return FUNCTIONS["log"](total)


@dataclass(frozen=True)
class Accumulation:
    """A reduction: the operation that joins elements, the function of each element, and that of the joined value."""

    reduction: Reduction
    prepare: Callable[[Expr], Expr] = _plain
    finish: Callable[[Expr, int], Expr] = _total


ACCUMULATIONS: Mapping[str, Accumulation] = {
    "reduce_sum": Accumulation("+"),
    "reduce_mean": Accumulation("+", finish=_average),
    "global_avg_pool": Accumulation("+", finish=_average),
    "reduce_max": Accumulation("max"),
    "global_max_pool": Accumulation("max"),
    "reduce_min": Accumulation("min"),
    "reduce_prod": Accumulation("*"),
    "reduce_l1": Accumulation("+", FUNCTIONS["abs"]),
    "reduce_l2": Accumulation("+", _square, _root),
    "reduce_sum_square": Accumulation("+", _square),
    "reduce_log_sum": Accumulation("+", finish=_logarithm),
}


def axes_of(group: Group, node: Node) -> tuple[int, ...]:
    """The axes that an operator combines, counted from the front."""
    rank = group.types[str(node.inputs[0])].rank
    if "pool" in node.op:
        return tuple(range(2, rank))
    axes = (node.attrs["axis"],) if "axis" in node.attrs else node.attrs["axes"]
    return tuple(a % rank for a in axes)
