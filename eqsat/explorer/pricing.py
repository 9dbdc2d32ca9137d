"""Prices of e-nodes in an extraction problem, and the same problem at other costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, TypeAlias

from eqsat.costs.model.asked import CostFunction, is_cost
from eqsat.egraph.egraph import OPAQUE, EGraph
from eqsat.errors import CostError, UsageError
from eqsat.explorer.forms import Form
from eqsat.extract.problem.program import cheapest_trees
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.ops import OPS

#: The operator name that conversions between states are known by.
CONVERT = "convert"
#: The new cost of a cost.
Change: TypeAlias = Callable[[float], float]


@dataclass(frozen=True)
class Repriced:
    """A change of costs: those of an operator, of one e-node by its number, or of all by a function of applications."""

    text: str
    change: Change | None = None
    op: str = ""
    enode: int | None = None
    function: CostFunction | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """The price of an e-node: as a kernel of its own, and as the root of its cheapest tree.

    A tree counts shared parts each time. Both are in units of the objective; None where it cannot run by itself, or not
    at all. `seconds` are those of running it whatever the objective is. `estimated` is True where a roofline says so
    and no measurement; `states` are those of operands and result in its cheapest way.
    """

    own: float | None = None
    total: float | None = None
    seconds: float | None = None
    estimated: bool = False
    states: str = ""


def change_of(what: Any, cost: Any, ops: Collection[str]) -> Repriced:
    """A change of costs as a user states it, where the e-graph has these operators; UsageError for what is none."""
    if callable(what):
        if cost is not None:
            raise UsageError("two costs", expected="a function of applications alone, or a form with its cost")
        return Repriced(f"a function of applications, {getattr(what, '__name__', type(what).__name__)}", function=what)
    if not (callable(cost) or (isinstance(cost, Real) and not isinstance(cost, bool))):
        raise UsageError(f"cost = {cost!r}", expected="a number, or a function of what it cost")
    change = cost if callable(cost) else partial(_constant, float(cost))
    said = f"by {getattr(cost, '__name__', 'a function')}" if callable(cost) else f"at {cost:g}"
    if isinstance(what, Form):
        return Repriced(f"{what.text} {said}", change, enode=what.enode)
    present = {op for op in ops if op in OPS or op == OPAQUE} | {CONVERT, "split"}
    if not isinstance(what, str) or what not in present:
        raise UsageError(
            f"no operator {what!r} in the e-graph",
            expected="one of " + ", ".join(sorted(present)),
            remedy="or a form, such as eclass(...)[0]",
        )
    return Repriced(f"{what} {said}", change, op=what)


def _constant(cost: float, _before: float) -> float:
    return cost


def prices(extraction: TensorProblem) -> dict[int, Price]:
    """The price of each e-node that may be chosen, by its position in the snapshot."""
    program = extraction.problem.program
    _, values = cheapest_trees(program, program.costs)
    by_position: dict[int, Price] = {}
    for option, way in enumerate(extraction.options):
        if way.split is not None or way.fetch:
            continue
        cost = program.costs[option]
        whole = cost + math.fsum(values[goal] for goal in program.needs[option])
        position = way.positions[-1]
        known = by_position.get(position, Price())
        if math.isfinite(whole) and (known.total is None or whole < known.total):
            known = replace(known, total=whole)
        first = next(iter(extraction.problem.nodes[option].operands), (0, 0))[0]
        pieces = first >= len(extraction.leaders)  # of a split; constants that are shared come after the operands
        if len(way.positions) == 1 and not pieces and (known.own is None or cost < known.own):
            states = _states(extraction, option)
            known = replace(known, own=cost, seconds=way.cost.seconds, estimated=way.cost.estimated, states=states)
        by_position[position] = known
    return by_position


def repriced(extraction: TensorProblem, changes: Sequence[Repriced], in_seconds: bool) -> TensorProblem:
    """The problem at changed costs, one change after another.

    A kernel of several operators costs as much more or less as its operators do by themselves. Where costs are `in
    seconds`, those of kernels and conversions change with them.
    """
    problem = extraction.problem
    costs = list(problem.program.costs)
    for change in changes:
        if change.change is not None:
            _reprice(extraction, costs, change, change.change)
    if costs == problem.program.costs:
        return extraction
    changed = problem.variant(costs=costs, limits=problem.limits, memory=problem.memory)
    if not in_seconds:
        return replace(extraction, problem=changed)
    pairs = list(zip(problem.program.costs, costs, strict=True))
    count = len(extraction.options)
    ways = (
        w if a == b else replace(w, cost=replace(w.cost, seconds=b))
        for w, (a, b) in zip(extraction.options, pairs[:count], strict=True)
    )
    conversions = (
        c if a == b else replace(c, seconds=b) for c, (a, b) in zip(extraction.conversions, pairs[count:], strict=True)
    )
    return replace(extraction, problem=changed, options=tuple(ways), conversions=tuple(conversions))


def _reprice(extraction: TensorProblem, costs: list[float], change: Repriced, to: Change) -> None:
    hit = _hit(extraction, change)
    if change.enode is None:
        _unshare(extraction, costs, hit)
    alone: dict[int, float] = {}
    for option, way in enumerate(extraction.options):
        if len(way.positions) == 1 and way.positions[0] in hit and way.split is None and not way.fetch:
            before, after = costs[option], _changed(change, to, costs[option])
            costs[option] = after
            position = way.positions[0]
            alone[position] = min(alone.get(position, math.inf), after - before, key=abs)
    for option, way in enumerate(extraction.options):
        if way.split is not None and change.op == "split":
            costs[option] = _changed(change, to, costs[option])
        elif len(way.positions) > 1:
            more = math.fsum(alone.get(position, 0.0) for position in way.positions)
            costs[option] = max(costs[option] + more, 0.0)
    if change.op == CONVERT:
        for option in range(len(extraction.options), len(costs)):
            costs[option] = _changed(change, to, costs[option])


def _unshare(extraction: TensorProblem, costs: list[float], hit: set[int]) -> None:
    """Let kernels that share constants have their whole costs where these change: a new cost is each one's own."""
    nodes = extraction.problem.nodes
    fetches = {nodes[option].eclass: option for option, way in enumerate(extraction.options) if way.fetch}
    shared: set[int] = set()
    for option, way in enumerate(extraction.options):
        if way.positions[-1] in hit and len(way.positions) == 1 and not way.fetch:
            needed = [fetches[eclass] for eclass, _ in nodes[option].operands if eclass in fetches]
            costs[option] += math.fsum(costs[fetch] for fetch in needed)
            shared.update(needed)
    for fetch in shared:
        costs[fetch] = 0.0


def _hit(extraction: TensorProblem, change: Repriced) -> set[int]:
    """The positions of the e-nodes whose cost changes."""
    nodes = extraction.snapshot.nodes
    if change.enode is None:
        return {i for i, node in enumerate(nodes) if node.op == change.op}
    return {i for i, node in enumerate(nodes) if node.number == change.enode}


def standing(egraph: EGraph, number: int) -> int:
    """The e-node that stands for one that was found congruent to it since it was made."""
    node = egraph.nodes[number]
    known = egraph.lookup(node.op, egraph.attr_id(node.op, node.attrs), node.operands)
    return number if known is None else known


def _changed(change: Repriced, to: Change, cost: float) -> float:
    """A changed cost; CostError where it is none."""
    try:
        price: Any = to(cost)
    except Exception as error:
        raise CostError(
            f"the function raised {type(error).__name__}: {error}",
            where=change.text,
            expected="a number for every cost there was",
        ) from error
    if not is_cost(price):
        raise CostError(f"cost {price!r}", where=change.text, expected="a finite number of 0 or more")
    return float(price)


def _states(extraction: TensorProblem, option: int) -> str:
    """The states of the operands and the result of a kernel of one operator; "" if all are plain."""
    ways = extraction.options[option].implementations
    if not ways or ways[-1].is_plain:
        return ""
    way = ways[-1]
    by = f" by {way.arithmetic}" if way.arithmetic else ""
    return f"{', '.join(dict.fromkeys(map(str, way.operands)))} -> {way.result}{by}"
