"""Schedules of products through tiles in shared memory: a block makes a square, a thread sixteen of its elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.language.terms import Node as Operator
from eqsat.runtime.kernels.body import KernelBody
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex, Coords, unflattened
from eqsat.runtime.kernels.expressions.expression import computed, number
from eqsat.runtime.kernels.expressions.scalar import ARITHMETIC
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer
from eqsat.runtime.kernels.nests.gpu_groups.factoring import BatchedProduct, Factor, finished, product_of
from eqsat.runtime.kernels.nests.gpu_groups.results import THREAD, THREAD_ROW, block_of
from eqsat.runtime.kernels.nests.gpu_groups.stores import local_name, stored_results
from eqsat.runtime.kernels.nests.tree import Assign, Barrier, GpuKernel, Guard, Local, Loop, Named, Node, ThreadLoop

#: Rows and columns of the result that a block makes, and how many terms of the sums it takes at a time.
SQUARE, DEPTH = 64, 16
#: Threads along each axis of the square, and the elements along each axis that a thread makes.
SIDE, EACH = 16, 4
#: Smaller products leave most of a square empty.
LEAST_SIDE, LEAST_DEPTH = 24, 8
_PURPOSE = f"Squares of {SQUARE} × {SQUARE}, {DEPTH} terms of their sums at a time."


def squares_kernel(group: Group, node: Operator) -> GpuKernel | None:
    """The kernel of a product of decent size; None for others."""
    product = product_of(group, node)
    if product is None or not math.prod(product.batch):
        return None
    rows, columns, terms = product.sizes
    if min(rows, columns) < LEAST_SIDE or terms < LEAST_DEPTH or max(rows, columns) >= INT_LIMIT - SQUARE:
        return None
    return _Squares(group, node, product).kernel()


def _each(body: Sequence[Node], *variables: str) -> Node:
    """Statements for every element of a thread along axes of the square, written out."""
    for name in reversed(variables):
        body = (Loop(name, EACH, tuple(body), "unrolled"),)
    (loop,) = body
    return loop


class _Squares:
    """The kernel of one product. Tiles lie with their terms first; m and n are the row and column of an element."""

    def __init__(self, group: Group, node: Operator, product: BatchedProduct) -> None:
        self.group, self.node, self.product = group, node, product
        self.rows, self.columns, self.depth = product.sizes
        self.dtype = computed(group.types[node.outputs[0]].dtype)
        self.down, self.across = -(-self.rows // SQUARE), -(-self.columns // SQUARE)
        self.blocks = self.down * self.across * math.prod(product.batch)
        self.i, self.j = (AffineIndex.variable(name, EACH) for name in "ij")

    def _local(self, stem: str, *shape: int) -> KernelBuffer:
        return KernelBuffer(local_name(self.group, stem), self.dtype, shape, "local")

    def _read(self, stem: str, *place: AffineIndex) -> ElementRead:
        return ElementRead.of(local_name(self.group, stem), self.dtype, place)

    def kernel(self) -> GpuKernel:
        """The whole kernel."""
        square = AffineIndex.variable("square", self.blocks)
        batch = unflattened(square // (self.down * self.across), self.product.batch)
        steps = (
            *self._copied("a", "top", self.product.rows, batch, self.product.left),
            *self._copied("b", "left", self.product.columns, batch, self.product.right),
            Barrier(),
            self._multiplied(),
            Barrier(),
        )
        nodes = (
            Named("square", block_of(self.blocks)),
            Named("top", square // self.across % self.down * SQUARE),
            Named("left", square % self.across * SQUARE),
            Local(self._local("a_tile", DEPTH, SQUARE + 1), is_shared=True),
            Local(self._local("b_tile", DEPTH, SQUARE + 1), is_shared=True),
            # NVRTC takes up to 64 registers for 48 where loops write the zeros.
            Local(self._local("totals", EACH, EACH), value=number(0, self.dtype)),
            ThreadLoop("first", AffineIndex.number(0), self.depth, DEPTH, steps, "serial"),
            self._finished(batch),
        )
        return GpuKernel(nodes, self.blocks, (SIDE, SIDE), _PURPOSE)

    @property
    def _total(self) -> ElementRead:
        return self._read("totals", self.i, self.j)

    def _copied(self, name: str, start: str, shape: Sequence[int], batch: Coords, factor: Factor) -> Sequence[Node]:
        """The statements by which all threads bring the next terms of a factor into shared memory."""
        size, count = math.prod(shape), SQUARE * DEPTH // (SIDE * SIDE)
        # That a square may reach beyond the product is not used where it never does.
        place, k = AffineIndex.variable(f"{name}_place", size), AffineIndex.variable(f"{name}_k", self.depth)
        element = factor(batch, unflattened(place, shape), unflattened(k, self.product.terms))
        probe = KernelBody(self.group)
        probe.value(element.value.name, element.value.coords)
        # Whether neighbours in memory are neighbours along the sums rather than along the result.
        along = any(abs(a.offset.coefficient(f"{name}_k")) == 1 for a in probe.accesses)
        is_conditional = element.is_conditional or any(a.conditional for a in probe.accesses)
        i = AffineIndex.variable("i", SQUARE * DEPTH)
        row, column = (i // DEPTH, i % DEPTH) if along else (i % SQUARE, i // SQUARE)
        thread = AffineIndex.variable(THREAD_ROW, SIDE) * SIDE + AffineIndex.variable(THREAD, SIDE)
        row_of, column_of = AffineIndex.variable("row", SQUARE), AffineIndex.variable("column", DEPTH)
        local = Local(self._local(name), True, value=number(0, self.dtype))
        reach = (AffineIndex.variable(f"{name}_place", size + SQUARE), size)
        terms = (AffineIndex.variable(f"{name}_k", self.depth + DEPTH), self.depth)
        read: Node = Assign(self._read(name), element.value)
        if element.is_conditional:
            read = Guard(element.places, (read,), tuple((place, 0) for place, _ in element.places))
        body = (
            Named("i", AffineIndex.variable("n", count) * (SIDE * SIDE) + thread),
            Named("row", row),
            Named("column", column),
            Named(f"{name}_place", AffineIndex.variable(start, size + SQUARE) + row_of),
            Named(f"{name}_k", AffineIndex.variable("first", self.depth + DEPTH) + column_of),
            local,
            Guard((reach, terms), (read,)),
            Assign(self._read(f"{name}_tile", column_of, row_of), self._read(name)),
        )
        # Conditions take registers in every round that is written out.
        return (Loop("n", count, body, "serial", 2) if is_conditional else Loop("n", count, body, "unrolled"),)

    def _multiplied(self) -> Node:
        k = AffineIndex.variable("k", DEPTH)
        row = AffineIndex.variable(THREAD_ROW, SIDE) + self.i * SIDE
        column = AffineIndex.variable(THREAD, SIDE) + self.i * SIDE
        product = ARITHMETIC.multiply(self._read("a_each", self.i), self._read("b_each", self.j))
        body = (
            Local(self._local("a_each", EACH)),
            Local(self._local("b_each", EACH)),
            _each(
                (
                    Assign(self._read("a_each", self.i), self._read("a_tile", k, row)),
                    Assign(self._read("b_each", self.i), self._read("b_tile", k, column)),
                ),
                "i",
            ),
            _each((Assign(self._total, ARITHMETIC.add(self._total, product)),), "i", "j"),
        )
        return Loop("k", DEPTH, body, "unrolled")

    def _finished(self, batch: Coords) -> Node:
        """The results made of the sums."""
        made = self.node.outputs[0]
        m, n = AffineIndex.variable("m", self.rows), AffineIndex.variable("n", self.columns)
        coords = self.product.coords(batch, unflattened(m, self.product.rows), unflattened(n, self.product.columns))
        value = finished(self.group, self.node, self._total, coords)
        stores = tuple(stored_results(self.group, made, list(self.group.results), coords, value))
        row, column = (
            AffineIndex.variable(start, size + SQUARE) + AffineIndex.variable(thread, SIDE) + each * SIDE
            for start, size, thread, each in (
                ("top", self.rows, THREAD_ROW, self.i),
                ("left", self.columns, THREAD, self.j),
            )
        )
        sizes = {"m": self.rows, "n": self.columns}
        below = tuple((AffineIndex.variable(name, size + SQUARE), size) for name, size in sizes.items())
        inner = Loop("j", EACH, (Named("n", column), Guard(below, stores)), "unrolled")
        return Loop("i", EACH, (Named("m", row), inner), "unrolled")
