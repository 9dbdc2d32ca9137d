"""Operators that pick and place single elements by tensors of indices, within a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex, Coords, unflattened
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, convert, number
from eqsat.runtime.kernels.expressions.scalar import ARITHMETIC, given
from eqsat.runtime.kernels.statements import Statements
from eqsat.runtime.kernels.writer import bare

#: Every element of a scattered tensor goes through all updates that may be its own; of more, something else is faster.
MOST_UPDATES = 256


def place_in(body: Statements, value: str, coords: Coords, size: int) -> AffineIndex:
    """A coordinate that is an element of a tensor of indices; negative ones count from the end."""
    index = body.value(value, coords)
    if index.value is not None:
        whole = int(index.value)
        return AffineIndex.number(min(max(whole + size if whole < 0 else whole, 0), size - 1))
    type = "long long" if size > INT_LIMIT else "int"
    text = f"({type})placed({index.template}, ({index.c_type}){size})"
    return AffineIndex.variable(body.writer.define(type, "place", text), size)


def gather(body: Statements, node: Node, output: int, coords: Coords) -> Expr:
    """The element whose coordinate along an axis an element of the indices is."""
    x, indices = given(node), given(node, 1)
    shape = body.shape(x)
    axis = node.attrs["axis"] % len(shape)
    rank = len(body.shape(indices))
    chosen = place_in(body, indices, coords[axis : axis + rank], shape[axis])
    return body.value(x, (*coords[:axis], chosen, *coords[axis + rank :]))


def gather_elements(body: Statements, node: Node, output: int, coords: Coords) -> Expr:
    """The element whose coordinate along an axis the element of the indices at the same place is."""
    x = given(node)
    shape = body.shape(x)
    axis = node.attrs["axis"] % len(shape)
    chosen = place_in(body, given(node, 1), coords, shape[axis])
    return body.value(x, (*coords[:axis], chosen, *coords[axis + 1 :]))


def gather_nd(body: Statements, node: Node, output: int, coords: Coords) -> Expr:
    """The element whose first coordinates after the batch a vector of indices holds."""
    x, indices, batch = given(node), given(node, 1), node.attrs["batch_dims"]
    shape, (*lead, depth) = body.shape(x), body.shape(indices)
    head = coords[: len(lead)]
    vector = [place_in(body, indices, (*head, AffineIndex.number(i)), shape[batch + i]) for i in range(depth)]
    return body.value(x, (*coords[:batch], *vector, *coords[len(lead) :]))


def one_hot(body: Statements, node: Node, output: int, coords: Coords) -> Expr:
    """The second value where the coordinate along the new axis is the index, else the first."""
    indices, values, depth = given(node), given(node, 1), node.attrs["depth"]
    at = node.attrs["axis"] % len(coords)
    index = convert(body.value(indices, (*coords[:at], *coords[at + 1 :])), DType.INT64)
    zero, count = number(0, DType.INT64), number(depth, DType.INT64)
    counted = ARITHMETIC.where(ARITHMETIC.less(index, zero), ARITHMETIC.add(index, count), index)
    place = Expr(DType.INT64, "(i64)({0})", (Expr(DType.INT32, body.writer.index(coords[at])),))
    others, own = (body.value(values, (AffineIndex.number(i),)) for i in range(2))
    return body.named(ARITHMETIC.where(ARITHMETIC.equal(counted, place), own, others), node.op)


def reverse_sequence(body: Statements, node: Node, output: int, coords: Coords) -> Expr:
    """The element that stands as far before the end of its sequence as this one after its beginning."""
    x, batch, time = given(node), node.attrs["batch_axis"], node.attrs["time_axis"]
    steps = body.shape(x)[time]
    length = body.value(given(node, 1), (coords[batch],)).template
    type = "long long" if steps > INT_LIMIT else "int"
    text = f"({type})turned({body.writer.index(coords[time])}, {length}, {steps})"
    place = AffineIndex.variable(body.writer.define(type, "place", text), steps)
    return body.value(x, [place if axis == time else c for axis, c in enumerate(coords)])


_COMBINED: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda before, update: update,
    "add": ARITHMETIC.add,
    "mul": ARITHMETIC.multiply,
    "max": ARITHMETIC.maximum,
    "min": ARITHMETIC.minimum,
}


def scatter_elements(body: Statements, node: Node, output: int, coords: Coords) -> Expr:
    """The operand's element, and in order all updates whose index along an axis is this one's coordinate."""
    x, indices, updates = given(node), given(node, 1), given(node, 2)
    shape, axis = body.shape(indices), node.attrs["axis"] % len(coords)
    size = body.shape(x)[axis]
    others = [(c, n) for i, (c, n) in enumerate(zip(coords, shape, strict=True)) if i != axis and c.high >= n]
    inside = " && ".join(f"{body.writer.index(c)} < {n}" for c, n in others)

    def update(u: AffineIndex) -> tuple[list[AffineIndex], Callable[[], Expr]]:
        at = (*coords[:axis], u, *coords[axis + 1 :])
        return [place_in(body, indices, at, size) - coords[axis]], lambda: body.value(updates, at)

    return _scattered(body, node, body.value(x, coords), shape[axis], inside, update)


def scatter_nd(body: Statements, node: Node, output: int, coords: Coords) -> Expr:
    """The operand's element, and in order all updates whose vector of indices holds this one's first coordinates."""
    x, indices, updates = given(node), given(node, 1), given(node, 2)
    shape, (*lead, depth) = body.shape(x), body.shape(indices)

    def update(u: AffineIndex) -> tuple[list[AffineIndex], Callable[[], Expr]]:
        head = unflattened(u, lead)
        vector = [place_in(body, indices, (*head, AffineIndex.number(i)), shape[i]) for i in range(depth)]
        gaps = [place - coord for place, coord in zip(vector, coords, strict=False)]
        return gaps, lambda: body.value(updates, (*head, *coords[depth:]))

    return _scattered(body, node, body.value(x, coords), math.prod(lead), "", update)


def _scattered(
    body: Statements,
    node: Node,
    value: Expr,
    count: int,
    inside: str,
    update: Callable[[AffineIndex], tuple[list[AffineIndex], Callable[[], Expr]]],
) -> Expr:
    """The value after all updates that meet it: those whose distances from it are all 0."""
    if count > MOST_UPDATES:
        raise UnsupportedError(f"{count} updates")
    writer, combine = body.writer, _COMBINED[node.attrs["reduction"]]
    total = Expr(value.dtype, writer.name("scattered"))
    writer.line(f"{total.c_type} {total.template} = {value.template};")
    u = writer.name("u")
    with ExitStack() as blocks:
        if inside:
            blocks.enter_context(writer.block(f"if ({inside})"))
        blocks.enter_context(writer.loop(f"for (int {u} = 0; {u} < {count}; ++{u})", u, total.template))
        gaps, make = update(AffineIndex.variable(u, count))
        conditions = [f"{writer.index(gap)} == 0" for gap in gaps if not gap.is_number or gap.constant]
        if conditions:
            blocks.enter_context(writer.block(f"if ({' && '.join(conditions)})"))
        text = writer.render(combine(total, make()), "scattered_part")
        writer.line(f"{total.template} = {bare(text)};")
    return total
