"""Matrix products, convolutions and sums of products without a library: a thread for each element, or for a few.

They run where no library has the product: integers, odd strides, operands that are worked out on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms.graph import Node
from eqsat.runtime.kernels.body import KernelBody
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.elements import is_pointwise
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, number
from eqsat.runtime.kernels.expressions.scalar import ARITHMETIC, given
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.movement import MOVES
from eqsat.runtime.kernels.nests.computation import GroupElement, rebuilt
from eqsat.runtime.kernels.nests.gpu_groups.factoring import conv_places, einsum_sizes, einsum_terms, finished
from eqsat.runtime.kernels.nests.gpu_groups.results import results_kernel
from eqsat.runtime.kernels.nests.gpu_groups.squares import squares_kernel
from eqsat.runtime.kernels.nests.printing.group_printer import group_kernel
from eqsat.runtime.kernels.packs import PackedBody
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.writer import bare

#: A loop: the name of its variable, and how often it runs.
Loop = tuple[str, int]


def generate(group: Group) -> KernelSource | None:
    """The kernel of a product and the operators before and after it; None where there is not one product."""
    products = [node for node in group.nodes if node.op in SUMS]
    others = [node for node in group.nodes if node.op not in SUMS]
    if len(products) != 1 or not all(is_pointwise(node) or node.op in MOVES for node in others):
        return None
    (node,) = products
    try:
        squares = squares_kernel(group, node)
        if squares is not None:
            return group_kernel(PackedBody(group), squares)
    except UnsupportedError:
        pass  # a thread for each element computes what no tile does
    body = PackedBody(group)

    def produced(coords: Coords) -> Expr:
        total = SUMS[node.op](body, node, coords)
        value = finished(group, node, total, coords)
        return rebuilt(value, lambda one: body.value(one.name, one.coords) if isinstance(one, GroupElement) else None)

    body.produce(node.outputs[0], produced)
    return group_kernel(body, results_kernel(group))


def _total(
    body: KernelBody,
    node: Node,
    loops: Sequence[Loop],
    factors: Callable[[Coords], Sequence[Expr]],
    where: Where | None = None,
) -> Expr:
    """The sum, over loops, of products of the factors at the loops' variables, where a condition holds."""
    dtype = computed(body.group.types[node.outputs[0]].dtype)
    writer = body.writer
    total = Expr(dtype, writer.name("total"))
    writer.line(f"{total.c_type} {total.template} = {number(0, dtype).template};")
    names = [writer.name(stem) for stem, _ in loops]
    at = tuple(AffineIndex.variable(name, size) for name, (_, size) in zip(names, loops, strict=True))

    def inner() -> None:
        product, *rest = factors(at)
        for factor in rest:
            product = ARITHMETIC.multiply(product, factor)
        added = writer.render(ARITHMETIC.add(total, product), "term")
        writer.line(f"{total.template} = {bare(added)};")

    def nested(depth: int) -> None:
        if depth < len(loops):
            name, size = names[depth], loops[depth][1]
            if size == 1:
                nested(depth + 1)
                return
            with writer.loop(f"for (int {name} = 0; {name} < {size}; ++{name})", name, total.template):
                nested(depth + 1)
            return
        condition = where(at) if where is not None else ""
        if condition is None:
            return
        if not condition:
            inner()
            return
        with writer.block(f"if ({condition})"):
            inner()

    nested(0)
    return total


#: The condition under which a term counts: none (""), or one that never holds (None).
Where = Callable[[Coords], "str | None"]


def _matmul(body: KernelBody, node: Node, coords: Coords) -> Expr:
    a, b = given(node, 0), given(node, 1)

    def factors(at: Coords) -> list[Expr]:
        left, right = matrix_coords(body.shape(a), body.shape(b), coords, at[0])
        return [body.value(a, left), body.value(b, right)]

    return _total(body, node, [("k", body.shape(a)[-1])], factors)


def matrix_coords(a: Sequence[int], b: Sequence[int], coords: Coords, k: AffineIndex) -> tuple[Coords, Coords]:
    """The coordinates of the factors of a term of a matrix product, with batches broadcast, and with vectors."""
    batch = list(coords)
    column = (batch.pop(),) if len(b) > 1 else ()
    row = (batch.pop(),) if len(a) > 1 else ()
    left = (*broadcast(batch, a[:-2]), *row, k)
    right = (*broadcast(batch, b[:-2]), k, *column)
    return left, right


def _gemm(body: KernelBody, node: Node, coords: Coords) -> Expr:
    a, b = given(node, 0), given(node, 1)
    row, column = coords
    size = body.shape(a)[0 if node.attrs["trans_a"] else 1]

    def factors(at: Coords) -> list[Expr]:
        (k,) = at
        left = (k, row) if node.attrs["trans_a"] else (row, k)
        right = (column, k) if node.attrs["trans_b"] else (k, column)
        return [body.value(a, left), body.value(b, right)]

    return _total(body, node, [("k", size)], factors)


def _einsum(body: KernelBody, node: Node, coords: Coords) -> Expr:
    values = [given(node, place) for place in range(len(node.inputs))]
    (terms, result), sizes = einsum_terms(body.group, node), einsum_sizes(body.group, node)
    summed = [index for index in sizes if index not in result]
    coord_of = dict(zip(result, coords, strict=True))

    def factors(at: Coords) -> list[Expr]:
        places = {**coord_of, **dict(zip(summed, at, strict=True))}
        return [
            body.value(
                v, [AffineIndex.number(0) if n == 1 else places[i] for i, n in zip(term, body.shape(v), strict=True)]
            )
            for term, v in zip(terms, values, strict=True)
        ]

    return _total(body, node, [(f"k{index}", sizes[index]) for index in summed], factors)


def _conv(body: KernelBody, node: Node, coords: Coords) -> Expr:
    x, w = given(node, 0), given(node, 1)
    (_, _, *sizes), (outputs, depth, *kernel) = body.shape(x), body.shape(w)
    image, channel, *place = coords
    group = channel // (outputs // node.attrs["group"])

    def where(at: Coords) -> str:
        return body.within(conv_places(node, place, at[1:]), sizes)

    def factors(at: Coords) -> list[Expr]:
        read = conv_places(node, place, at[1:])
        return [body.value(x, (image, group * depth + at[0], *read)), body.value(w, (channel, *at))]

    loops = [("c", depth), *((f"r{axis}", size) for axis, size in enumerate(kernel))]
    return _total(body, node, loops, factors, where)


def _conv_transpose(body: KernelBody, node: Node, coords: Coords) -> Expr:
    x, w = given(node, 0), given(node, 1)
    (_, channels, *sizes), (_, outputs, *kernel) = body.shape(x), body.shape(w)
    strides, dilations, pads = conv_geometry(node.attrs, len(sizes))
    image, channel, *place = coords
    depth = channels // node.attrs["group"]
    group, within = channel // outputs, channel % outputs

    def steps(at: Coords) -> list[AffineIndex]:
        """The position of the operand's element that this one of the filter multiplies, times the stride."""
        return [p + begin - r * d for p, r, d, begin in zip(place, at[1:], dilations, pads, strict=False)]

    def where(at: Coords) -> str | None:
        conditions = []
        for step, stride, size in zip(steps(at), strides, sizes, strict=True):
            rest, index = step % stride, step // stride
            if rest.is_number and rest.constant:
                return None
            conditions += [body.least(step)] * (step.low < 0)
            conditions += [f"{body.writer.index(rest)} == 0"] * (not rest.is_number)
            conditions += [body.below(index, size)] * (index.high >= size)
        return " && ".join(conditions)

    def factors(at: Coords) -> list[Expr]:
        read = [step // stride for step, stride in zip(steps(at), strides, strict=True)]
        feature = group * depth + at[0]
        return [body.value(x, (image, feature, *read)), body.value(w, (feature, within, *at[1:]))]

    loops = [("c", depth), *((f"r{axis}", size) for axis, size in enumerate(kernel))]
    return _total(body, node, loops, factors, where)


#: By operator, how an element of its result is summed up.
SUMS: Mapping[str, Callable[[KernelBody, Node, Coords], Expr]] = {
    "matmul": _matmul,
    "gemm": _gemm,
    "einsum": _einsum,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
}
