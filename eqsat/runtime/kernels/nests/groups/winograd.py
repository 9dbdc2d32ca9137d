"""Convolutions of 3 × 3 windows by the algorithm of Winograd: four elements from 16 products in place of 36.

Windows of neighbouring elements share most of what they read: of tiles of 4 × 4 elements, and of filters, sums are
made whose products, again in sums, are tiles of 2 × 2 elements of the result (Lavin and Gray, arXiv:1509.09308,
F(2×2, 3×3)).
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms import Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, flattened
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import given
from eqsat.runtime.kernels.groupwise import ElementMaker
from eqsat.runtime.kernels.nests.groups.borders import padded
from eqsat.runtime.kernels.nests.groups.convolutions import conv_finish
from eqsat.runtime.kernels.nests.groups.products import finish_sum
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements, Moved

#: The sums of the elements of a tile, of those of a filter, and of products, along one axis.
_OF_TILE = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_OF_FILTER = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
_OF_PRODUCTS = ((1, 1, 1, 0), (0, 1, -1, -1))
#: Tiles whose products are made together, at least.
_FEWEST_TILES = 96


def has_winograd(node: Node, filters: Sequence[int]) -> bool:
    """True of dense convolutions of planes by windows of 3 × 3 that move by one element."""
    if node.op != "conv" or node.attrs["group"] != 1 or len(filters) != 4 or tuple(filters[2:]) != (3, 3):
        return False
    strides, dilations, pads = conv_geometry(node.attrs, 2)
    return set(strides) == set(dilations) == {1} and min(pads) >= 0


def winograd_conv(body: GroupStatements, node: Node) -> None:
    """The statements of a convolution; UnsupportedError where it has another form."""
    x, w, made = given(node, 0), given(node, 1), node.outputs[0]
    dtype = computed(body.group.types[made].dtype)
    same = {body.group.types[v].dtype for v in (x, w, made)} == {dtype}
    if not has_winograd(node, body.shape(w)) or not same or not dtype.is_float:
        raise UnsupportedError("windows of another form")
    (images, channels, *_), (outputs, *_) = body.shape(x), body.shape(w)
    down, across = body.shape(made)[2:]
    tall, wide = -(-down // 2), -(-across // 2)
    pads = conv_geometry(node.attrs, 2)[2]
    behind = (2 * tall + 2 - body.shape(x)[2] - pads[0], 2 * wide + 2 - body.shape(x)[3] - pads[1])
    source = padded(body, x, (*pads[:2], *behind), number(0, dtype))
    filters = body.prepared(dtype, (16, outputs, channels), [w], lambda made: _fill_filters(body, node, made))
    target = body.landing(made)
    whole = (down, across) == (2 * tall, 2 * wide)
    buffer = target.buffer if whole else body.temporary(dtype, (images, outputs, 2 * tall, 2 * wide))
    rows = next(r for r in range(1, tall + 1) if tall % r == 0 and (r * wide >= _FEWEST_TILES or r == tall))
    tiles = rows * wide
    sums, products = body.temporary(dtype, (16, channels, tiles)), body.temporary(dtype, (16, outputs, tiles))
    with body.repeated(images * (tall // rows)) as strip:
        image, first = strip // (tall // rows), strip % (tall // rows) * rows
        for number_ in range(16):

            def tile_sum(at: Coords, _: Coords, number_: int = number_) -> Expr:
                channel, row, column = at
                return _combined(
                    [
                        (a * b, body.read(source, (image, channel, (first + row) * 2 + i, column * 2 + j)))
                        for i, a in enumerate(_OF_TILE[number_ // 4])
                        for j, b in enumerate(_OF_TILE[number_ % 4])
                    ]
                )

            at_sum = AffineIndex.number(number_)
            body.fill(
                sums,
                tile_sum,
                sizes=(channels, rows, wide),
                place=lambda at, at_sum=at_sum: (at_sum, at[0], flattened(at[1:], (rows, wide))),  # type: ignore[misc]
            )

        def term(at: Coords, k: Coords) -> Expr:
            left, right = body.read(filters, (*at[:2], *k)), body.read(sums, (at[0], *k, at[2]))
            return FUNCTIONS["multiply"](left, right)

        body.fill(products, term, (channels,), "+")
        finish = conv_finish(body, node)
        for down_by in range(2):
            for across_by in range(2):

                def element(at: Coords, down_by: int = down_by, across_by: int = across_by) -> Expr:
                    place = flattened(at[1:], (rows, wide))
                    down_sums, across_sums = _OF_PRODUCTS[down_by], _OF_PRODUCTS[across_by]
                    return _combined(
                        [
                            (
                                down_sums[i] * across_sums[j],
                                body.read(products, (AffineIndex.number(4 * i + j), at[0], place)),
                            )
                            for i in range(4)
                            for j in range(4)
                        ]
                    )

                def there(at: Coords, down_by: int = down_by, across_by: int = across_by) -> Coords:
                    return (image, at[0], (first + at[1]) * 2 + down_by, at[2] * 2 + across_by)

                def value(at: Coords, _: Coords, element: ElementMaker = element, there: Moved = there) -> Expr:
                    if not whole:
                        return element(at)
                    body.produce(made, lambda coords: finish(element(at), coords))
                    return body.value(target.home or made, there(at))

                body.fill(buffer, value, sizes=(outputs, rows, wide), place=there)
    if whole:
        body.settle(made, target)
    else:
        finish_sum(body, node, target, buffer, finish)


def _fill_filters(body: GroupStatements, node: Node, target: str) -> None:
    """Statements that make sums of the elements of each filter."""
    w = given(node, 1)
    outputs, channels, *_ = body.shape(w)
    for number_ in range(16):
        rows, columns = _OF_FILTER[number_ // 4], _OF_FILTER[number_ % 4]

        def filter_sum(at: Coords, _: Coords, rows: Sequence[float] = rows, columns: Sequence[float] = columns) -> Expr:
            return _combined(
                [
                    (a * b, body.value(w, (*at, AffineIndex.number(i), AffineIndex.number(j))))
                    for i, a in enumerate(rows)
                    for j, b in enumerate(columns)
                ]
            )

        at_filter = AffineIndex.number(number_)
        body.fill(
            target,
            filter_sum,
            sizes=(outputs, channels),
            place=lambda at, at_filter=at_filter: (at_filter, *at),  # type: ignore[misc]
        )


def _combined(terms: Sequence[tuple[float, Expr]]) -> Expr:
    """The sum of values times factors, without those that are 0."""
    total: Expr | None = None
    for factor, value in sorted(((f, v) for f, v in terms if f), key=lambda one: one[0] < 0):
        size = abs(factor)
        scaled = value if size == 1 else FUNCTIONS["multiply"](value, number(size, value.dtype))
        if total is None:
            total = scaled if factor > 0 else FUNCTIONS["negative"](scaled)
        else:
            total = FUNCTIONS["add" if factor > 0 else "subtract"](total, scaled)
    assert total is not None
    return total
