"""Sums of products as products of matrices: which coordinates are rows, which columns, and which are summed over."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from eqsat.language.ops.einsum import explicit
from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms import Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.expression import Expr, computed, number
from eqsat.runtime.kernels.expressions.scalar import ARITHMETIC, given, operand
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import GroupElement


@dataclass(frozen=True)
class FactorElement:
    """An element of a factor; 0 where one of the `places` along axes of these sizes is none of the axis."""

    value: GroupElement
    places: tuple[tuple[AffineIndex, int], ...] = ()

    @property
    def is_conditional(self) -> bool:
        """True where some places may be outside."""
        return any(place.low < 0 or place.high >= size for place, size in self.places)


#: An element of a factor, at coordinates of the batch, of the rows or columns, and of the terms.
Factor = Callable[[Coords, Coords, Coords], FactorElement]


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


def element_of(group: Group, name: str, coords: Sequence[AffineIndex]) -> GroupElement:
    """The element of a value, in the type that it is computed in."""
    return GroupElement.of(name, computed(group.types[name].dtype), coords)


def _factor(group: Group, name: str, coords: Sequence[AffineIndex]) -> FactorElement:
    return FactorElement(element_of(group, name, coords))


def product_of(group: Group, node: Node) -> BatchedProduct | None:
    """A node as a product of matrices; None for other nodes."""
    product = PRODUCTS.get(node.op)
    return None if product is None else product(group, node)


def _matmul(group: Group, node: Node) -> BatchedProduct | None:
    a, b = given(node, 0), given(node, 1)
    (*lead_a, rows, depth), (*lead_b, _, columns) = _matrix(group.types[a].static), _matrix(group.types[b].static)
    if 1 in (len(group.types[a].static), len(group.types[b].static)):
        return None
    return BatchedProduct(
        group.types[node.outputs[0]].static[:-2],
        (rows,),
        (columns,),
        (depth,),
        lambda batch, m, k: _factor(group, a, (*broadcast(batch, lead_a), *m, *k)),
        lambda batch, n, k: _factor(group, b, (*broadcast(batch, lead_b), *k, *n)),
        lambda batch, m, n: (*batch, *m, *n),
    )


def _matrix(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape) if len(shape) > 1 else (1, *shape)


def _gemm(group: Group, node: Node) -> BatchedProduct:
    a, b = given(node, 0), given(node, 1)
    rows, depth = group.types[a].static[::-1] if node.attrs["trans_a"] else group.types[a].static
    columns = group.types[b].static[0 if node.attrs["trans_b"] else 1]
    return BatchedProduct(
        (),
        (rows,),
        (columns,),
        (depth,),
        lambda batch, m, k: _factor(group, a, (*k, *m) if node.attrs["trans_a"] else (*m, *k)),
        lambda batch, n, k: _factor(group, b, (*n, *k) if node.attrs["trans_b"] else (*k, *n)),
        lambda batch, m, n: (*m, *n),
    )


def _einsum(group: Group, node: Node) -> BatchedProduct | None:
    """Of two operands whose indices are all of use: in both, or in one and the result."""
    if len(node.inputs) != 2:
        return None
    values = given(node, 0), given(node, 1)
    terms, result = einsum_terms(group, node)
    sizes = einsum_sizes(group, node)
    left, right = (set(term) for term in terms)
    summed = [i for i in sizes if i not in result]
    alone = any(i not in left & right for i in summed) or any(len(set(t)) < len(t) for t in terms)
    if alone or any(
        sizes[i] != n for t, v in zip(terms, values, strict=True) for i, n in zip(t, group.types[v].static, strict=True)
    ):
        return None
    batch = [i for i in result if i in left & right]
    rows, columns = [i for i in result if i not in right], [i for i in result if i not in left]

    def factor(term: str, value: str, own: Sequence[str]) -> Factor:
        def element(lead: Coords, along: Coords, k: Coords) -> FactorElement:
            coord_of = dict(zip((*batch, *own, *summed), (*lead, *along, *k), strict=True))
            return _factor(group, value, [coord_of[i] for i in term])

        return element

    def coords(lead: Coords, m: Coords, n: Coords) -> Coords:
        coord_of = dict(zip((*batch, *rows, *columns), (*lead, *m, *n), strict=True))
        return tuple(coord_of[i] for i in result)

    shapes = [tuple(sizes[i] for i in indices) for indices in (batch, rows, columns, summed)]
    left_of, right_of = factor(terms[0], values[0], rows), factor(terms[1], values[1], columns)
    return BatchedProduct(shapes[0], shapes[1], shapes[2], shapes[3], left_of, right_of, coords)


def einsum_terms(group: Group, node: Node) -> tuple[list[str], str]:
    """The indices of each operand and of the result."""
    return explicit(node.attrs["equation"], [len(group.types[str(v)].static) for v in node.inputs])


def einsum_sizes(group: Group, node: Node) -> dict[str, int]:
    """The size of every index; an axis of one element is repeated."""
    sizes: dict[str, int] = {}
    for term, value in zip(einsum_terms(group, node)[0], node.inputs, strict=True):
        for index, size in zip(term, group.types[str(value)].static, strict=True):
            sizes[index] = size if sizes.get(index, 1) == 1 else sizes[index]
    return sizes


def _conv(group: Group, node: Node) -> BatchedProduct:
    """Filters of a group times the windows of the images, unfolded as they are read."""
    x, w = given(node, 0), given(node, 1)
    (_, _, *sizes), (outputs, depth, *kernel) = group.types[x].static, group.types[w].static
    groups = node.attrs["group"]
    images, _, *places = group.types[node.outputs[0]].static

    def window(batch: Coords, n: Coords, k: Coords) -> FactorElement:
        read = conv_places(node, n[1:], k[1:])
        element = element_of(group, x, (n[0], batch[0] * depth + k[0], *read))
        return FactorElement(element, tuple(zip(read, sizes, strict=True)))

    return BatchedProduct(
        (groups,),
        (outputs // groups,),
        (images, *places),
        (depth, *kernel),
        lambda batch, m, k: _factor(group, w, (batch[0] * (outputs // groups) + m[0], *k)),
        window,
        lambda batch, m, n: (n[0], batch[0] * (outputs // groups) + m[0], *n[1:]),
    )


def conv_places(node: Node, place: Sequence[AffineIndex], within: Sequence[AffineIndex]) -> list[AffineIndex]:
    """The coordinates in the operand of an element of a window."""
    strides, dilations, pads = conv_geometry(node.attrs, len(place))
    steps = zip(place, within, strides, dilations, pads, strict=False)
    return [p * s + r * d - begin for p, r, s, d, begin in steps]


def finished(group: Group, node: Node, total: Expr, coords: Coords) -> Expr:
    """The result from the sum of products: scaled, with the addend, activated."""
    if node.op == "gemm":
        return _scaled(group, node, total, coords)
    bias = operand(node, 2) if node.op in ("conv", "conv_transpose") else None
    value = total
    if bias is not None:
        value = ARITHMETIC.add(value, element_of(group, bias, coords[1:2]))
    if node.attrs.get("activation") == "relu":
        value = ARITHMETIC.maximum(value, number(0, value.dtype))
    return value


def _scaled(group: Group, node: Node, total: Expr, coords: Coords) -> Expr:
    alpha, beta, addend = node.attrs["alpha"], node.attrs["beta"], operand(node, 2)
    value = total if alpha == 1.0 else ARITHMETIC.multiply(total, ARITHMETIC.number(alpha, total))
    if addend is not None:
        c = element_of(group, addend, broadcast(coords, group.types[addend].static))
        value = ARITHMETIC.add(value, c if beta == 1.0 else ARITHMETIC.multiply(c, ARITHMETIC.number(beta, total)))
    return value


#: By operator, how it is a product of matrices.
PRODUCTS: Mapping[str, Callable[[Group, Node], BatchedProduct | None]] = {
    "matmul": _matmul,
    "gemm": _gemm,
    "einsum": _einsum,
    "conv": _conv,
}
