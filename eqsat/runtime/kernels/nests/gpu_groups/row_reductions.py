"""Schedules that combine the elements along axes to one: sums, means, extremes and their places; and running sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from eqsat.language.terms import DType
from eqsat.language.terms import Node as Operator
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.accumulations import ACCUMULATIONS, axes_of
from eqsat.runtime.kernels.nests.computation import ElementRead, GroupElement, Reduction
from eqsat.runtime.kernels.nests.gpu_groups.row_schedule import RowSchedule
from eqsat.runtime.kernels.nests.gpu_groups.stores import made, named_quotients, stored_results
from eqsat.runtime.kernels.nests.gpu_groups.teams import MANY_ROWS, WARP, Rows, Team
from eqsat.runtime.kernels.nests.tree import (
    Assign,
    GpuKernel,
    Guard,
    LaneScan,
    LaneShift,
    LastLane,
    Loop,
    Named,
    Node,
    PlaceReduction,
)

#: Poolings by the reduction that they are where one window is the whole plane.
_WHOLE = {"avg_pool": ACCUMULATIONS["global_avg_pool"], "max_pool": ACCUMULATIONS["global_max_pool"]}
_PLACES: Mapping[tuple[str, bool], PlaceReduction] = {
    ("argmax", False): "argmax",
    ("argmax", True): "last argmax",
    ("argmin", False): "argmin",
    ("argmin", True): "last argmin",
}


def identity(reduction: Reduction, dtype: DType) -> Expr:
    """The neutral element of the operation that joins elements."""
    if reduction in ("+", "*"):
        if dtype is DType.BOOL:
            raise UnsupportedError("sums of truth values")
        return number(reduction == "*", dtype)
    least = reduction == "max"
    if dtype is DType.BOOL:
        return number(not least, dtype)
    if dtype.is_float:
        return number(-np.inf if least else np.inf, dtype)
    return number(np.iinfo(dtype.numpy).min if least else np.iinfo(dtype.numpy).max, dtype)


def reduced(group: Group, core: Operator) -> GpuKernel:
    """The kernel of a reduction, or of a pooling whose only window is the whole plane, without padding."""
    reduction = _WHOLE.get(core.op) or ACCUMULATIONS[core.op]
    rows = RowSchedule(group, core, axes_of(group, core), sweeps=1)
    first = reduction.prepare(number(0, rows.dtype)).dtype

    def term(nodes: list[Node], coords: Coords) -> Expr:
        return reduction.prepare(rows.element(nodes, coords))

    total = rows.joined(reduction.reduction, identity(reduction.reduction, first), "total", term)
    return _finished(rows, reduction.finish(total, rows.rows.size))


def _log_sum_exp(group: Group, core: Operator) -> GpuKernel:
    """Shifted by the maximum, where that is finite, so as not to overflow."""
    rows = RowSchedule(group, core, axes_of(group, core), sweeps=2)
    if not rows.dtype.is_float:
        raise UnsupportedError("logarithms of integers")
    top = rows.joined("max", identity("max", rows.dtype), "top", rows.element)
    shift = rows.constant(Expr(rows.dtype, "({0} - {0} == 0 ? {0} : 0)", (top,)), "shift")

    def weight(nodes: list[Node], coords: Coords) -> Expr:
        return FUNCTIONS["exp"](FUNCTIONS["subtract"](rows.element(nodes, coords), shift))

    total = rows.joined("+", identity("+", rows.dtype), "total", weight)
    return _finished(rows, FUNCTIONS["add"](FUNCTIONS["log"](total), shift))


def _placed(group: Group, core: Operator) -> GpuKernel:
    (axis,) = axes_of(group, core)
    rows = RowSchedule(group, core, (axis,), sweeps=1)
    found = rows.extreme(axis, _PLACES[core.op, bool(core.attrs["select_last"])])
    return _finished(rows, Expr(DType.INT64, "(i64){0}.index", (found,)))


def _finished(rows: RowSchedule, value: Expr) -> GpuKernel:
    """The kernel that stores a value for each row, and the values made from it."""
    core, group = rows.core, rows.group
    gone = set(axes_of(group, core))
    keeps = bool(core.attrs.get("keepdims", True))
    result = convert(value, computed(group.types[rows.made].dtype))

    def stored(row: AffineIndex) -> list[Node]:
        at = rows.rows.coords(row, AffineIndex.number(0))
        coords = tuple(AffineIndex.number(0) if a in gone else c for a, c in enumerate(at) if keeps or a not in gone)
        named, coords = named_quotients(group, rows.made, rows.after, coords)
        return [*named, *stored_results(group, rows.made, rows.after, coords, result)]

    rows.each_row(stored)
    return rows.kernel()


def _running_sum(group: Group, core: Operator) -> GpuKernel:
    """A thread walks each row; where rows are few, long and contiguous, a warp does, 32 elements at a time."""
    rows = RowSchedule(group, core, axes_of(group, core), sweeps=1, vectors=False, team=_scanning)
    size, lanes, turns, dtype = rows.rows.size, rows.team.size, rows.team.turns, rows.dtype
    zero = identity("+", dtype)
    carry = rows.register("carry", zero)
    local, value = rows.variable("value", dtype, zero)
    running, earlier = (ElementRead.of(rows.name(stem), dtype, ()) for stem in ("running", "shown"))
    shown = earlier if core.attrs["exclusive"] else running
    step = AffineIndex.variable("turn", turns) * lanes + AffineIndex.variable("member", lanes)
    inside = (rows.in_rows, (AffineIndex.variable("step", turns * lanes), size))
    place = AffineIndex.variable("step", size)
    if core.attrs["reverse"]:
        place = place * -1 + (size - 1)
    coords = rows.rows.coords(rows.row, place)
    read = Assign(value, GroupElement.of(rows.x, dtype, coords))
    stores = [made(group, name, coords) for name in rows.before]
    named, coords = named_quotients(group, rows.made, rows.after, coords)
    scan: list[Node] = [LaneScan(running, value, carry, lanes)]
    if core.attrs["exclusive"]:
        scan.append(LaneShift(earlier, running, carry, lanes))
    results = (*named, *stored_results(group, rows.made, rows.after, coords, shown))
    last = LastLane(carry, running, lanes)
    body: tuple[Node, ...] = (Guard(inside, (read, *stores)), *scan, Guard(inside, results), last)
    if lanes == 1:  # no other lane waits for a thread beyond the rows
        body = (Guard(inside, (read, *stores, *scan, *results, last)),)
    rows.nodes.append(Loop("turn", turns, (Named("step", step), local, *body), is_reduced=True))
    return rows.kernel()


def _scanning(rows: Rows) -> Team:
    if rows.contiguous and rows.size > WARP and rows.count < MANY_ROWS:
        return Team("lanes", WARP, 4, 1, -(-rows.size // WARP))
    return Team("lanes", 1, 64, 1, rows.size)


#: By operator, the schedule of a group around it.
REDUCTIONS: Mapping[str, Callable[[Group, Operator], GpuKernel]] = {
    **dict.fromkeys(ACCUMULATIONS, reduced),
    "argmax": _placed,
    "argmin": _placed,
    "reduce_log_sum_exp": _log_sum_exp,
    "cumsum": _running_sum,
}
