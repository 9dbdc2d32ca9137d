"""Operators that copy elements, within a kernel: which element of an operand one of the result is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast, flattened, unflattened
from eqsat.runtime.kernels.expressions.expression import Expr, cast, computed, number
from eqsat.runtime.kernels.expressions.scalar import given
from eqsat.runtime.kernels.indexing import (
    gather,
    gather_elements,
    gather_nd,
    one_hot,
    reverse_sequence,
    scatter_elements,
    scatter_nd,
)
from eqsat.runtime.kernels.statements import Statements

#: The element at coordinates of one of the results of an operator.
Move = Callable[[Statements, Node, int, Coords], Expr]


class ElementSource(Protocol):
    """Values by name, whose elements are asked for by coordinates."""

    def value(self, name: str, coords: Sequence[AffineIndex]) -> Expr:
        """The element of a value at coordinates."""

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""


def _identity(body: ElementSource, node: Node, place: int, coords: Coords) -> Expr:
    return body.value(given(node), coords)


def _reshape(body: ElementSource, node: Node, place: int, coords: Coords) -> Expr:
    x = given(node)
    return body.value(x, unflattened(flattened(coords, body.shape(node.outputs[0])), body.shape(x)))


def _transpose(body: ElementSource, node: Node, place: int, coords: Coords) -> Expr:
    order = node.attrs["perm"]
    return body.value(given(node), [coords[order.index(axis)] for axis in range(len(order))])


def _slice(body: ElementSource, node: Node, place: int, coords: Coords) -> Expr:
    x, at = given(node), list(coords)
    shape = body.shape(x)
    attrs = node.attrs
    steps = attrs["steps"] or (1,) * len(attrs["axes"])
    for start, end, axis, step in zip(attrs["starts"], attrs["ends"], attrs["axes"], steps, strict=True):
        stop = None if step < 0 and end < 0 else max(end, 0)
        first = slice(max(start, 0), stop, step).indices(shape[axis])[0]
        at[axis] = at[axis] * step + first
    return body.value(x, at)


def _split(body: ElementSource, node: Node, place: int, coords: Coords) -> Expr:
    x, at = given(node), list(coords)
    axis = node.attrs["axis"] % len(at)
    at[axis] = at[axis] + sum(node.attrs["sizes"][:place])
    return body.value(x, at)


def _concat(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    axis = node.attrs["axis"] % len(coords)
    along = coords[axis]
    cases: list[tuple[str, Callable[[], Expr]]] = []
    start = 0
    for part in range(len(node.inputs)):
        value = given(node, part)
        end = start + body.shape(value)[axis]
        if start < end and along.low < end and along.high >= start:
            at = (*coords[:axis], along - start, *coords[axis + 1 :])
            last = along.high < end
            cases.append(("" if last else body.below(along, end), _puller(body, value, at)))
        start = end
    return body.choose(computed(body.group.types[node.outputs[0]].dtype), "concat", cases)


def _puller(body: Statements, value: str, at: Coords) -> Callable[[], Expr]:
    return lambda: body.value(value, at)


def _bordered(
    body: Statements, node: Node, coords: Coords, begins: Sequence[int], ends: Sequence[int], value: float = 0.0
) -> Expr:
    """An element of the operand with borders of a number; negative ones cut off."""
    x = given(node)
    filler = number(value, computed(body.group.types[x].dtype))
    left = [n + min(b, 0) + min(e, 0) for n, b, e in zip(body.shape(x), begins, ends, strict=True)]
    if any(n <= 0 for n in left):
        return filler
    inner = [c - max(b, 0) for c, b in zip(coords, begins, strict=True)]
    inside = body.within(inner, left)
    pull = _puller(body, x, tuple(c - min(b, 0) for c, b in zip(inner, begins, strict=True)))
    if not inside:
        return pull()
    return body.choose(filler.dtype, node.op, [(inside, pull), ("", lambda: filler)])


def _pad(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    x, pads, mode = given(node), node.attrs["pads"], node.attrs["mode"]
    shape = body.shape(x)
    begins, ends = pads[: len(shape)], pads[len(shape) :]
    if mode == "constant":
        return _bordered(body, node, coords, begins, ends, node.attrs["value"])
    at = []
    for coord, size, begin, end in zip(coords, shape, begins, ends, strict=True):
        left = size + min(begin, 0) + min(end, 0)
        inner = _repeated(body, coord, left, max(begin, 0), mode) if begin > 0 or end > 0 else coord
        at.append(inner - min(begin, 0))
    return body.value(x, at)


def _repeated(body: Statements, coord: AffineIndex, size: int, begin: int, mode: str) -> AffineIndex:
    """The element of an axis that stands at a coordinate of the axis with a border that repeats elements."""
    if size == 1:
        return AffineIndex.number(0)
    if mode == "wrap":
        return (coord + (-begin % size)) % size
    if mode == "reflect":
        period = 2 * (size - 1)
        folded = (coord + (-begin % period)) % period
        if folded.high < size:
            return folded
        text = body.writer.index(folded)
        name = body.writer.define("int", "reflected", f"{text} < {size} ? {text} : {period} - ({text})")
        return AffineIndex.variable(name, size)
    text = body.writer.index(coord - begin)
    name = body.writer.define("int", "edge", f"{text} < 0 ? 0 : {text} < {size} ? {text} : {size - 1}")
    return AffineIndex.variable(name, size)


def _tile(body: ElementSource, node: Node, place: int, coords: Coords) -> Expr:
    x = given(node)
    return body.value(x, [c % max(n, 1) for c, n in zip(coords, body.shape(x), strict=True)])


def _expand(body: ElementSource, node: Node, place: int, coords: Coords) -> Expr:
    x = given(node)
    return body.value(x, broadcast(coords, body.shape(x)))


def _depth_to_space(body: ElementSource, node: Node, place: int, coords: Coords) -> Expr:
    x, b = given(node), node.attrs["blocksize"]
    n, c, h, w = coords
    rest = body.shape(x)[1] // (b * b)
    within = h % b * b + w % b
    channel = within * rest + c if node.attrs["mode"] == "DCR" else c * (b * b) + within
    return body.value(x, (n, channel, h // b, w // b))


def _space_to_depth(body: ElementSource, node: Node, place: int, coords: Coords) -> Expr:
    x, b = given(node), node.attrs["blocksize"]
    n, k, h, w = coords
    channels = body.shape(x)[1]
    within = k // channels
    return body.value(x, (n, k % channels, h * b + within // b, w * b + within % b))


def _trilu(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    x, k = given(node), node.attrs["k"]
    beyond = coords[-1] - coords[-2] - k if node.attrs["upper"] else coords[-2] - coords[-1] + k
    zero = number(0, computed(body.group.types[x].dtype))
    return _kept(body, node, beyond, _puller(body, x, coords), zero)


def _kept(body: Statements, node: Node, beyond: AffineIndex, inside: Callable[[], Expr], outside: Expr) -> Expr:
    """A value where a difference is 0 or more, else another."""
    if beyond.low >= 0:
        return inside()
    if beyond.high < 0:
        return outside
    cases = [(body.least(beyond), inside), ("", lambda: outside)]
    return body.choose(outside.dtype, node.op, cases)


# ---- constants that are worked out ----------------------------------------------------------------------------------


def _stated(value: float, dtype: str) -> Expr:
    """A number of an element type, rounded to it."""
    element = DType.of(dtype)
    return number(np.asarray(value).astype(element.numpy).astype(computed(element).numpy), computed(element))


def _iota(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    position = body.writer.index(coords[0] * node.attrs["step"] + node.attrs["start"])
    return cast(Expr(DType.INT64, "(i64)({0})", (Expr(DType.INT32, position),)), DType.of(node.attrs["dtype"]))


def _fill(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    return _stated(node.attrs["value"], node.attrs["dtype"])


def _equal(body: Statements, node: Node, pairs: Sequence[AffineIndex]) -> Expr:
    """1 where all differences are 0, else 0."""
    dtype = node.attrs["dtype"]
    if any(d.low > 0 or d.high < 0 for d in pairs):
        return _stated(0.0, dtype)
    texts = [f"{body.writer.index(d)} == 0" for d in pairs if not d.is_number]
    if not texts:
        return _stated(1.0, dtype)
    one, zero = _stated(1.0, dtype), _stated(0.0, dtype)
    return body.named(Expr(one.dtype, "({0} ? {1} : {2})", (Expr(DType.BOOL, " && ".join(texts)), one, zero)), node.op)


def _eye(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    return _equal(body, node, [coords[0] - coords[1]])


def _identity_kernel(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    middle = [c - k // 2 for c, k in zip(coords[2:], node.attrs["kernel"], strict=True)]
    return _equal(body, node, [coords[0] - coords[1], *middle])


def _pool_kernel(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    return _stated(1.0 / int(np.prod(node.attrs["kernel"], dtype=np.int64)), node.attrs["dtype"])


def _enlarge(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    x = given(node)
    borders = [0, 0, *((k - n) // 2 for k, n in zip(node.attrs["kernel"], body.shape(x)[2:], strict=True))]
    return _bordered(body, node, coords, borders, borders)


def _shape(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    dims = body.shape(given(node))[node.attrs["start"] : node.attrs["end"]]
    if coords[0].is_number:
        return number(dims[coords[0].constant], DType.INT64)
    at = body.writer.index(coords[0])
    text = "".join(f"{at} == {i} ? {d}LL : " for i, d in enumerate(dims[:-1])) + f"{dims[-1]}LL"
    return body.named(Expr(DType.INT64, f"({text})", (number(0, DType.INT64),)), node.op)


def _size(body: Statements, node: Node, place: int, coords: Coords) -> Expr:
    return number(int(np.prod(body.shape(given(node)), dtype=np.int64)), DType.INT64)


#: By operator, the coordinates of the one element of its operand that an element of its result is.
REARRANGED: Mapping[str, Callable[[ElementSource, Node, int, Coords], Expr]] = {
    "identity": _identity,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "split": _split,
    "tile": _tile,
    "expand": _expand,
    "depth_to_space": _depth_to_space,
    "space_to_depth": _space_to_depth,
}
#: By operator, where an element of its result comes from.
MOVES: Mapping[str, Move] = {
    **REARRANGED,
    "concat": _concat,
    "pad": _pad,
    "gather": gather,
    "gather_elements": gather_elements,
    "gather_nd": gather_nd,
    "scatter_elements": scatter_elements,
    "scatter_nd": scatter_nd,
    "one_hot": one_hot,
    "reverse_sequence": reverse_sequence,
    "trilu": _trilu,
    "iota": _iota,
    "fill": _fill,
    "eye": _eye,
    "identity_kernel": _identity_kernel,
    "pool_kernel": _pool_kernel,
    "enlarge": _enlarge,
    "shape": _shape,
    "size": _size,
}
