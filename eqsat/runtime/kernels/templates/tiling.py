"""Products through tiles in shared memory: a block makes a square of the result, a thread sixteen of its elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from eqsat.language.terms.graph import Node
from eqsat.runtime.kernels.body import KernelBody, entry_name
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex, Coords, unflattened
from eqsat.runtime.kernels.expressions.expression import C_TYPES, Expr, computed, number
from eqsat.runtime.kernels.expressions.scalar import ARITHMETIC
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.factoring import BatchedProduct, Factor, finished, product_of
from eqsat.runtime.kernels.writer import bare

#: Rows and columns of the result that a block makes, and how many terms of the sums it takes at a time.
SQUARE, DEPTH = 64, 16
#: Threads along each axis of the square, and the elements along each axis that a thread makes.
SIDE, EACH = 16, 4
#: Smaller products leave most of a square empty.
LEAST_SIDE, LEAST_DEPTH = 24, 8


def generate_tiled(group: Group, node: Node) -> KernelSource | None:
    """The kernel of a product of decent size; None for others."""
    product = product_of(KernelBody(group), node)
    if product is None or not math.prod(product.batch):
        return None
    rows, columns, terms = product.sizes
    if min(rows, columns) < LEAST_SIDE or terms < LEAST_DEPTH or max(rows, columns) >= INT_LIMIT - SQUARE:
        return None
    return _Squares(group, node, product).source()


class _Squares:
    """The kernel of one product."""

    def __init__(self, group: Group, node: Node, product: BatchedProduct) -> None:
        self.group, self.node, self.product, self.body = group, node, product, KernelBody(group)
        self.rows, self.columns, self.depth = product.sizes
        self.dtype = computed(group.types[node.outputs[0]].dtype)

    def source(self) -> KernelSource:
        """The whole kernel."""
        writer, type = self.body.writer, C_TYPES[self.dtype]
        down, across = -(-self.rows // SQUARE), -(-self.columns // SQUARE)
        blocks = down * across * math.prod(self.product.batch)
        writer.comment(f"Squares of {SQUARE} × {SQUARE}, {DEPTH} terms of their sums at a time.")
        writer.line("const int square = blockIdx.x;")
        square = AffineIndex.variable("square", blocks)
        batch = unflattened(square // (down * across), self.product.batch)
        top, left = square // across % down * SQUARE, square % across * SQUARE
        writer.line(f"const int top = {writer.index(top)};")
        writer.line(f"const int left = {writer.index(left)};")
        writer.line(f"__shared__ {type} a_tile[{DEPTH}][{SQUARE + 1}];")
        writer.line(f"__shared__ {type} b_tile[{DEPTH}][{SQUARE + 1}];")
        writer.line(f"{type} totals[{EACH}][{EACH}] = {{}};")
        with writer.loop(f"for (int first = 0; first < {self.depth}; first += {DEPTH})", "first", "totals"):
            self._copied("a", "top", self.product.rows, batch, self.product.left)
            self._copied("b", "left", self.product.columns, batch, self.product.right)
            writer.line("__syncthreads();")
            self._multiplied()
            writer.line("__syncthreads();")
        self._finished(batch)
        return self.body.source(entry_name(self.group), (blocks, 1, 1), (SIDE, SIDE, 1))

    def _copied(self, name: str, start: str, shape: Sequence[int], batch: Coords, factor: Factor) -> None:
        """Write the statements by which all threads bring the next terms of a factor into shared memory."""
        writer, body, size = self.body.writer, self.body, math.prod(shape)
        place = unflattened(AffineIndex.variable(f"{name}_place", size), shape)
        k = unflattened(AffineIndex.variable(f"{name}_k", self.depth), self.product.terms)
        probe = KernelBody(self.group)
        factor(probe, batch, place, k)
        # Whether neighbours in memory are neighbours along the sums rather than along the result.
        along = any(abs(a.offset.coefficient(f"{name}_k")) == 1 for a in probe.accesses)
        count = SQUARE * DEPTH // (SIDE * SIDE)
        # Conditions take registers in every round that is written out.
        writer.line("#pragma unroll 2" if any(a.conditional for a in probe.accesses) else "#pragma unroll")
        with writer.block(f"for (int n = 0; n < {count}; ++n)"):
            writer.line(f"const int i = n * {SIDE * SIDE} + threadIdx.y * {SIDE} + threadIdx.x;")
            row, column = (f"i / {DEPTH}", f"i % {DEPTH}") if along else (f"i % {SQUARE}", f"i / {SQUARE}")
            writer.line(f"const int row = {row};")
            writer.line(f"const int column = {column};")
            writer.line(f"const int {name}_place = {start} + row;")
            writer.line(f"const int {name}_k = first + column;")
            inside = f"{name}_place < {size} && {name}_k < {self.depth}"
            cases: Sequence[tuple[str, Callable[[], Expr]]] = [
                (inside, lambda: factor(body, batch, place, k)),
                ("", lambda: number(0, self.dtype)),
            ]
            element = body.choose(self.dtype, name, cases)
            writer.line(f"{name}_tile[column][row] = {element.template};")

    def _multiplied(self) -> None:
        writer, type = self.body.writer, C_TYPES[self.dtype]
        left, right = Expr(self.dtype, "a_each[i]"), Expr(self.dtype, "b_each[j]")
        added = ARITHMETIC.add(Expr(self.dtype, "totals[i][j]"), ARITHMETIC.multiply(left, right))
        writer.line("#pragma unroll")
        with writer.block(f"for (int k = 0; k < {DEPTH}; ++k)"):
            writer.line(f"{type} a_each[{EACH}], b_each[{EACH}];")
            writer.line("#pragma unroll")
            with writer.block(f"for (int i = 0; i < {EACH}; ++i)"):
                writer.line(f"a_each[i] = a_tile[k][threadIdx.y + i * {SIDE}];")
                writer.line(f"b_each[i] = b_tile[k][threadIdx.x + i * {SIDE}];")
            writer.line("#pragma unroll")
            with writer.block(f"for (int i = 0; i < {EACH}; ++i)"):
                writer.line("#pragma unroll")
                with writer.block(f"for (int j = 0; j < {EACH}; ++j)"):
                    writer.line(f"totals[i][j] = {bare(writer.render(added, 'term'))};")

    def _finished(self, batch: Coords) -> None:
        """Write the results made of the sums."""
        writer, body, product = self.body.writer, self.body, self.node.outputs[0]
        m = unflattened(AffineIndex.variable("m", self.rows), self.product.rows)
        n = unflattened(AffineIndex.variable("n", self.columns), self.product.columns)
        coords = self.product.coords(batch, m, n)
        writer.line("#pragma unroll")
        with writer.block(f"for (int i = 0; i < {EACH}; ++i)"):
            writer.line(f"const int m = top + threadIdx.y + i * {SIDE};")
            writer.line("#pragma unroll")
            with writer.block(f"for (int j = 0; j < {EACH}; ++j)"):
                writer.line(f"const int n = left + threadIdx.x + j * {SIDE};")
                with writer.block(f"if (m < {self.rows} && n < {self.columns})"):
                    total = Expr(self.dtype, "totals[i][j]")
                    value = finished(body, self.node, total, coords)
                    body.store_made(product, self.group.results, coords, value)
