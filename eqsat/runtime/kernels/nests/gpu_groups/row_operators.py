"""Schedules along rows that make as many elements as they read: softmax and its kin, and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from eqsat.language.terms import DType
from eqsat.language.terms import Node as Operator
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import Coordinate, ElementRead, GroupElement
from eqsat.runtime.kernels.nests.gpu_groups.row_reductions import identity
from eqsat.runtime.kernels.nests.gpu_groups.row_schedule import RowSchedule, Term
from eqsat.runtime.kernels.nests.tree import Assign, GpuKernel, Guard, Loop, Named, Node

_add, _subtract, _multiply = FUNCTIONS["add"], FUNCTIONS["subtract"], FUNCTIONS["multiply"]
_exp, _log, _sqrt, _abs = FUNCTIONS["exp"], FUNCTIONS["log"], FUNCTIONS["sqrt"], FUNCTIONS["abs"]


def _axis(group: Group, node: Operator) -> int:
    axis: int = node.attrs["axis"]
    return axis % group.types[str(node.inputs[0])].rank


def _top(rows: RowSchedule) -> ElementRead:
    return rows.joined("max", identity("max", rows.dtype), "top", rows.element)


def _sum(rows: RowSchedule, stem: str, term: Term) -> ElementRead:
    return rows.joined("+", identity("+", rows.dtype), stem, term)


# ---- softmax and its kin --------------------------------------------------------------------------------------------


def _softmax(group: Group, core: Operator) -> GpuKernel:
    """Exponentials are kept where the elements were: the last sweep reads no others."""
    rows = RowSchedule(group, core, (_axis(group, core),))
    top = _top(rows)

    def weight(nodes: list[Node], coords: Coords) -> Expr:
        exponential = rows.let(nodes, _exp(_subtract(rows.element(nodes, coords), top)), "weight")
        rows.replace(nodes, exponential)
        return exponential

    total = _sum(rows, "total", weight)
    rows.is_replaced = rows.held
    share = rows.constant(Expr(rows.dtype, "(1 / {0})", (total,)), "share")

    def result(nodes: list[Node], coords: Coords) -> Expr:
        return _multiply(rows.element(nodes, coords) if rows.held else weight(nodes, coords), share)

    rows.last(result)
    return rows.kernel()


def _log_softmax(group: Group, core: Operator) -> GpuKernel:
    rows = RowSchedule(group, core, (_axis(group, core),))
    top = _top(rows)
    total = _sum(rows, "total", lambda nodes, coords: _exp(_subtract(rows.element(nodes, coords), top)))
    shift = rows.constant(_log(total), "shift")
    rows.last(lambda nodes, coords: _subtract(_subtract(rows.element(nodes, coords), top), shift))
    return rows.kernel()


def _hardmax(group: Group, core: Operator) -> GpuKernel:
    axis = _axis(group, core)
    rows = RowSchedule(group, core, (axis,), sweeps=1)
    extreme = rows.extreme(axis, "argmax")

    def result(nodes: list[Node], coords: Coords) -> Expr:
        here = Expr(DType.BOOL, "({0} == {1}.index)", (Coordinate.of(coords[axis], DType.INT32), extreme))
        return Expr(rows.dtype, "({0} ? {1} : {2})", (here, number(1, rows.dtype), number(0, rows.dtype)))

    rows.last(result)
    return rows.kernel()


def _lp_norm(group: Group, core: Operator) -> GpuKernel:
    rows = RowSchedule(group, core, (_axis(group, core),), sweeps=2)
    power = _abs if core.attrs["p"] == 1 else _of_itself
    total = _sum(rows, "total", lambda nodes, coords: power(rows.element(nodes, coords)))
    norm = rows.constant(total if core.attrs["p"] == 1 else _sqrt(total), "norm")
    rows.last(lambda nodes, c: Expr(rows.dtype, "({0} == 0 ? {0} : {1} / {0})", (norm, rows.element(nodes, c))))
    return rows.kernel()


def _of_itself(x: Expr) -> Expr:
    return _multiply(x, x)


# ---- normalisations -------------------------------------------------------------------------------------------------

#: The factor of an element's row, made of the mean of squares.
_Factor = Callable[[RowSchedule, Expr], Expr]


def _inverse_root(epsilon: float) -> _Factor:
    def factor(rows: RowSchedule, variance: Expr) -> Expr:
        root = "rsqrtf({0})" if rows.dtype is DType.FLOAT32 else "rsqrt({0})"
        return Expr(rows.dtype, root, (_add(variance, number(epsilon, rows.dtype)),))

    return factor


def _inverse_deviation(rows: RowSchedule, variance: Expr) -> Expr:
    return Expr(rows.dtype, "(1 / {0})", (_add(_sqrt(variance), number(1e-9, rows.dtype)),))


def _normalised(
    rows: RowSchedule,
    factor: _Factor,
    affine: Callable[[Coords, Expr], Expr] = lambda coords, x: x,
    *,
    centred: bool = True,
) -> GpuKernel:
    """Elements less their mean, times a factor: the variance is computed in a second pass, so as not to cancel."""
    count = number(max(rows.rows.size, 1), rows.dtype)
    mean: Expr | None = None
    if centred:
        total = _sum(rows, "total", rows.element)
        mean = rows.constant(FUNCTIONS["divide"](total, count), "mean")

    def element(nodes: list[Node], coords: Coords) -> Expr:
        x = rows.element(nodes, coords)
        return x if mean is None else rows.let(nodes, _subtract(x, mean), "centred")

    squares = _sum(rows, "squares", lambda nodes, coords: _of_itself(element(nodes, coords)))
    scale = rows.constant(factor(rows, FUNCTIONS["divide"](squares, count)), "factor")
    rows.last(lambda nodes, coords: affine(coords, _multiply(element(nodes, coords), scale)))
    return rows.kernel()


def _trailing(group: Group, core: Operator, *, centred: bool) -> GpuKernel:
    axes = tuple(range(_axis(group, core), group.types[str(core.inputs[0])].rank))
    rows = RowSchedule(group, core, axes, sweeps=3 if centred else 2)

    def affine(coords: Coords, x: Expr) -> Expr:
        return _scaled(group, core, x, lambda shape: broadcast(coords, shape))

    return _normalised(rows, _inverse_root(core.attrs["epsilon"]), affine, centred=centred)


def _scaled(group: Group, core: Operator, x: Expr, at: Callable[[Sequence[int]], Coords]) -> Expr:
    """Multiply by the second operand, and add the third where there is one."""

    def element(name: str) -> GroupElement:
        type = group.types[name]
        return GroupElement.of(name, computed(type.dtype), at(type.static))

    scale, bias = (*core.inputs[1:], None)[:2]
    if scale is not None:
        x = _multiply(x, element(scale))
    return x if bias is None else _add(x, element(bias))


def _by_channel(group: Group, core: Operator) -> Callable[[Coords, Expr], Expr]:
    return lambda coords, x: _scaled(group, core, x, lambda shape: coords[1:2])


def _instance_norm(group: Group, core: Operator) -> GpuKernel:
    rank = group.types[str(core.inputs[0])].rank
    rows = RowSchedule(group, core, tuple(range(2, rank)))
    return _normalised(rows, _inverse_root(core.attrs["epsilon"]), _by_channel(group, core))


def _group_norm(group: Group, core: Operator) -> GpuKernel:
    """Rows are the channels of a group with their planes: x is seen with its channels as two axes."""
    batch, channels, *plane = group.types[str(core.inputs[0])].static
    groups = core.attrs["groups"]
    each = channels // groups if groups else 0

    def seen(coords: Coords) -> Coords:
        return (coords[0], coords[1] * each + coords[2], *coords[3:])

    shape = (batch, groups, each, *plane)
    rows = RowSchedule(group, core, tuple(range(2, len(shape))), shape=shape, seen=seen)
    return _normalised(rows, _inverse_root(core.attrs["epsilon"]), _by_channel(group, core))


def _mvn(group: Group, core: Operator) -> GpuKernel:
    rank = group.types[str(core.inputs[0])].rank
    rows = RowSchedule(group, core, tuple(a % rank for a in core.attrs["axes"]))
    return _normalised(rows, _inverse_deviation)


# ---- local response normalisation -----------------------------------------------------------------------------------


def _lrn(group: Group, core: Operator) -> GpuKernel:
    """Each element divided by a power of its neighbours among the channels: a row of one element."""
    rows = RowSchedule(group, core, (), sweeps=1)
    size, (alpha, beta, bias) = core.attrs["size"], (core.attrs[n] for n in ("alpha", "beta", "bias"))
    channels = group.types[rows.x].static[1]

    def element(coords: Coords) -> Expr:
        return GroupElement.of(rows.x, rows.dtype, coords)

    def result(nodes: list[Node], coords: Coords) -> Expr:
        local, squares = rows.variable("squares", rows.dtype, number(0, rows.dtype))
        there = coords[1] + AffineIndex.variable("beside", size) - (size - 1) // 2
        value = element((coords[0], AffineIndex.variable("channel", channels), *coords[2:]))
        added = (Named("channel", there), Assign(squares, _of_itself(value), "+"))
        nodes += [local, Loop("beside", size, (Guard(((there, channels),), added, ((there, 0),)),), is_reduced=True)]
        base = _add(number(bias, rows.dtype), _multiply(number(alpha / size, rows.dtype), squares))
        return FUNCTIONS["divide"](element(coords), FUNCTIONS["power"](base, number(beta, rows.dtype)))

    if rows.before:
        rows.first(lambda nodes, coords: None)
    rows.last(result)
    return rows.kernel()


def _of_floats(schedule: Callable[[Group, Operator], GpuKernel]) -> Callable[[Group, Operator], GpuKernel]:
    """The schedule, of floats alone: the means of integers are others."""

    def made(group: Group, core: Operator) -> GpuKernel:
        if not group.types[str(core.inputs[0])].dtype.is_float:
            raise UnsupportedError(f"{core.op} of integers")
        return schedule(group, core)

    return made


_KINDS: Mapping[str, Callable[[Group, Operator], GpuKernel]] = {
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "hardmax": _hardmax,
    "lp_norm": _lp_norm,
    "layer_norm": partial(_trailing, centred=True),
    "rms_norm": partial(_trailing, centred=False),
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "mvn": _mvn,
    "lrn": _lrn,
}
#: By operator, the schedule of a group around it; a value element by element with the operand may be a result as well,
#: a residual sum beside its norm.
ROW_OPERATORS = {op: _of_floats(schedule) for op, schedule in _KINDS.items()}
