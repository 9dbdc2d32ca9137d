"""Sums of products as products of matrices: which coordinates are rows, which columns, and which are summed over."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.language.ops.einsum import explicit
from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms.graph import Node
from eqsat.runtime.kernels.body import KernelBody
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.expression import Expr, computed, number
from eqsat.runtime.kernels.expressions.scalar import ARITHMETIC, given, operand

#: An element of a factor, at coordinates of the batch, of the rows or columns, and of the terms.
Factor = Callable[[KernelBody, Coords, Coords, Coords], Expr]


@dataclass(frozen=True)
class BatchedProduct:
    """For each element of the batch, a matrix of rows and columns whose elements are sums over terms of left · right.

    Rows, columns and terms may have several coordinates each. `coords` says where an element lies in the result.
    """

    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    terms: tuple[int, ...]
    left: Factor
    right: Factor
    coords: Callable[[Coords, Coords, Coords], Coords]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The number of rows, of columns and of terms."""
        return math.prod(self.rows), math.prod(self.columns), math.prod(self.terms)


def product_of(body: KernelBody, node: Node) -> BatchedProduct | None:
    """A node as a product of matrices; None for other nodes."""
    product = PRODUCTS.get(node.op)
    return None if product is None else product(body, node)


def _matmul(body: KernelBody, node: Node) -> BatchedProduct | None:
    a, b = given(node, 0), given(node, 1)
    (*lead_a, rows, depth), (*lead_b, _, columns) = _matrix(body.shape(a)), _matrix(body.shape(b))
    if 1 in (len(body.shape(a)), len(body.shape(b))):
        return None
    return BatchedProduct(
        body.shape(node.outputs[0])[:-2],
        (rows,),
        (columns,),
        (depth,),
        lambda body, batch, m, k: body.value(a, (*broadcast(batch, lead_a), *m, *k)),
        lambda body, batch, n, k: body.value(b, (*broadcast(batch, lead_b), *k, *n)),
        lambda batch, m, n: (*batch, *m, *n),
    )


def _matrix(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape) if len(shape) > 1 else (1, *shape)


def _gemm(body: KernelBody, node: Node) -> BatchedProduct:
    a, b = given(node, 0), given(node, 1)
    rows, depth = body.shape(a)[::-1] if node.attrs["trans_a"] else body.shape(a)
    columns = body.shape(b)[0 if node.attrs["trans_b"] else 1]
    return BatchedProduct(
        (),
        (rows,),
        (columns,),
        (depth,),
        lambda body, batch, m, k: body.value(a, (*k, *m) if node.attrs["trans_a"] else (*m, *k)),
        lambda body, batch, n, k: body.value(b, (*n, *k) if node.attrs["trans_b"] else (*k, *n)),
        lambda batch, m, n: (*m, *n),
    )


def _einsum(body: KernelBody, node: Node) -> BatchedProduct | None:
    """Of two operands whose indices are all of use: in both, or in one and the result."""
    if len(node.inputs) != 2:
        return None
    values = given(node, 0), given(node, 1)
    terms, result = einsum_terms(body, node)
    sizes = einsum_sizes(body, node)
    left, right = (set(term) for term in terms)
    summed = [i for i in sizes if i not in result]
    alone = any(i not in left & right for i in summed) or any(len(set(t)) < len(t) for t in terms)
    if alone or any(
        sizes[i] != n for t, v in zip(terms, values, strict=True) for i, n in zip(t, body.shape(v), strict=True)
    ):
        return None
    batch = [i for i in result if i in left & right]
    rows, columns = [i for i in result if i not in right], [i for i in result if i not in left]

    def factor(term: str, value: str, own: Sequence[str]) -> Factor:
        def element(body: KernelBody, lead: Coords, along: Coords, k: Coords) -> Expr:
            coord_of = dict(zip((*batch, *own, *summed), (*lead, *along, *k), strict=True))
            return body.value(value, [coord_of[i] for i in term])

        return element

    def coords(lead: Coords, m: Coords, n: Coords) -> Coords:
        coord_of = dict(zip((*batch, *rows, *columns), (*lead, *m, *n), strict=True))
        return tuple(coord_of[i] for i in result)

    shapes = [tuple(sizes[i] for i in indices) for indices in (batch, rows, columns, summed)]
    left_of, right_of = factor(terms[0], values[0], rows), factor(terms[1], values[1], columns)
    return BatchedProduct(shapes[0], shapes[1], shapes[2], shapes[3], left_of, right_of, coords)


def einsum_terms(body: KernelBody, node: Node) -> tuple[list[str], str]:
    """The indices of each operand and of the result."""
    return explicit(node.attrs["equation"], [len(body.shape(str(v))) for v in node.inputs])


def einsum_sizes(body: KernelBody, node: Node) -> dict[str, int]:
    """The size of every index; an axis of one element is repeated."""
    sizes: dict[str, int] = {}
    for term, value in zip(einsum_terms(body, node)[0], node.inputs, strict=True):
        for index, size in zip(term, body.shape(str(value)), strict=True):
            sizes[index] = size if sizes.get(index, 1) == 1 else sizes[index]
    return sizes


def _conv(body: KernelBody, node: Node) -> BatchedProduct:
    """Filters of a group times the windows of the images, unfolded as they are read."""
    x, w = given(node, 0), given(node, 1)
    (_, _, *sizes), (outputs, depth, *kernel) = body.shape(x), body.shape(w)
    groups = node.attrs["group"]
    images, _, *places = body.shape(node.outputs[0])

    def window(body: KernelBody, batch: Coords, n: Coords, k: Coords) -> Expr:
        read = conv_places(node, n[1:], k[1:])
        at = (n[0], batch[0] * depth + k[0], *read)
        zero = number(0, computed(body.group.types[x].dtype))
        inside = body.within(read, sizes)
        if not inside:
            return body.value(x, at)
        return body.choose(zero.dtype, "window", [(inside, lambda: body.value(x, at)), ("", lambda: zero)])

    return BatchedProduct(
        (groups,),
        (outputs // groups,),
        (images, *places),
        (depth, *kernel),
        lambda body, batch, m, k: body.value(w, (batch[0] * (outputs // groups) + m[0], *k)),
        window,
        lambda batch, m, n: (n[0], batch[0] * (outputs // groups) + m[0], *n[1:]),
    )


def conv_places(node: Node, place: Sequence[AffineIndex], within: Sequence[AffineIndex]) -> list[AffineIndex]:
    """The coordinates in the operand of an element of a window."""
    strides, dilations, pads = conv_geometry(node.attrs, len(place))
    steps = zip(place, within, strides, dilations, pads, strict=False)
    return [p * s + r * d - begin for p, r, s, d, begin in steps]


def finished(body: KernelBody, node: Node, total: Expr, coords: Coords) -> Expr:
    """The result from the sum of products: scaled, with the addend, activated."""
    if node.op == "gemm":
        return _scaled(body, node, total, coords)
    bias = operand(node, 2) if node.op in ("conv", "conv_transpose") else None
    value = total
    if bias is not None:
        value = body.named(ARITHMETIC.add(value, body.value(bias, coords[1:2])), "biased")
    if node.attrs.get("activation") == "relu":
        value = body.named(ARITHMETIC.maximum(value, number(0, value.dtype)), "relu")
    return value


def _scaled(body: KernelBody, node: Node, total: Expr, coords: Coords) -> Expr:
    alpha, beta, addend = node.attrs["alpha"], node.attrs["beta"], operand(node, 2)
    value = total if alpha == 1.0 else ARITHMETIC.multiply(total, ARITHMETIC.number(alpha, total))
    if addend is not None:
        c = body.value(addend, broadcast(coords, body.shape(addend)))
        value = ARITHMETIC.add(value, c if beta == 1.0 else ARITHMETIC.multiply(c, ARITHMETIC.number(beta, total)))
    return body.named(value, "gemm")


#: By operator, how it is a product of matrices.
PRODUCTS: Mapping[str, Callable[[KernelBody, Node], BatchedProduct | None]] = {
    "matmul": _matmul,
    "gemm": _gemm,
    "einsum": _einsum,
    "conv": _conv,
}
