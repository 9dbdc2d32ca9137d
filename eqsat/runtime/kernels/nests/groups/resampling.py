"""Operators whose elements come from places that are known beforehand, or that a grid gives, as statements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from eqsat.language.ops.vision.resize import AxisTaps, axis_taps
from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import given
from eqsat.runtime.kernels.nests.computation import Subscript
from eqsat.runtime.kernels.nests.groups.borders import padded
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements, Term

_add, _subtract, _multiply, _where = (FUNCTIONS[n] for n in ("add", "subtract", "multiply", "where"))
_less, _greater, _or, _and = (FUNCTIONS[n] for n in ("less", "greater", "logical_or", "logical_and"))
_floor, _clip = FUNCTIONS["floor"], FUNCTIONS["clip"]
#: Places further out than any element are as far out as this.
_FAR = float(1 << 40)
#: The coefficient of the cubic kernel at places of a grid.
_CUBIC = -0.75


# ---- borders --------------------------------------------------------------------------------------------------------


def _pad(body: GroupStatements, node: Node) -> None:
    x, pads, mode = given(node), node.attrs["pads"], node.attrs["mode"]
    shape, dtype = body.shape(x), computed(body.group.types[x].dtype)
    rank = len(shape)
    target = body.landing(node.outputs[0])
    if mode == "constant":
        filler = number(node.attrs["value"], dtype)
        if min(pads, default=0) >= 0:
            padded(body, x, pads, filler, 0, into=target.buffer)
            return
        left = [max(n + min(b, 0) + min(e, 0), 0) for n, b, e in zip(shape, pads, pads[rank:], strict=False)]
        body.fill(target.buffer, lambda at, _: filler)
        body.fill(
            target.buffer,
            lambda at, _: body.value(x, tuple(c - min(b, 0) for c, b in zip(at, pads, strict=False))),
            sizes=left,
            place=lambda at: tuple(c + max(b, 0) for c, b in zip(at, pads, strict=False)),
        )
        return
    source = body.in_memory(x)
    orders: list[str | None] = []
    for size, begin, end in zip(shape, pads, pads[rank:], strict=False):
        inner = np.arange(max(-begin, 0), size - max(-end, 0))
        borders = max(begin, 0), max(end, 0)
        order = np.pad(inner, borders, mode=mode) if any(borders) else inner
        orders.append(None if begin == end == 0 else body.table(order, DType.INT64))
    body.fill(target.buffer, lambda at, _: body.read(source, _ordered(body, at, orders)))


def _ordered(body: GroupStatements, at: Coords, orders: Sequence[str | None]) -> tuple[Subscript, ...]:
    """Coordinates in an operand, looked up along the axes that have a table."""
    return tuple(c if table is None else body.read(table, (c,)) for c, table in zip(at, orders, strict=True))


def _enlarge(body: GroupStatements, node: Node) -> None:
    x = given(node)
    shape, dtype = body.shape(x), computed(body.group.types[x].dtype)
    borders = [(target - size) // 2 for size, target in zip(shape[2:], node.attrs["kernel"], strict=True)]
    padded(body, x, borders * 2, number(0, dtype), into=body.landing(node.outputs[0]).buffer)


# ---- resized axes ---------------------------------------------------------------------------------------------------


def _resize(body: GroupStatements, node: Node) -> None:
    """Copies of elements, or sums of neighbours times weights axis by axis; what lies beyond is put in at the end."""
    x, made = given(node), node.outputs[0]
    shape, dtype = list(body.shape(x)), computed(body.group.types[x].dtype)
    narrow = body.group.types[x].dtype.numpy
    taps = [one for one in axis_taps(shape, node.attrs) if not _is_same(one, shape[one.axis])]
    target = body.landing(made)
    beyond = {one.axis: body.table(one.beyond, DType.BOOL) for one in taps if one.beyond is not None}
    source = body.in_memory(x)
    copied = [one for one in taps if one.weights is None]
    summed = [one for one in taps if one.weights is not None]
    if dtype is DType.BOOL and summed:
        raise UnsupportedError("sums of truth values")
    # Copies are made where elements are read first.
    orders: list[str | None] = [None] * len(shape)
    for one in copied:
        orders[one.axis] = body.table(one.index[:, 0], DType.INT64)
        shape[one.axis] = len(one.index)
    for number_, one in enumerate(summed):
        index, weights = (
            body.table(one.index, DType.INT64),
            body.table(np.asarray(one.weights).astype(narrow), dtype),
        )
        shape[one.axis] = len(one.index)
        is_last = number_ + 1 == len(summed) and not beyond
        buffer = (
            target.buffer if is_last and body.buffers[target.buffer].dtype is dtype else body.temporary(dtype, shape)
        )
        if not len(one.index):
            continue

        body.fill(buffer, _weighted(body, one.axis, source, orders, index, weights), (one.index.shape[1],), "+")
        source, orders = buffer, [None] * len(shape)
    if source == target.buffer:
        return

    def element(at: Coords, _: Coords) -> Expr:
        value: Expr = body.read(source, _ordered(body, at, orders))
        for axis, table in beyond.items():
            value = _where(body.read(table, (at[axis],)), number(node.attrs["extrapolation"], dtype), value)
        return value

    body.fill(target.buffer, element)


def _weighted(
    body: GroupStatements, axis: int, source: str, orders: Sequence[str | None], index: str, weights: str
) -> Term:
    """An element of a neighbour along an axis times its weight, by tables of both."""

    def term(at: Coords, k: Coords) -> Expr:
        place, there = (at[axis], *k), list(_ordered(body, at, orders))
        there[axis] = body.read(index, place)
        return _multiply(body.read(source, there), body.read(weights, place))

    return term


def _is_same(taps: AxisTaps, size: int) -> bool:
    """Return whether the places of an axis are its elements in their order."""
    index = taps.index[:, 0]
    return taps.weights is None and taps.beyond is None and np.array_equal(index, np.arange(size))


# ---- places of a grid -----------------------------------------------------------------------------------------------


class _Grid:
    """The elements around places of a grid: their indices by axis, less than 0 where nothing is, and weights."""

    def __init__(self, body: GroupStatements, node: Node) -> None:
        self.body, self.grid, self.attrs = body, given(node, 1), node.attrs
        self.sizes = body.shape(given(node))[2:]
        self.lead = body.shape(self.grid)[:-1]
        self.dtype = body.group.types[self.grid].dtype
        if self.dtype not in (DType.FLOAT32, DType.FLOAT64):
            raise UnsupportedError(f"places as {self.dtype.value}")
        self.taps = [self._of_axis(axis) for axis in range(len(self.sizes))]

    def _number(self, value: float) -> Expr:
        return number(value, self.dtype)

    def _of_axis(self, axis: int) -> list[tuple[str, str | None]]:
        """Buffers with the index and the weight of each neighbour along an axis, by place."""
        body, size = self.body, self.sizes[axis]
        places = body.temporary(self.dtype, self.lead)
        body.fill(places, lambda at, _: self._place(at, axis, size))

        def at_place(at: Coords) -> Expr:
            return body.read(places, at)

        found: list[tuple[str, str | None]] = []
        for past, weight in self._neighbours():
            index = body.temporary(DType.INT64, self.lead)
            body.fill(index, lambda at, _, past=past: self._index(past(at_place(at)), size))  # type: ignore[misc]
            weights = None
            if weight is not None:
                weights = body.temporary(self.dtype, self.lead)
                body.fill(weights, lambda at, _, weight=weight: weight(at_place(at)))  # type: ignore[misc]
            found.append((index, weights))
        return found

    def _place(self, at: Coords, axis: int, size: int) -> Expr:
        """A place along an axis in units of elements."""
        last = AffineIndex.number(len(self.sizes) - 1 - axis)
        place, one, two = self.body.value(self.grid, (*at, last)), self._number(1), self._number(2)
        if self.attrs["align_corners"]:
            return _multiply(FUNCTIONS["divide"](_add(place, one), two), self._number(size - 1))
        return FUNCTIONS["divide"](_subtract(_multiply(_add(place, one), self._number(size)), one), two)

    def _settled(self, place: Expr) -> Expr:
        """A place that has neighbours: none is infinite, and what is no number is 0. Weights tell them apart."""
        clipped = _clip(place, self._number(-_FAR), self._number(_FAR))
        return _where(FUNCTIONS["isnan"](place), self._number(0), clipped)

    def _neighbours(self) -> list[tuple[Callable[[Expr], Expr], Callable[[Expr], Expr] | None]]:
        """The whole number and the weight of each neighbour, from a place."""
        mode = self.attrs["mode"]
        if mode == "nearest":
            return [(lambda x: FUNCTIONS["rint"](self._settled(x)), None)]

        def moved(by: int) -> Callable[[Expr], Expr]:
            return lambda x: _add(convert(_floor(self._settled(x)), DType.INT64), number(by, DType.INT64))

        def past(x: Expr) -> Expr:
            return _subtract(x, _floor(self._settled(x)))

        one = self._number(1)
        if mode == "linear":
            return [(moved(0), lambda x: _subtract(one, past(x))), (moved(1), past)]

        def near(t: Expr) -> Expr:
            slope = _subtract(_multiply(self._number(_CUBIC + 2), t), self._number(_CUBIC + 3))
            return _add(_multiply(_multiply(slope, t), t), one)

        def far(t: Expr) -> Expr:
            a = self._number
            inner = _add(_multiply(_subtract(_multiply(a(_CUBIC), t), a(5 * _CUBIC)), t), a(8 * _CUBIC))
            return _subtract(_multiply(inner, t), a(4 * _CUBIC))

        return [
            (moved(-1), lambda x: far(_add(past(x), one))),
            (moved(0), lambda x: near(past(x))),
            (moved(1), lambda x: near(_subtract(one, past(x)))),
            (moved(2), lambda x: far(_subtract(self._number(2), past(x)))),
        ]

    def _index(self, place: Expr, size: int) -> Expr:
        """The index of an element at a whole number, as its padding has it."""
        padding, wide = self.attrs["padding"], convert(place, DType.INT64)
        zero, last = number(0, DType.INT64), number(size - 1, DType.INT64)
        if padding == "zeros":
            return _where(_or(_less(wide, zero), _greater(wide, last)), number(-1, DType.INT64), wide)
        if padding == "reflection":
            low, high = (0.0, size - 1.0) if self.attrs["align_corners"] else (-0.5, size - 0.5)
            wide = _mirrored(wide, low, high)
        return _clip(wide, zero, last)


def _mirrored(index: Expr, low: float, high: float) -> Expr:
    """An index beyond a border, mirrored at it as often as it takes."""
    wide = DType.FLOAT64
    least, most, span, zero = (number(v, wide) for v in (low, high, high - low, 0.0))
    if high == low:
        return number(int(low), DType.INT64)
    at = convert(index, wide)
    below = _less(at, least)
    beyond = FUNCTIONS["maximum"](_where(below, _subtract(least, at), _subtract(at, most)), zero)
    times = _floor(FUNCTIONS["divide"](beyond, span))
    rest = _subtract(beyond, _multiply(times, span))
    half = FUNCTIONS["divide"](times, number(2, wide))
    is_even = FUNCTIONS["equal"](_floor(half), half)
    mirrored = _where(FUNCTIONS["equal"](below, is_even), _add(least, rest), _subtract(most, rest))
    return convert(_where(_or(below, _greater(at, most)), mirrored, at), DType.INT64)


def _grid_sample(body: GroupStatements, node: Node) -> None:
    """Sums over the elements around each place; all channels have the same ones."""
    x = given(node)
    source, dtype = body.in_memory(x), computed(body.group.types[x].dtype)
    grid = _Grid(body, node)
    if 0 in grid.sizes:
        raise UnsupportedError("places in an axis without elements")
    target = body.landing(node.outputs[0])
    zero, none = number(0, dtype), number(0, DType.INT64)

    def element(at: Coords, _: Coords) -> Expr:
        here, total = (at[0], *at[2:]), None
        for taps in itertools.product(*grid.taps):
            places = [body.read(index, here) for index, _ in taps]
            value: Expr = body.read(
                source,
                (
                    *at[:2],
                    *(_clip(one, none, number(n - 1, DType.INT64)) for one, n in zip(places, grid.sizes, strict=True)),
                ),
            )
            if node.attrs["padding"] == "zeros":
                inside = FUNCTIONS["greater_equal"](places[0], none)
                for one in places[1:]:
                    inside = _and(inside, FUNCTIONS["greater_equal"](one, none))
                value = _where(inside, value, zero)
            for weight in (weights for _, weights in taps if weights is not None):
                value = _multiply(value, convert(body.read(weight, here), dtype))
            total = value if total is None else _add(total, value)
        assert total is not None
        return total

    body.fill(target.buffer, element)


#: Operators that take elements from other places.
RESAMPLINGS: Mapping[str, Callable[[GroupStatements, Node], None]] = {
    "pad": _pad,
    "enlarge": _enlarge,
    "resize": _resize,
    "resize_nearest": _resize,
    "crop_resize": _resize,
    "grid_sample": _grid_sample,
}
