"""Operators that put elements where integers say, run along an axis, or choose by order, as statements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, unflattened
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import given
from eqsat.runtime.kernels.nests.computation import Coordinate, Reduction, Subscript
from eqsat.runtime.kernels.nests.groups.copies import placed
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements, Moved

_add, _subtract, _multiply, _where = (FUNCTIONS[n] for n in ("add", "subtract", "multiply", "where"))
_equal, _less, _greater = (FUNCTIONS[n] for n in ("equal", "less", "greater"))
_and, _or = FUNCTIONS["logical_and"], FUNCTIONS["logical_or"]
#: Rows whose running sums are made together.
_ROWS_TOGETHER = 16
#: Reductions by the names that scattered updates have for them.
_COMBINED: Mapping[str, Reduction] = {"none": "", "add": "+", "mul": "*", "max": "max", "min": "min"}
#: The integers that order floats, and what has their bits.
_ORDERED = {
    DType.FLOAT32: (DType.INT32, "(i32)bits_of_float({0})"),
    DType.FLOAT64: (DType.INT64, "(i64)bits_of_double({0})"),
}


# ---- updates --------------------------------------------------------------------------------------------------------


def _scatter(
    body: GroupStatements,
    node: Node,
    count: int,
    sizes: Sequence[int],
    update: Callable[[AffineIndex, Coords], Expr],
    place: Callable[[AffineIndex, Coords], Sequence[Subscript]],
) -> None:
    """The operand, with updates in their order: so many, each of elements that lie apart."""
    x = given(node)
    dtype = computed(body.group.types[x].dtype)
    target = body.landing(node.outputs[0])
    body.fill(target.buffer, lambda at, _: body.value(x, at))
    reduction = _COMBINED[node.attrs["reduction"]]
    with body.repeated(count) as turn:
        body.fill(
            target.buffer,
            lambda at, _: convert(update(turn, at), dtype),
            (),
            reduction,
            sizes=sizes,
            place=lambda at: place(turn, at),
            is_fresh=not reduction,
        )


def _scatter_elements(body: GroupStatements, node: Node) -> None:
    """Updates along an axis one after the other; those that are side by side otherwise have places of their own."""
    x, indices, updates = given(node), given(node, 1), given(node, 2)
    shape, own = body.shape(x), body.shape(indices)
    axis = node.attrs["axis"] % len(shape)
    others = (*own[:axis], *own[axis + 1 :])

    def whole(turn: AffineIndex, at: Coords) -> Coords:
        return (*at[:axis], turn, *at[axis:])

    def place(turn: AffineIndex, at: Coords) -> Sequence[Subscript]:
        return (*at[:axis], placed(body.value(indices, whole(turn, at)), shape[axis]), *at[axis:])

    _scatter(body, node, own[axis], others, lambda turn, at: body.value(updates, whole(turn, at)), place)


def _scatter_nd(body: GroupStatements, node: Node) -> None:
    """The slices of the updates one after the other."""
    x, indices, updates = given(node), given(node, 1), given(node, 2)
    shape, (*lead, depth) = body.shape(x), body.shape(indices)

    def place(turn: AffineIndex, at: Coords) -> Sequence[Subscript]:
        head = unflattened(turn, lead)
        vector = [body.value(indices, (*head, AffineIndex.number(axis))) for axis in range(depth)]
        return (*(placed(one, size) for one, size in zip(vector, shape, strict=False)), *at)

    def update(turn: AffineIndex, at: Coords) -> Expr:
        return body.value(updates, (*unflattened(turn, lead), *at))

    _scatter(body, node, math.prod(lead), shape[depth:], update, place)


# ---- along an axis --------------------------------------------------------------------------------------------------


def _cumsum(body: GroupStatements, node: Node) -> None:
    """Each element from the one before it, in the order in which the sum runs; of the last axis a few rows at a time.

    All rows at once would be read from as many lines of the cache, where few of them have room beside each other.
    """
    x, attrs = given(node), node.attrs
    shape, dtype = body.shape(x), computed(body.group.types[x].dtype)
    along = attrs["axis"] % len(shape)
    last, lag = shape[along] - 1, int(attrs["exclusive"])
    rows = (math.prod(shape[:along]), shape[along]) if along + 1 == len(shape) else shape
    target = body.landing(node.outputs[0], rows)
    if target.shape == rows != shape:
        along = 1
    sizes = target.shape
    source, others = body.in_memory(x, sizes), (*sizes[:along], *sizes[along + 1 :])
    by_rows = len(sizes) == 2 and along == 1

    def at_step(at: Coords, step: AffineIndex) -> Coords:
        return (*at[:along], step * -1 + last if attrs["reverse"] else step, *at[along:])

    def first(at: Coords, _: Coords) -> Expr:
        return number(0, dtype) if lag else body.read(source, at_step(at, AffineIndex.number(0)))

    if last < 0:
        return
    body.fill(target.buffer, first, sizes=others, place=lambda at: at_step(at, AffineIndex.number(0)))
    for begin, count, height in _rows(others[0]) if by_rows else [(0, 1, 0)]:
        if last < 1:
            continue
        with body.repeated(count * last) as turn:
            step, start = turn % last + 1, turn // last * height + begin

            def moved(at: Coords, start: AffineIndex = start) -> Coords:
                return (at[0] + start,) if by_rows else at

            def following(at: Coords, _: Coords, step: AffineIndex = step, moved: Moved = moved) -> Expr:
                before = body.read(target.buffer, at_step(moved(at), step - 1))
                return _add(before, body.read(source, at_step(moved(at), step - lag)))

            body.fill(
                target.buffer,
                following,
                sizes=(height,) if by_rows else others,
                place=lambda at, step=step, moved=moved: at_step(moved(at), step),  # type: ignore[misc]
            )


def _rows(count: int) -> list[tuple[int, int, int]]:
    """Groups of rows: where they begin, how many, and rows in each; those that are left are one group."""
    whole, left = divmod(count, _ROWS_TOGETHER)
    parts = [(0, whole, _ROWS_TOGETHER), (count - left, 1, left)]
    return [(begin, groups, height) for begin, groups, height in parts if groups and height]


# ---- the first in order ---------------------------------------------------------------------------------------------


def _key(x: Expr, largest: bool) -> Expr:
    """An integer that is the greater the earlier an element comes; NaN counts as the largest number."""
    if x.dtype.is_float:
        dtype, template = _ORDERED[x.dtype]
        bits = Expr(dtype, template, (_add(x, number(0, x.dtype)),))  # -0 is 0
        rest = number(_most(dtype), dtype)
        shift = number(dtype.itemsize * 8 - 1, dtype)
        turned = FUNCTIONS["bitwise_xor"](bits, FUNCTIONS["bitwise_and"](FUNCTIONS["right_shift"](bits, shift), rest))
        key = _where(FUNCTIONS["isnan"](x), rest, turned)
    elif x.dtype in (DType.UINT64, DType.UINT32):
        wide = convert(x, DType.INT64)
        key = wide if x.dtype is DType.UINT32 else FUNCTIONS["bitwise_xor"](wide, number(-(1 << 63), DType.INT64))
    else:
        key = convert(x, DType.INT64 if x.dtype is DType.INT64 else DType.INT32)
    return key if largest else FUNCTIONS["bitwise_not"](key)


def _most(dtype: DType) -> int:
    return (1 << (dtype.itemsize * 8 - 1)) - 1


@dataclass(frozen=True)
class _AxisBlocks:
    """The places along an axis in blocks, whose best elements are known."""

    count: int

    @property
    def size(self) -> int:
        """Places in a block: about as many as there are blocks, so that few are looked at for each element."""
        return max(math.isqrt(max(self.count - 1, 0)) + 1, 1)

    @property
    def blocks(self) -> int:
        """The number of blocks, the last of which may not be full."""
        return max(-(-self.count // self.size), 1)


def _topk(body: GroupStatements, node: Node) -> None:
    """The best of all blocks, again and again; of its block the next one is looked for."""
    x, attrs = given(node), node.attrs
    shape = body.shape(x)
    axis, index_type = attrs["axis"] % len(shape), DType.INT32
    rows, places = (*shape[:axis], *shape[axis + 1 :]), _AxisBlocks(shape[axis])
    size, blocks = places.size, places.blocks
    if places.count >= 1 << 30:
        raise UnsupportedError("axes of so many elements")
    source = body.in_memory(x)
    read = body.read(source, tuple(AffineIndex.number(0) for _ in shape))
    kind = _key(read, True).dtype
    none, lowest = number(places.count, index_type), number(-_most(kind) - 1, kind)

    def within(row: Coords, place: Subscript) -> tuple[Subscript, ...]:
        return (*row[:axis], place, *row[axis:])

    keys = body.temporary(kind, (*rows, blocks, size))
    whole, rest = divmod(places.count, size)
    for first, count, width in ((0, whole, size), (whole, 1, rest)):
        if count and width:
            body.fill(
                keys,
                lambda at, _, first=first: _key(  # type: ignore[misc]
                    body.read(source, within(at[:-2], (at[-2] + first) * size + at[-1])), attrs["largest"]
                ),
                sizes=(*rows, count, width),
                place=lambda at, first=first: (*at[:-2], at[-2] + first, at[-1]),  # type: ignore[misc]
            )
    if rest:
        body.fill(
            keys,
            lambda at, _: lowest,
            sizes=(*rows, 1, size - rest),
            place=lambda at: (*at[:-2], at[-2] + whole, at[-1] + rest),
        )

    def is_there(place: Expr) -> Expr | None:
        """The truth that a place is one of the axis; None where all are."""
        return _less(place, none) if rest else None

    best, first_place = body.temporary(kind, (*rows, blocks)), body.temporary(index_type, (*rows, blocks))

    def counted(at: Coords, k: Coords) -> Expr:
        return Coordinate.of(at[-1] * size + k[0], index_type)

    def key_there(at: Coords, k: Coords) -> Expr:
        return _if(is_there(counted(at, k)), body.read(keys, (*at, *k)), lowest)

    def place_there(at: Coords, k: Coords) -> Expr:
        same = _equal(body.read(keys, (*at, *k)), body.read(best, at))
        return _where(_both(same, is_there(counted(at, k))), counted(at, k), none)

    body.fill(best, key_there, (size,), "max")
    body.fill(first_place, place_there, (size,), "min")
    top, block, chosen = body.temporary(kind, rows), body.temporary(index_type, rows), body.temporary(index_type, rows)
    after, after_place = body.temporary(kind, rows), body.temporary(index_type, rows)
    values, found = node.outputs
    value_target = body.landing(values) if values else None
    place_target = body.landing(found) if found else None
    with body.repeated(attrs["k"]) as turn:

        def is_left(row: Coords, k: Coords) -> Expr:
            return _less(body.read(first_place, (*row, *k)), none)

        body.fill(top, lambda row, k: _where(is_left(row, k), body.read(best, (*row, *k)), lowest), (blocks,), "max")

        def at_top(row: Coords, k: Coords) -> Expr:
            same = _equal(body.read(best, (*row, *k)), body.read(top, row))
            return _where(_and(same, is_left(row, k)), Coordinate.of(k[0], index_type), number(blocks - 1, index_type))

        body.fill(block, at_top, (blocks,), "min")
        body.fill(chosen, lambda row, _: body.read(first_place, (*row, body.read(block, row))))
        if place_target is not None:
            body.fill(
                place_target.buffer,
                lambda row, _: convert(body.read(chosen, row), DType.INT64),
                sizes=rows,
                place=lambda row: within(row, turn),
            )
        if value_target is not None:
            body.fill(
                value_target.buffer,
                lambda row, _: body.read(source, within(row, body.read(chosen, row))),
                sizes=rows,
                place=lambda row: within(row, turn),
            )

        def is_after(row: Coords, k: Coords) -> tuple[Expr, Expr, Expr]:
            """A key of the block, its place, and the truth that it comes after what was chosen last."""
            key = body.read(keys, (*row, body.read(block, row), *k))
            start = _multiply(body.read(block, row), number(size, index_type))
            place = _add(start, Coordinate.of(k[0], index_type))
            behind = _and(_equal(key, body.read(top, row)), _greater(place, body.read(chosen, row)))
            later = _or(_less(key, body.read(top, row)), behind)
            return key, place, _both(later, is_there(place))

        def next_key(row: Coords, k: Coords) -> Expr:
            key, _, later = is_after(row, k)
            return _where(later, key, lowest)

        def next_place(row: Coords, k: Coords) -> Expr:
            key, place, later = is_after(row, k)
            return _where(_and(later, _equal(key, body.read(after, row))), place, none)

        body.fill(after, next_key, (size,), "max")
        body.fill(after_place, next_place, (size,), "min")
        for buffer, fresh in ((best, after), (first_place, after_place)):

            def updated(at: Coords, _: Coords, buffer: str = buffer, fresh: str = fresh) -> Expr:
                is_own = _equal(Coordinate.of(at[-1], index_type), body.read(block, at[:-1]))
                return _where(is_own, body.read(fresh, at[:-1]), body.read(buffer, at))

            body.fill(buffer, updated)


def _if(condition: Expr | None, value: Expr, other: Expr) -> Expr:
    return value if condition is None else _where(condition, value, other)


def _both(one: Expr, other: Expr | None) -> Expr:
    return one if other is None else _and(one, other)


#: Operators whose order, or whose integers, say what goes where.
SELECTIONS: Mapping[str, Callable[[GroupStatements, Node], None]] = {
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
    "cumsum": _cumsum,
    "topk": _topk,
}
