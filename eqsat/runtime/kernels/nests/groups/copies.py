"""Operators that put elements together, or pick them by a tensor of indices, as statements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import given
from eqsat.runtime.kernels.nests.computation import Coordinate, ElementRead, Subscript
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements


def _concat(body: GroupStatements, node: Node) -> None:
    target = body.landing(node.outputs[0])
    axis = node.attrs["axis"] % len(target.shape)
    start = 0
    for value in map(str, node.inputs):
        sizes = body.shape(value)
        body.fill(
            target.buffer,
            lambda at, _, value=value: body.value(value, at),  # type: ignore[misc]
            sizes=sizes,
            place=lambda at, start=start: (*at[:axis], at[axis] + start, *at[axis + 1 :]),  # type: ignore[misc]
        )
        start += sizes[axis]


def _gather(body: GroupStatements, node: Node) -> None:
    """The element whose coordinate along an axis an element of the indices is; negative ones count from the end."""
    x, indices = given(node), given(node, 1)
    shape, rank = body.shape(x), len(body.shape(indices))
    axis = node.attrs["axis"] % len(shape)
    source = body.in_memory(x)
    buffer = body.buffers[source]
    target = body.landing(node.outputs[0])

    def element(at: Coords, _: Coords) -> Expr:
        place = placed(body.value(indices, at[axis : axis + rank]), shape[axis])
        subscripts: tuple[Subscript, ...] = (*at[:axis], place, *at[axis + rank :])
        return ElementRead.of(source, computed(buffer.dtype), subscripts)

    body.fill(target.buffer, element)


def _gather_elements(body: GroupStatements, node: Node) -> None:
    """The element whose coordinate along an axis the element of the indices at the same place is."""
    x, indices = given(node), given(node, 1)
    shape = body.shape(x)
    axis = node.attrs["axis"] % len(shape)
    source = body.in_memory(x)
    dtype = computed(body.buffers[source].dtype)
    target = body.landing(node.outputs[0])

    def element(at: Coords, _: Coords) -> Expr:
        place = placed(body.value(indices, at), shape[axis])
        return ElementRead.of(source, dtype, (*at[:axis], place, *at[axis + 1 :]))

    body.fill(target.buffer, element)


def _gather_nd(body: GroupStatements, node: Node) -> None:
    """The element whose first coordinates after the batch a vector of indices holds."""
    x, indices, batch = given(node), given(node, 1), node.attrs["batch_dims"]
    shape, (*lead, depth) = body.shape(x), body.shape(indices)
    source = body.in_memory(x)
    dtype = computed(body.buffers[source].dtype)
    target = body.landing(node.outputs[0])

    def element(at: Coords, _: Coords) -> Expr:
        head = at[: len(lead)]
        places = [
            placed(body.value(indices, (*head, AffineIndex.number(number))), shape[batch + number])
            for number in range(depth)
        ]
        return ElementRead.of(source, dtype, (*at[:batch], *places, *at[len(lead) :]))

    body.fill(target.buffer, element)


def _one_hot(body: GroupStatements, node: Node) -> None:
    """The second value where the coordinate along the new axis is the index, else the first."""
    indices, values, depth = given(node), given(node, 1), node.attrs["depth"]
    target = body.landing(node.outputs[0])
    axis = node.attrs["axis"] % len(target.shape)

    def element(at: Coords, _: Coords) -> Expr:
        index = convert(body.value(indices, (*at[:axis], *at[axis + 1 :])), DType.INT64)
        counted = FUNCTIONS["where"](
            FUNCTIONS["less"](index, number(0, DType.INT64)),
            FUNCTIONS["add"](index, number(depth, DType.INT64)),
            index,
        )
        others, own = (body.value(values, (AffineIndex.number(place),)) for place in range(2))
        here = Coordinate.of(at[axis], DType.INT64)
        return FUNCTIONS["where"](FUNCTIONS["equal"](counted, here), own, others)

    body.fill(target.buffer, element)


def _reverse_sequence(body: GroupStatements, node: Node) -> None:
    """The element that stands as far before the end of its sequence as this one after its beginning."""
    x, lengths, batch, time = given(node), given(node, 1), node.attrs["batch_axis"], node.attrs["time_axis"]
    steps = body.shape(x)[time]
    source = body.in_memory(x)
    dtype = computed(body.buffers[source].dtype)
    target = body.landing(node.outputs[0])

    def element(at: Coords, _: Coords) -> Expr:
        length = convert(body.value(lengths, (at[batch],)), DType.INT64)
        here, one = Coordinate.of(at[time], DType.INT64), number(1, DType.INT64)
        turned = FUNCTIONS["subtract"](FUNCTIONS["subtract"](length, one), here)
        place = FUNCTIONS["where"](FUNCTIONS["less"](here, length), turned, here)
        inside = FUNCTIONS["clip"](place, number(0, DType.INT64), number(steps - 1, DType.INT64))
        return ElementRead.of(source, dtype, tuple(inside if axis == time else c for axis, c in enumerate(at)))

    body.fill(target.buffer, element)


def placed(index: Expr, size: int) -> Subscript:
    """An index as a coordinate: negative ones from the end, and none out of bounds; UnsupportedError of no elements."""
    if not size:
        raise UnsupportedError("places in an axis without elements")
    if index.value is not None:
        whole = int(index.value)
        return AffineIndex.number(min(max(whole + size if whole < 0 else whole, 0), size - 1))
    wide = convert(index, DType.INT64)
    zero, last, count = (number(n, DType.INT64) for n in (0, size - 1, size))
    counted = FUNCTIONS["where"](FUNCTIONS["less"](wide, zero), FUNCTIONS["add"](wide, count), wide)
    return FUNCTIONS["clip"](counted, zero, last)


def _trilu(body: GroupStatements, node: Node) -> None:
    x, k = given(node), node.attrs["k"]
    target = body.landing(node.outputs[0])

    def element(at: Coords, _: Coords) -> Expr:
        beyond = at[-1] - at[-2] - k if node.attrs["upper"] else at[-2] - at[-1] + k
        inside, outside = body.value(x, at), number(0, computed(body.group.types[x].dtype))
        if beyond.low >= 0:
            return inside
        if beyond.high < 0:
            return outside
        kept = FUNCTIONS["greater_equal"](Coordinate.of(beyond, DType.INT32), number(0, DType.INT32))
        return FUNCTIONS["where"](kept, inside, outside)

    body.fill(target.buffer, element)


#: Operators that copy elements.
COPIES: Mapping[str, Callable[[GroupStatements, Node], None]] = {
    "concat": _concat,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "one_hot": _one_hot,
    "reverse_sequence": _reverse_sequence,
    "trilu": _trilu,
}
