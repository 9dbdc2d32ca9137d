"""Schedules of sums of products whose elements are summed up where they are read, each by one thread.

They are taken where no library has the product, nor tiles: integers, odd strides, small sizes, elements that move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms import Node as Operator
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, broadcast
from eqsat.runtime.kernels.expressions.expression import Expr, computed, number
from eqsat.runtime.kernels.expressions.scalar import ARITHMETIC, given
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer
from eqsat.runtime.kernels.nests.gpu_groups.factoring import (
    conv_places,
    einsum_sizes,
    einsum_terms,
    element_of,
    finished,
)
from eqsat.runtime.kernels.nests.gpu_groups.results import results_kernel
from eqsat.runtime.kernels.nests.gpu_groups.stores import local_name
from eqsat.runtime.kernels.nests.tree import Assign, GpuKernel, Guard, InlinedValue, Local, Loop, Node


@dataclass(frozen=True)
class SummedFactors:
    """The factors of each term, for the values of loops' variables; terms count where sums are in their bounds."""

    loops: tuple[tuple[str, int], ...]
    factors: tuple[Expr, ...]
    below: tuple[tuple[AffineIndex, int], ...] = ()
    least: tuple[tuple[AffineIndex, int], ...] = ()
    is_empty: bool = False


def sums_kernel(group: Group, node: Operator) -> GpuKernel:
    """The kernel of a thread for each element of the results; the sums are made where they are read."""
    kernel = results_kernel(group)
    made = InlinedValue(node.outputs[0], lambda coords: _element(group, node, coords))
    return replace(kernel, body=(made, *kernel.body))


def _element(group: Group, node: Operator, coords: Coords) -> tuple[tuple[Node, ...], Expr]:
    """The statements that sum up an element of a product, and the element."""
    total = SUMS[node.op](group, node, coords)
    dtype = computed(group.types[node.outputs[0]].dtype)
    buffer = KernelBuffer(local_name(group, "total"), dtype, (), "local")
    read = ElementRead.of(buffer.name, dtype, ())
    term, *rest = total.factors
    for factor in rest:
        term = ARITHMETIC.multiply(term, factor)
    body: Node = Guard(total.below, (Assign(read, ARITHMETIC.add(read, term)),), total.least)
    for name, size in reversed(total.loops):
        if size != 1:
            body = Loop(name, size, (body,), is_reduced=True)
    sums = () if total.is_empty else (body,)
    local = Local(buffer, True, value=number(0, dtype))
    return (local, *sums), finished(group, node, read, coords)


def _variables(loops: Sequence[tuple[str, int]]) -> Coords:
    return tuple(AffineIndex.variable(name, size) for name, size in loops)


def _matmul(group: Group, node: Operator, coords: Coords) -> SummedFactors:
    a, b = given(node, 0), given(node, 1)
    shapes = group.types[a].static, group.types[b].static
    loops = (("k", shapes[0][-1]),)
    left, right = matrix_coords(*shapes, coords, *_variables(loops))
    return SummedFactors(loops, (element_of(group, a, left), element_of(group, b, right)))


def matrix_coords(a: Sequence[int], b: Sequence[int], coords: Coords, k: AffineIndex) -> tuple[Coords, Coords]:
    """The coordinates of the factors of a term of a matrix product, with batches broadcast, and with vectors."""
    batch = list(coords)
    column = (batch.pop(),) if len(b) > 1 else ()
    row = (batch.pop(),) if len(a) > 1 else ()
    left = (*broadcast(batch, a[:-2]), *row, k)
    right = (*broadcast(batch, b[:-2]), k, *column)
    return left, right


def _gemm(group: Group, node: Operator, coords: Coords) -> SummedFactors:
    a, b = given(node, 0), given(node, 1)
    row, column = coords
    loops = (("k", group.types[a].static[0 if node.attrs["trans_a"] else 1]),)
    (k,) = _variables(loops)
    left = (k, row) if node.attrs["trans_a"] else (row, k)
    right = (column, k) if node.attrs["trans_b"] else (k, column)
    return SummedFactors(loops, (element_of(group, a, left), element_of(group, b, right)))


def _einsum(group: Group, node: Operator, coords: Coords) -> SummedFactors:
    values = [given(node, place) for place in range(len(node.inputs))]
    (terms, result), sizes = einsum_terms(group, node), einsum_sizes(group, node)
    summed = [index for index in sizes if index not in result]
    loops = tuple((f"k{index}", sizes[index]) for index in summed)
    places = {**dict(zip(result, coords, strict=True)), **dict(zip(summed, _variables(loops), strict=True))}

    def factor(term: str, value: str) -> Expr:
        shape = group.types[value].static
        at = [AffineIndex.number(0) if n == 1 else places[i] for i, n in zip(term, shape, strict=True)]
        return element_of(group, value, at)

    return SummedFactors(loops, tuple(factor(term, value) for term, value in zip(terms, values, strict=True)))


def _conv(group: Group, node: Operator, coords: Coords) -> SummedFactors:
    x, w = given(node, 0), given(node, 1)
    (_, _, *sizes), (outputs, depth, *kernel) = group.types[x].static, group.types[w].static
    image, channel, *place = coords
    first = channel // (outputs // node.attrs["group"]) * depth
    loops = (("c", depth), *((f"r{axis}", size) for axis, size in enumerate(kernel)))
    at = _variables(loops)
    read = conv_places(node, place, at[1:])
    factors = (element_of(group, x, (image, first + at[0], *read)), element_of(group, w, (channel, *at)))
    return SummedFactors(loops, factors, tuple(zip(read, sizes, strict=True)), tuple((one, 0) for one in read))


def _conv_transpose(group: Group, node: Operator, coords: Coords) -> SummedFactors:
    x, w = given(node, 0), given(node, 1)
    (_, channels, *sizes), (_, outputs, *kernel) = group.types[x].static, group.types[w].static
    strides, dilations, pads = conv_geometry(node.attrs, len(sizes))
    image, channel, *place = coords
    depth = channels // node.attrs["group"]
    loops = (("c", depth), *((f"r{axis}", size) for axis, size in enumerate(kernel)))
    at = _variables(loops)
    # The position of the operand's element that one of the filter multiplies, times the stride.
    steps = [p + begin - r * d for p, r, d, begin in zip(place, at[1:], dilations, pads, strict=False)]
    rests = [step % stride for step, stride in zip(steps, strides, strict=True)]
    read = [step // stride for step, stride in zip(steps, strides, strict=True)]
    feature = channel // outputs * depth + at[0]
    factors = (
        element_of(group, x, (image, feature, *read)),
        element_of(group, w, (feature, channel % outputs, *at[1:])),
    )
    below = (*((rest, 1) for rest in rests), *zip(read, sizes, strict=True))
    is_empty = any(rest.is_number and rest.constant for rest in rests)
    return SummedFactors(loops, factors, below, tuple((step, 0) for step in steps), is_empty)


#: By operator, how an element of its result is summed up.
SUMS: Mapping[str, Callable[[Group, Operator, Coords], SummedFactors]] = {
    "matmul": _matmul,
    "gemm": _gemm,
    "einsum": _einsum,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
}
