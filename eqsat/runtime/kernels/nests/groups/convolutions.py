"""Convolutions as statements: from windows where they lie, or from copies of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms import Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, flattened
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import given, operand
from eqsat.runtime.kernels.nests.groups.borders import padded, planes
from eqsat.runtime.kernels.nests.groups.products import finish_sum, multiplied, sum_buffer
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements

#: Bytes of windows that are copied before they are multiplied, and the fewest columns of a product.
_WINDOW_BYTES, _FEWEST_COLUMNS = 1 << 19, 48
_add, _maximum = FUNCTIONS["add"], FUNCTIONS["maximum"]


def conv_finish(body: GroupStatements, node: Node) -> Callable[[Expr, Coords], Expr]:
    """The rest of a convolution after its sum: the bias, and an activation."""
    bias, activation = operand(node, 2), node.attrs.get("activation", "none")
    if activation not in ("none", "relu"):
        raise UnsupportedError(f"activation {activation}")

    def finish(x: Expr, coords: Coords) -> Expr:
        if bias is not None:
            x = _add(x, convert(body.value(bias, coords[1:2]), x.dtype))
        return _maximum(x, number(0, x.dtype)) if activation == "relu" else x

    return finish


def _strip(rows: int, most: int, fewest: int) -> int:
    """Rows of a strip: a divisor, as large as fits, but not smaller than is worth a look at all filters."""
    known = [one for one in range(1, rows + 1) if rows % one == 0]
    fitting = [one for one in known if fewest <= one <= most]
    return fitting[-1] if fitting else next((one for one in known if one >= fewest), rows)


def conv(body: GroupStatements, node: Node) -> None:
    """The statements of a convolution, in the form that is asked for."""
    x, w = given(node, 0), given(node, 1)
    outputs, _, *kernel = body.shape(w)
    groups = node.attrs["group"]
    pads = conv_geometry(node.attrs, len(kernel))[2]
    dtype = computed(body.group.types[node.outputs[0]].dtype)
    if not dtype.is_float:
        raise UnsupportedError("convolutions of integers")
    if body.form == "unfolded":
        _unfolded_conv(body, node)
        return
    if groups == outputs == body.shape(x)[1]:
        _depthwise(body, node)
        return
    filters = body.in_memory(w)
    source = padded(body, x, pads, number(0, computed(body.group.types[x].dtype)))
    target = body.landing(node.outputs[0])
    buffer = sum_buffer(body, target)
    _direct(body, node, buffer, source, filters)
    finish_sum(body, node, target, buffer, conv_finish(body, node))


def _depthwise(body: GroupStatements, node: Node) -> None:
    """A filter for each channel, whose padded planes are made one after the other."""
    x, w = given(node, 0), given(node, 1)
    kernel = body.shape(w)[2:]
    strides, dilations, pads = conv_geometry(node.attrs, len(kernel))
    filters = body.in_memory(w)
    target = body.landing(node.outputs[0])
    buffer = sum_buffer(body, target)
    sizes = body.shape(node.outputs[0])[2:]
    zero = AffineIndex.number(0)
    with planes(body, x, pads, number(0, computed(body.group.types[x].dtype))) as (image, channel, element):

        def there(at: Coords) -> Coords:
            return (image, channel, *at)

        def term(at: Coords, k: Coords) -> Expr:
            read = tuple(p * s + i * d for p, s, i, d in zip(at, strides, k, dilations, strict=True))
            return multiplied(body, node, body.read(filters, (channel, zero, *k)), element(read))

        body.fill(buffer, term, kernel, "+", sizes=sizes, place=there)
        finish_sum(body, node, target, buffer, conv_finish(body, node), sizes, there)


def _direct(body: GroupStatements, node: Node, buffer: str, source: str, filters: str) -> None:
    """The sum over windows, read where the padded operand lies: one group of channels after the other."""
    outputs, depth, *kernel = body.shape(given(node, 1))
    shape, groups = body.shape(node.outputs[0]), node.attrs["group"]
    strides, dilations, _ = conv_geometry(node.attrs, len(kernel))
    each = outputs // groups
    with body.repeated(groups) as group:

        def term(at: Coords, k: Coords) -> Expr:
            (n, o, *place), (channel, *within) = at, k
            read = [p * s + i * d for p, s, i, d in zip(place, strides, within, dilations, strict=True)]
            weight = body.read(filters, (group * each + o, channel, *within))
            return multiplied(body, node, weight, body.read(source, (n, group * depth + channel, *read)))

        body.fill(
            buffer,
            term,
            (depth, *kernel),
            "+",
            sizes=(shape[0], each, *shape[2:]),
            place=lambda at: (at[0], group * each + at[1], *at[2:]),
        )


def _unfolded_conv(body: GroupStatements, node: Node) -> None:
    """Filters as a matrix times windows that are copied side by side: by image, by group, and by strip of rows."""
    x, w, made = given(node, 0), given(node, 1), node.outputs[0]
    (images, channels, *_), (outputs, depth, *kernel) = body.shape(x), body.shape(w)
    down, *across = body.shape(made)[2:]
    strides, dilations, pads = conv_geometry(node.attrs, len(kernel))
    groups, wide, terms = node.attrs["group"], math.prod(across), depth * math.prod(kernel)
    each, plane = outputs // groups, down * wide
    filters = body.in_memory(w, (outputs, terms))
    target = body.landing(made, (images, outputs, plane))
    if target.shape != (images, outputs, plane):
        raise UnsupportedError("a result whose planes lie apart")
    buffer = sum_buffer(body, target)
    dtype = computed(body.group.types[made].dtype)
    is_plain = math.prod(kernel) == 1 and set(strides) == {1} and not any(pads)
    if is_plain:
        columns, rows = body.in_memory(x, (images, channels, plane)), down
    else:
        # As many rows of windows at a time as stay in a cache near the processor.
        source = padded(body, x, pads, number(0, computed(body.group.types[x].dtype)))
        fitting = _WINDOW_BYTES // (terms * wide * dtype.itemsize)
        rows = _strip(down, fitting, -(-_FEWEST_COLUMNS // wide))
        columns = body.temporary(dtype, (terms, rows * wide))
    strips = down // rows
    with body.repeated(images * groups * strips) as turn:
        image, group, first = turn // (groups * strips), turn // strips % groups, turn % strips * rows

        def window(at: Coords, _: Coords) -> Expr:
            channel, *rest = at
            within, (row, *column) = rest[: len(kernel)], rest[len(kernel) :]
            place = (first + row, *column)
            read = [p * s + i * d for p, s, i, d in zip(place, strides, within, dilations, strict=True)]
            return convert(body.read(source, (image, group * depth + channel, *read)), dtype)

        def term(at: Coords, k: Coords) -> Expr:
            weight = body.read(filters, (group * each + at[0], *k))
            there = (image, group * depth + k[0], at[1]) if is_plain else (*k, at[1])
            return multiplied(body, node, weight, body.read(columns, there))

        def there(at: Coords) -> Coords:
            return (image, group * each + at[0], first * wide + at[1])

        lead = 1 + len(kernel)
        if not is_plain:
            body.fill(
                columns,
                window,
                sizes=(depth, *kernel, rows, *across),
                place=lambda at: (flattened(at[:lead], (depth, *kernel)), flattened(at[lead:], (rows, *across))),
            )
        sizes = (each, rows * wide)
        body.fill(buffer, term, (terms,), "+", sizes=sizes, place=there)
        finish_sum(body, node, target, buffer, conv_finish(body, node), sizes, there)


def conv_transpose(body: GroupStatements, node: Node) -> None:
    """All products of elements and filters, by image and group, each added where its place in the filter falls."""
    x, w, made = given(node, 0), given(node, 1), node.outputs[0]
    (images, channels, *sizes), (_, each, *kernel) = body.shape(x), body.shape(w)
    strides, dilations, pads = conv_geometry(node.attrs, len(kernel))
    dtype = computed(body.group.types[made].dtype)
    if not dtype.is_float or min(pads, default=0) < 0:
        raise UnsupportedError("transposed convolutions of integers, or that add borders")
    groups, out = node.attrs["group"], body.shape(made)[2:]
    depth, plane, places = channels // groups, math.prod(sizes), math.prod(kernel)
    reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(sizes, strides, dilations, kernel, strict=True)]
    # What begins before the result or ends behind it is made too, so that no place in a filter needs a condition.
    whole = [max(r, begin + size) for r, begin, size in zip(reach, pads, out, strict=False)]
    filters, source = body.in_memory(w, (channels, each * places)), body.in_memory(x, (images, channels, plane))
    target = body.landing(made)
    sums = body.temporary(dtype, (images, groups * each, *whole))
    products = body.temporary(dtype, (each * places, plane))
    body.fill(sums, lambda at, _: number(0, dtype))
    with body.repeated(images * groups) as turn:
        image, group = turn // groups, turn % groups

        def term(at: Coords, k: Coords) -> Expr:
            channel = group * depth + k[0]
            return multiplied(
                body, node, body.read(filters, (channel, at[0])), body.read(source, (image, channel, at[1]))
            )

        body.fill(products, term, (depth,), "+")
        for number_, place in enumerate(itertools.product(*map(range, kernel)) if plane else ()):
            steps = [k * d for k, d in zip(place, dilations, strict=True)]

            def there(at: Coords, steps: Sequence[int] = steps) -> Coords:
                moved = (c * s + step for c, s, step in zip(at[1:], strides, steps, strict=True))
                return (image, group * each + at[0], *moved)

            def part(at: Coords, _: Coords, number_: int = number_) -> Expr:
                return body.read(products, (at[0] * places + number_, flattened(at[1:], sizes)))

            body.fill(sums, part, (), "+", sizes=(each, *sizes), place=there, is_fresh=False)
    finish = conv_finish(body, node)

    def element(at: Coords) -> Expr:
        inside = (at[0], at[1], *(c + begin for c, begin in zip(at[2:], pads, strict=False)))
        return convert(finish(body.read(sums, inside), at), dtype)

    body.produce(made, element)
    body.fill(target.buffer, lambda at, _: body.value(target.home or made, target.coords(at)))
    body.settle(made, target)
