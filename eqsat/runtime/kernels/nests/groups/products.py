"""Products of matrices as statements: sums that a library or tiles in registers compute."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from eqsat.language.ops.einsum import explicit
from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import given, operand
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements, Landing, reshaped

#: Stands for a sum where it is asked what is made of it.
_PROBE = Expr(DType.FLOAT32, "probe")
_add, _multiply, _maximum = FUNCTIONS["add"], FUNCTIONS["multiply"], FUNCTIONS["maximum"]


def _factor(body: GroupStatements, name: str, shape: Sequence[int] | None = None) -> Callable[[Coords], Expr]:
    """An operand of a product, in memory."""
    buffer = body.in_memory(name, shape)
    return lambda coords: body.read(buffer, coords)


def multiplied(body: GroupStatements, node: Node, a: Expr, b: Expr) -> Expr:
    """The product of two factors, in the type that the result of a node is computed in."""
    dtype = computed(body.group.types[node.outputs[0]].dtype)
    return _multiply(convert(a, dtype), convert(b, dtype))


def finish_sum(
    body: GroupStatements,
    node: Node,
    target: Landing,
    source: str,
    finish: Callable[[Expr, Coords], Expr],
    sizes: Sequence[int] | None = None,
    place: Callable[[Coords], Coords] | None = None,
    *,
    is_last: bool = True,
) -> None:
    """The statement after a sum: what is made of the sum element by element, where that is more than a copy.

    Inside of a loop it is added for the elements that are summed there, `sizes` of them at a `place`. The value lies
    where it belongs after the last of several.
    """
    made = node.outputs[0]
    own = body.shape(made)

    def element(coords: Coords) -> Expr:
        x = finish(body.read(source, reshaped(coords, own, target.shape)), coords)
        return convert(x, computed(body.group.types[made].dtype))

    body.produce(made, element)
    wanted = target.home or made

    def value(at: Coords, _: Coords) -> Expr:
        return body.value(wanted, target.coords(at if place is None else place(at)))

    zeros = tuple(AffineIndex.number(0) for _ in target.shape)
    plain = wanted == made and source == target.buffer
    if not plain or finish(_PROBE, target.coords(zeros)) is not _PROBE:
        body.fill(target.buffer, value, sizes=sizes, place=place)
    if is_last:
        body.settle(made, target)


def sum_buffer(body: GroupStatements, target: Landing) -> str:
    """Where a sum is made: at the result, if its elements hold what is computed with."""
    dtype = body.buffers[target.buffer].dtype
    return target.buffer if computed(dtype) is dtype else body.temporary(computed(dtype), target.shape)


def _matmul(body: GroupStatements, node: Node) -> None:
    a, b, made = given(node, 0), given(node, 1), node.outputs[0]
    shape_a, shape_b = body.shape(a), body.shape(b)
    if len(shape_a) == 1 or len(shape_b) == 1:
        _vector_product(body, node)
        return
    (*lead_a, rows, depth), (*lead_b, _, columns) = shape_a, shape_b
    if math.prod(lead_b) == 1 and lead_a and len(lead_a) >= len(lead_b):
        # One matrix for all: rows of the batch are rows.
        flat = math.prod(lead_a) * rows
        target = body.landing(made, (flat, columns))
        if target.shape == (flat, columns):
            left, right = _factor(body, a, (flat, depth)), _factor(body, b, (depth, columns))
            buffer = sum_buffer(body, target)
            body.fill(
                buffer, lambda at, k: multiplied(body, node, left((at[0], *k)), right((*k, at[1]))), (depth,), "+"
            )
            finish_sum(body, node, target, buffer, lambda x, c: x)
            return
    else:
        target = body.landing(made)
    left, right = _factor(body, a), _factor(body, b)
    buffer = sum_buffer(body, target)

    def term(at: Coords, k: Coords) -> Expr:
        *batch, m, n = at
        return multiplied(
            body, node, left((*broadcast(batch, lead_a), m, *k)), right((*broadcast(batch, lead_b), *k, n))
        )

    body.fill(buffer, term, (depth,), "+")
    finish_sum(body, node, target, buffer, lambda x, c: x)


def _vector_product(body: GroupStatements, node: Node) -> None:
    a, b = given(node, 0), given(node, 1)
    shape_a, shape_b = body.shape(a), body.shape(b)
    left, right = _factor(body, a), _factor(body, b)
    target = body.landing(node.outputs[0])
    buffer = sum_buffer(body, target)

    def term(at: Coords, k: Coords) -> Expr:
        rest = list(at)
        column = rest.pop() if len(shape_b) > 1 else None
        row = rest.pop() if len(shape_a) > 1 else None
        first = (*broadcast(rest, shape_a[:-2]), *(() if row is None else (row,)), *k)
        second = (*broadcast(rest, shape_b[:-2]), *k, *(() if column is None else (column,)))
        return multiplied(body, node, left(first), right(second))

    body.fill(buffer, term, (shape_a[-1],), "+")
    finish_sum(body, node, target, buffer, lambda x, c: x)


def _gemm(body: GroupStatements, node: Node) -> None:
    a, b = given(node, 0), given(node, 1)
    attrs = node.attrs
    depth = body.shape(a)[0 if attrs["trans_a"] else 1]
    left, right = _factor(body, a), _factor(body, b)
    target = body.landing(node.outputs[0])
    buffer = sum_buffer(body, target)

    def term(at: Coords, k: Coords) -> Expr:
        (m, n), (d,) = at, k
        return multiplied(
            body, node, left((d, m) if attrs["trans_a"] else (m, d)), right((n, d) if attrs["trans_b"] else (d, n))
        )

    body.fill(buffer, term, (depth,), "+")
    finish_sum(body, node, target, buffer, _gemm_finish(body, node))


def _gemm_finish(body: GroupStatements, node: Node) -> Callable[[Expr, Coords], Expr]:
    """The rest of a product after its sum: a factor, and the addend."""
    attrs, addend = node.attrs, operand(node, 2)

    def finish(x: Expr, coords: Coords) -> Expr:
        x = x if attrs["alpha"] == 1.0 else _multiply(x, number(attrs["alpha"], x.dtype))
        if addend is None:
            return x
        c = convert(body.value(addend, broadcast(coords, body.shape(addend))), x.dtype)
        return _add(x, c if attrs["beta"] == 1.0 else _multiply(c, number(attrs["beta"], x.dtype)))

    return finish


def packed_product(body: GroupStatements, node: Node, panel: int) -> None:
    """A product of matrices with a constant, whose columns lie side by side in panels as wide as a tile."""
    a, b, made = given(node, 0), given(node, 1), node.outputs[0]
    shape_a, shape_b, dtype = body.shape(a), body.shape(b), body.group.types[made].dtype
    is_gemm = node.op == "gemm"
    down = is_gemm and node.attrs["trans_a"]
    turned = is_gemm and node.attrs["trans_b"]
    depth, columns = shape_b[::-1] if turned else shape_b
    rows = shape_a[1] if down else math.prod(shape_a[:-1])
    target = body.landing(made, (rows, columns))
    if len(shape_b) != 2 or dtype not in (DType.FLOAT32, DType.FLOAT64) or target.shape != (rows, columns):
        raise UnsupportedError("another product")
    left = _factor(body, a) if down else _factor(body, a, (rows, depth))
    whole, rest = divmod(columns, panel)

    def fill(buffer: str) -> None:
        for count, width, start in ((whole, panel, 0), (1, rest, whole)):
            if count and width:
                body.fill(
                    buffer,
                    lambda at, _, start=start: _column(body, b, at[1], (at[0] + start) * panel + at[2], turned),  # type: ignore[misc]
                    sizes=(count, depth, width),
                    place=lambda at, start=start: (at[0] + start, *at[1:]),  # type: ignore[misc]
                )

    panels = body.prepared(dtype, (-(-columns // panel), depth, panel), [b], fill)
    finish = _gemm_finish(body, node) if is_gemm else lambda x, coords: x
    for count, width, start in ((whole, panel, 0), (1, rest, whole)):
        if not count or not width:
            continue

        def there(at: Coords, start: int = start) -> Coords:
            return (at[1], (at[0] + start) * panel + at[2])

        def term(at: Coords, k: Coords, start: int = start) -> Expr:
            value = left((*k, at[1]) if down else (at[1], *k))
            return multiplied(body, node, value, body.read(panels, (at[0] + start, *k, at[2])))

        sizes = (count, rows, width)
        body.fill(target.buffer, term, (depth,), "+", sizes=sizes, place=there)
        finish_sum(body, node, target, target.buffer, finish, sizes, there, is_last=start == whole or not rest)


def _column(body: GroupStatements, name: str, row: AffineIndex, column: AffineIndex, turned: bool) -> Expr:
    return body.value(name, (column, row) if turned else (row, column))


def _einsum(body: GroupStatements, node: Node) -> None:
    """The sum of products over all indices that the result lacks; an axis of one element is repeated."""
    values = [given(node, place) for place in range(len(node.inputs))]
    terms, result = explicit(node.attrs["equation"], [len(body.shape(v)) for v in values])
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        for index, size in zip(term, body.shape(value), strict=True):
            sizes[index] = size if sizes.get(index, 1) == 1 else sizes[index]
    summed = [index for index in sizes if index not in result]
    factors = [_factor(body, value) for value in values]
    target = body.landing(node.outputs[0])
    buffer = sum_buffer(body, target)
    dtype = computed(body.group.types[node.outputs[0]].dtype)

    def term_of(at: Coords, k: Coords) -> Expr:
        known = dict(zip((*result, *summed), (*at, *k), strict=True))
        product: Expr | None = None
        for factor, term, value in zip(factors, terms, values, strict=True):
            shape = body.shape(value)
            place = [AffineIndex.number(0) if n == 1 else known[i] for i, n in zip(term, shape, strict=True)]
            element = convert(factor(tuple(place)), dtype)
            product = element if product is None else _multiply(product, element)
        assert product is not None
        return product

    body.fill(buffer, term_of, [sizes[index] for index in summed], "+" if summed else "")
    finish_sum(body, node, target, buffer, lambda x, c: x)


#: Operators that are sums of products.
PRODUCTS: Mapping[str, Callable[[GroupStatements, Node], None]] = {
    "matmul": _matmul,
    "gemm": _gemm,
    "einsum": _einsum,
}
