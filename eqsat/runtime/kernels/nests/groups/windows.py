"""Poolings as statements over operands with borders."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import given
from eqsat.runtime.kernels.nests.computation import Coordinate
from eqsat.runtime.kernels.nests.groups.borders import planes
from eqsat.runtime.kernels.nests.groups.products import finish_sum
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements, Moved
from eqsat.runtime.kernels.nests.scheduling.values import neutral


def _pool(body: GroupStatements, node: Node) -> None:
    x, made = given(node), node.outputs[0]
    if len([v for v in node.outputs if v]) > 1:
        raise UnsupportedError("places of a pooling")
    shape, kernel = body.shape(x), node.attrs["kernel"]
    strides, dilations, pads = conv_geometry(node.attrs, len(kernel))
    dtype = computed(body.group.types[x].dtype)
    if not dtype.is_float and node.op != "max_pool":
        raise UnsupportedError("sums of windows of integers")
    out = body.shape(made)
    spatial = len(kernel)
    greatest = node.op == "max_pool"
    # Windows that begin in the border behind the operand end further out than its padding says.
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(out[2:], strides, kernel, dilations, strict=True)]
    behind = [max(r - b - n, 0) for r, b, n in zip(reach, pads[:spatial], shape[2:], strict=True)]
    counted = node.op == "avg_pool" and bool(node.attrs["count_include_pad"])
    counts = []
    for axis, (windows, size) in enumerate(zip(out[2:], shape[2:], strict=True)):
        begin, end = pads[axis], pads[spatial + axis]
        inside = range(-begin, size + end) if counted else range(size)
        steps = range(0, kernel[axis] * dilations[axis], dilations[axis])
        counts.append([sum(place * strides[axis] - begin + i in inside for i in steps) for place in range(windows)])
    power = node.attrs["p"] if node.op == "lp_pool" else None
    if power is None and any(min(one, default=1) == 0 for one in counts):
        raise UnsupportedError("windows of nothing but padding")
    border = neutral("max", dtype) if greatest else number(0, dtype)
    target = body.landing(made)
    stored = body.buffers[target.buffer].dtype
    buffer = target.buffer if stored is dtype else body.temporary(dtype, out)
    share = _share(body, dtype, counts) if node.op == "avg_pool" else None

    def finish(x: Expr, coords: Coords) -> Expr:
        if power is not None:
            return _root(x, power)
        return x if share is None else FUNCTIONS["divide"](x, share(coords[2:]))

    with planes(body, x, (*pads[:spatial], *behind), border) as (image, channel, element):

        def there(at: Coords) -> Coords:
            return (image, channel, *at)

        def term(at: Coords, within: Coords) -> Expr:
            read = tuple(p * s + i * d for p, s, i, d in zip(at, strides, within, dilations, strict=True))
            value = convert(element(read), dtype)
            return value if power is None else FUNCTIONS["power"](FUNCTIONS["abs"](value), number(power, dtype))

        body.fill(buffer, term, kernel, "max" if greatest else "+", sizes=out[2:], place=there)
        finish_sum(body, node, target, buffer, finish, out[2:], there)


def _root(x: Expr, power: int) -> Expr:
    """The number whose power a sum is."""
    if power in (1, 2):
        return x if power == 1 else FUNCTIONS["sqrt"](x)
    return FUNCTIONS["power"](x, number(1.0 / power, x.dtype))


def _share(body: GroupStatements, dtype: DType, counts: list[list[int]]) -> Callable[[Coords], Expr]:
    """The elements of a window, by its place: a number, or a table."""
    if all(len(set(one)) == 1 for one in counts):
        whole = number(math.prod(one[0] for one in counts), dtype)
        return lambda place: whole
    table = body.temporary(dtype, tuple(len(one) for one in counts))

    def count(at: Coords, _: Coords) -> Expr:
        total = number(1, dtype)
        for index, one in zip(at, counts, strict=True):
            total = FUNCTIONS["multiply"](total, _looked_up(index, one, dtype))
        return total

    body.fill(table, count)
    return lambda place: body.read(table, place)


def _looked_up(index: AffineIndex, values: list[int], dtype: DType) -> Expr:
    """A number by its place: conditions where neighbours differ."""
    found = number(values[-1], dtype)
    if index.is_number:
        return number(values[index.constant], dtype)
    here = Coordinate.of(index, DType.INT32)
    for place in reversed(range(1, len(values))):
        if values[place - 1] != values[place]:
            before = FUNCTIONS["less"](here, number(place, DType.INT32))
            found = FUNCTIONS["where"](before, number(values[place - 1], dtype), found)
    return found


def _lrn(body: GroupStatements, node: Node) -> None:
    """Each element divided by a power of the squares of its neighbours among the channels."""
    x, size = given(node), node.attrs["size"]
    dtype = computed(body.group.types[x].dtype)
    alpha, beta, bias = (number(node.attrs[name], dtype) for name in ("alpha", "beta", "bias"))
    shape = body.shape(x)
    before = (size - 1) // 2
    source = body.in_memory(x)
    squares = body.temporary(dtype, (shape[0], shape[1] + size - 1, *shape[2:]))
    zero = number(0, dtype)
    for start, count in ((0, before), (before + shape[1], size - 1 - before)):
        if count:
            body.fill(squares, lambda at, _: zero, sizes=(shape[0], count, *shape[2:]), place=_along_channels(start))

    def square(at: Coords, _: Coords) -> Expr:
        return FUNCTIONS["multiply"](body.read(source, at), body.read(source, at))

    body.fill(squares, square, sizes=shape, place=_along_channels(before))
    target = body.landing(node.outputs[0])
    sums = body.temporary(dtype, shape)
    body.fill(sums, lambda at, k: body.read(squares, (at[0], at[1] + k[0], *at[2:])), (size,), "+")
    share = FUNCTIONS["divide"](alpha, number(size, dtype))

    def result(at: Coords, _: Coords) -> Expr:
        base = FUNCTIONS["add"](bias, FUNCTIONS["multiply"](share, body.read(sums, at)))
        return FUNCTIONS["divide"](body.read(source, at), FUNCTIONS["power"](base, beta))

    body.fill(target.buffer, result)


def _along_channels(start: int) -> Moved:
    """Coordinates whose channel is counted from a start."""
    return lambda at: (at[0], at[1] + start, *at[2:])


#: Operators that move windows over planes or channels.
WINDOWS: Mapping[str, Callable[[GroupStatements, Node], None]] = {
    "max_pool": _pool,
    "avg_pool": _pool,
    "lp_pool": _pool,
    "lrn": _lrn,
}
