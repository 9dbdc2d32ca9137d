"""Reductions, softmax and its kin, and normalisations as statements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import given
from eqsat.runtime.kernels.nests.accumulations import ACCUMULATIONS, axes_of
from eqsat.runtime.kernels.nests.computation import Coordinate, Reduction
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements, reshaped

_add, _subtract, _multiply, _divide = (FUNCTIONS[n] for n in ("add", "subtract", "multiply", "divide"))
_exp, _log, _sqrt, _abs, _where = (FUNCTIONS[n] for n in ("exp", "log", "sqrt", "abs", "where"))
ZERO = AffineIndex.number(0)


def _dtype(body: GroupStatements, name: str) -> DType:
    return computed(body.group.types[name].dtype)


class _Rows:
    """The rows of a value along axes: coordinates of an element from those of its row and its place in it."""

    def __init__(self, body: GroupStatements, name: str, axes: tuple[int, ...]) -> None:
        self.body, self.name, self.shape = body, name, body.shape(name)
        self.axes = axes
        self.kept = tuple(n for a, n in enumerate(self.shape) if a not in axes)
        self.gone = tuple(self.shape[a] for a in axes)

    @property
    def count(self) -> int:
        """The elements of a row."""
        total = 1
        for size in self.gone:
            total *= size
        return total

    def coords(self, row: Coords, place: Coords) -> Coords:
        """The coordinates of an element."""
        rows, places = iter(row), dict(zip(self.axes, place, strict=True))
        return tuple(places[a] if a in places else next(rows) for a in range(len(self.shape)))

    def row(self, coords: Coords) -> Coords:
        """The coordinates of the row of an element."""
        return tuple(c for a, c in enumerate(coords) if a not in self.axes)

    def reduce(self, reduction: Reduction, term: Callable[[Coords], Expr], dtype: DType) -> Callable[[Coords], Expr]:
        """A temporary with the reduction of each row; its element for the row of an element."""
        if dtype is DType.BOOL:
            raise UnsupportedError("reductions of truth values")
        buffer = self.body.temporary(dtype, self.kept)
        self.body.fill(buffer, lambda row, place: convert(term(self.coords(row, place)), dtype), self.gone, reduction)
        return lambda coords: self.body.read(buffer, self.row(coords))


def _reduced(body: GroupStatements, node: Node) -> None:
    accumulation = ACCUMULATIONS[node.op]
    x, made = given(node), node.outputs[0]
    rows = _Rows(body, x, axes_of(body.group, node))
    first = accumulation.prepare(number(0, _dtype(body, x))).dtype
    if first is DType.BOOL and accumulation.reduction not in ("max", "min"):
        raise UnsupportedError("sums of truth values")
    target = body.landing(made, rows.kept)
    dtype, stored = _dtype(body, made), body.buffers[target.buffer].dtype

    def element(at: Coords, place: Coords) -> Expr:
        return accumulation.prepare(body.value(x, rows.coords(at, place)))

    apart = target.shape != rows.kept or stored is not first
    buffer = body.temporary(first, rows.kept) if apart else target.buffer
    body.fill(buffer, element, rows.gone, accumulation.reduction)

    def finished(at: Coords, _: Coords) -> Expr:
        row = reshaped(at, target.shape, rows.kept)
        return convert(accumulation.finish(body.read(buffer, row), rows.count), dtype)

    probe = Expr(first, "probe")
    if apart or accumulation.finish(probe, rows.count) is not probe:
        body.fill(target.buffer, finished)


def _log_sum_exp(body: GroupStatements, node: Node) -> None:
    x, made = given(node), node.outputs[0]
    dtype = _floats(body, x)
    rows = _Rows(body, x, axes_of(body.group, node))
    greatest = rows.reduce("max", lambda c: body.value(x, c), dtype)

    def top(coords: Coords) -> Expr:
        return Expr(dtype, "({0} - {0} == 0 ? {0} : 0)", (greatest(coords),))

    total = rows.reduce("+", lambda c: _exp(_subtract(body.value(x, c), top(c))), dtype)
    target = body.landing(made, rows.kept)
    zeros = tuple(ZERO for _ in rows.gone)

    def result(at: Coords, _: Coords) -> Expr:
        row = rows.coords(reshaped(at, target.shape, rows.kept), zeros)
        return _add(_log(total(row)), top(row))

    body.fill(target.buffer, result)


def _extreme_place(body: GroupStatements, node: Node) -> None:
    """The least or greatest of the places that hold the extreme; NaN is taken for both."""
    x, made = given(node), node.outputs[0]
    rows = _Rows(body, x, axes_of(body.group, node))
    dtype = _dtype(body, x)
    extreme = rows.reduce("max" if node.op == "argmax" else "min", lambda c: body.value(x, c), dtype)
    last = bool(node.attrs["select_last"])
    target = body.landing(made, rows.kept)
    other = number(-1 if last else rows.count, DType.INT64)
    (axis,) = rows.axes

    def place(at: Coords, k: Coords) -> Expr:
        row = reshaped(at, target.shape, rows.kept)
        coords = rows.coords(row, k)
        value, here = body.value(x, coords), Coordinate.of(coords[axis], DType.INT64)
        same = FUNCTIONS["equal"](value, extreme(coords))
        if dtype.is_float:
            same = FUNCTIONS["logical_or"](same, FUNCTIONS["isnan"](value))
        return _where(same, here if coords[axis].terms else number(0, DType.INT64), other)

    body.fill(target.buffer, place, rows.gone, "max" if last else "min")


def _hardmax(body: GroupStatements, node: Node) -> None:
    """1 at the least of the places that hold the largest element; NaN is taken for that."""
    x = given(node)
    rows, dtype = _Rows(body, x, _axis(body, node)), _dtype(body, x)
    (axis,) = rows.axes
    extreme = rows.reduce("max", lambda c: body.value(x, c), dtype)

    def here(coords: Coords) -> Expr:
        return Coordinate.of(coords[axis], DType.INT64)

    def place(coords: Coords) -> Expr:
        value = body.value(x, coords)
        same = FUNCTIONS["equal"](value, extreme(coords))
        if dtype.is_float:
            same = FUNCTIONS["logical_or"](same, FUNCTIONS["isnan"](value))
        return _where(same, here(coords), number(rows.count, DType.INT64))

    first = rows.reduce("min", place, DType.INT64)
    one, zero = number(1, dtype), number(0, dtype)
    target = body.landing(node.outputs[0])
    body.fill(target.buffer, lambda at, _: _where(FUNCTIONS["equal"](here(at), first(at)), one, zero))


# ---- rows -----------------------------------------------------------------------------------------------------------


def _floats(body: GroupStatements, name: str) -> DType:
    dtype = _dtype(body, name)
    if not dtype.is_float:
        raise UnsupportedError(f"rows of {dtype.value}")
    return dtype


class _Worked:
    """Rows that are worked on where the result lies: elements of the operand at first, then what they become."""

    def __init__(self, body: GroupStatements, node: Node, axes: tuple[int, ...]) -> None:
        self.body, self.x = body, given(node)
        self.dtype = _floats(body, self.x)
        self.rows = _Rows(body, self.x, axes)
        self.target = body.landing(node.outputs[0])
        narrow = body.buffers[self.target.buffer].dtype is not self.dtype
        self.buffer = body.temporary(self.dtype, self.rows.shape) if narrow else self.target.buffer
        self._filled = False

    def element(self, coords: Coords) -> Expr:
        """The element as it is by now."""
        return self.body.read(self.buffer, coords) if self._filled else self.body.value(self.x, coords)

    def become(self, term: Callable[[Coords], Expr]) -> None:
        """Write what the elements become."""
        self.body.fill(self.buffer, lambda at, _: term(at))
        self._filled = True

    def read_once(self) -> None:
        """Put operands that are worked out where they are worked on."""
        if not self.body.is_whole(self.x):
            self.become(self.element)

    def finish(self, term: Callable[[Coords], Expr]) -> None:
        """Write the results."""
        self.body.fill(self.target.buffer, lambda at, _: term(at))


def _softmax(body: GroupStatements, node: Node) -> None:
    worked = _Worked(body, node, _axis(body, node))
    worked.read_once()
    top = worked.rows.reduce("max", worked.element, worked.dtype)
    worked.become(lambda c, element=worked.element: _exp(_subtract(element(c), top(c))))  # type: ignore[misc]
    total = worked.rows.reduce("+", worked.element, worked.dtype)
    worked.finish(lambda c: _divide(worked.element(c), total(c)))


def _log_softmax(body: GroupStatements, node: Node) -> None:
    worked = _Worked(body, node, _axis(body, node))
    worked.read_once()
    top = worked.rows.reduce("max", worked.element, worked.dtype)
    total = worked.rows.reduce("+", lambda c: _exp(_subtract(worked.element(c), top(c))), worked.dtype)
    worked.finish(lambda c: _subtract(_subtract(worked.element(c), top(c)), _log(total(c))))


def _lp_norm(body: GroupStatements, node: Node) -> None:
    worked = _Worked(body, node, _axis(body, node))
    worked.read_once()
    is_first = node.attrs["p"] == 1

    def power(x: Expr) -> Expr:
        return _abs(x) if is_first else _multiply(x, x)

    total = worked.rows.reduce("+", lambda c: power(worked.element(c)), worked.dtype)

    def result(coords: Coords) -> Expr:
        norm = total(coords) if is_first else _sqrt(total(coords))
        zero = FUNCTIONS["equal"](norm, number(0, worked.dtype))
        return _where(zero, norm, _divide(worked.element(coords), norm))

    worked.finish(result)


def _axis(body: GroupStatements, node: Node) -> tuple[int, ...]:
    return (node.attrs["axis"] % len(body.shape(given(node))),)


#: The inverse of the deviation, from the variance.
_Inverse = Callable[[Expr], Expr]


def _normalised(
    worked: _Worked, inverse: _Inverse, affine: Callable[[Coords, Expr], Expr], *, centred: bool = True
) -> None:
    """Elements less their mean, times a factor: the variance is computed in a second pass, so as not to cancel."""
    count = number(max(worked.rows.count, 1), worked.dtype)
    worked.read_once()
    if centred:
        total = worked.rows.reduce("+", worked.element, worked.dtype)
        worked.become(lambda c, e=worked.element: _subtract(e(c), _divide(total(c), count)))  # type: ignore[misc]
    squares = worked.rows.reduce("+", lambda c: _multiply(worked.element(c), worked.element(c)), worked.dtype)
    body, dtype = worked.body, worked.dtype
    factors = body.temporary(dtype, worked.rows.kept)
    zeros = tuple(ZERO for _ in worked.rows.gone)
    body.fill(factors, lambda row, _: inverse(_divide(squares(worked.rows.coords(row, zeros)), count)))
    worked.finish(lambda c: affine(c, _multiply(worked.element(c), body.read(factors, worked.rows.row(c)))))


def _inverse_root(epsilon: float, dtype: DType) -> _Inverse:
    return lambda variance: _divide(number(1, dtype), _sqrt(_add(variance, number(epsilon, dtype))))


def _scaled(body: GroupStatements, node: Node, x: Expr, at: Callable[[tuple[int, ...]], Coords]) -> Expr:
    """Multiply by the second operand, and add the third where there is one."""
    scale, bias = (*node.inputs[1:], None, None)[:2]
    if scale is not None:
        x = _multiply(x, body.value(scale, at(body.shape(scale))))
    return x if bias is None else _add(x, body.value(bias, at(body.shape(bias))))


def _trailing(body: GroupStatements, node: Node, *, centred: bool) -> None:
    (first,) = _axis(body, node)
    worked = _Worked(body, node, tuple(range(first, len(body.shape(given(node))))))
    _normalised(
        worked,
        _inverse_root(node.attrs["epsilon"], worked.dtype),
        lambda c, x: _scaled(body, node, x, lambda shape: broadcast(c, shape)),
        centred=centred,
    )


def _instance_norm(body: GroupStatements, node: Node) -> None:
    worked = _Worked(body, node, tuple(range(2, len(body.shape(given(node))))))
    inverse = _inverse_root(node.attrs["epsilon"], worked.dtype)
    _normalised(worked, inverse, lambda c, x: _scaled(body, node, x, lambda shape: c[1:2]))


def _group_norm(body: GroupStatements, node: Node) -> None:
    """Groups of channels as rows, each less its mean and over its deviation, then by channel."""
    x, made, groups = given(node), node.outputs[0], node.attrs["groups"]
    (images, channels, *spatial), dtype = body.shape(x), _floats(body, x)
    each = channels // groups
    inner, rows = (each, *spatial), (images, groups)
    count = number(max(math.prod(inner), 1), dtype)
    target = body.landing(made)
    centred = body.temporary(dtype, (*rows, *inner))
    totals, squares, factors = (body.temporary(dtype, rows) for _ in range(3))

    def own(at: Coords) -> Coords:
        """The coordinates of an element of a group."""
        return (at[0], at[1] * each + at[2], *at[3:])

    body.fill(centred, lambda at, _: body.value(x, own(at)))
    body.fill(totals, lambda at, k: body.read(centred, (*at, *k)), inner, "+")
    body.fill(centred, lambda at, _: _subtract(body.read(centred, at), _divide(body.read(totals, at[:2]), count)))
    body.fill(squares, lambda at, k: _multiply(*(body.read(centred, (*at, *k)) for _ in range(2))), inner, "+")
    inverse = _inverse_root(node.attrs["epsilon"], dtype)
    body.fill(factors, lambda at, _: inverse(_divide(body.read(squares, at), count)))

    def element(at: Coords, _: Coords) -> Expr:
        scaled = _multiply(body.read(centred, at), body.read(factors, at[:2]))
        return _scaled(body, node, scaled, lambda shape: own(at)[1:2])

    body.fill(target.buffer, element, sizes=(*rows, *inner), place=own)


def _mvn(body: GroupStatements, node: Node) -> None:
    rank = len(body.shape(given(node)))
    worked = _Worked(body, node, tuple(sorted(a % rank for a in node.attrs["axes"])))
    dtype = worked.dtype
    small = number(1e-9, dtype)
    _normalised(worked, lambda v: _divide(number(1, dtype), _add(_sqrt(v), small)), lambda c, x: x)


#: Operators that combine elements along axes, or work along rows.
REDUCTIONS: Mapping[str, Callable[[GroupStatements, Node], None]] = {
    **dict.fromkeys(ACCUMULATIONS, _reduced),
    "reduce_log_sum_exp": _log_sum_exp,
    "argmax": _extreme_place,
    "argmin": _extreme_place,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "lp_norm": _lp_norm,
    "layer_norm": partial(_trailing, centred=True),
    "rms_norm": partial(_trailing, centred=False),
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "hardmax": _hardmax,
    "mvn": _mvn,
}
