"""Matrix products through tiles in shared memory: a block makes a square of the result, a thread sixteen elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from eqsat.language.graph import Node
from eqsat.runtime.cuda.body import Body, entry_name
from eqsat.runtime.cuda.coordinates import Coords, Index, broadcast, unflattened
from eqsat.runtime.cuda.expression import C_TYPES, Expr, computed, number
from eqsat.runtime.cuda.group import Group
from eqsat.runtime.cuda.scalar import ARITHMETIC, operand
from eqsat.runtime.cuda.source import Source
from eqsat.runtime.cuda.writer import bare

#: Rows and columns of the result that a block makes, and how many terms of the sums it takes at a time.
SQUARE, DEPTH = 64, 16
#: Threads along each axis of the square, and the elements along each axis that a thread makes.
SIDE, EACH = 16, 4
#: Smaller products leave most of a square empty.
LEAST_SIDE, LEAST_DEPTH = 24, 8


def generate_tiled(group: Group, node: Node) -> Source | None:
    """The kernel of a matrix product of decent size; None for others."""
    if node.op not in ("matmul", "gemm"):
        return None
    product = _Product(group, node)
    small = min(product.rows, product.columns) < LEAST_SIDE or product.depth < LEAST_DEPTH
    return None if small or not math.prod(product.batch) else product.source()


def scaled(body: Body, node: Node, total: Expr, coords: Coords) -> Expr:
    """The result of gemm from the sum of products; of matmul, the sum itself."""
    if node.op != "gemm":
        return total
    alpha, beta, addend = node.attrs["alpha"], node.attrs["beta"], operand(node, 2)
    made = total if alpha == 1.0 else ARITHMETIC.multiply(total, ARITHMETIC.number(alpha, total))
    if addend is not None:
        c = body.value(addend, broadcast(coords, body.shape(addend)))
        made = ARITHMETIC.add(made, c if beta == 1.0 else ARITHMETIC.multiply(c, ARITHMETIC.number(beta, total)))
    return body.named(made, "gemm")


class _Product:
    """The kernel of one product."""

    def __init__(self, group: Group, node: Node) -> None:
        self.group, self.node, self.body = group, node, Body(group)
        self.a, self.b = str(node.inputs[0]), str(node.inputs[1])
        a, b = self.body.shape(self.a), self.body.shape(self.b)
        self.turned = bool(node.attrs.get("trans_a")), bool(node.attrs.get("trans_b"))
        (*self.batch,) = self.body.shape(node.outputs[0])[:-2] if min(len(a), len(b)) > 1 else ()
        fits = min(len(a), len(b)) > 1
        self.rows = (a[-1] if self.turned[0] else a[-2]) if fits else 0
        self.columns = (b[-2] if self.turned[1] else b[-1]) if fits else 0
        self.depth = (a[-2] if self.turned[0] else a[-1]) if fits else 0
        self.dtype = computed(group.types[node.outputs[0]].dtype)

    def source(self) -> Source:
        """The whole kernel."""
        writer, type = self.body.writer, C_TYPES[self.dtype]
        down, across = -(-self.rows // SQUARE), -(-self.columns // SQUARE)
        blocks = down * across * math.prod(self.batch)
        writer.comment(f"Squares of {SQUARE} × {SQUARE}, {DEPTH} terms of their sums at a time.")
        writer.line("const int square = blockIdx.x;")
        square = Index.variable("square", blocks)
        batch = unflattened(square // (down * across), self.batch)
        top, left = square // across % down * SQUARE, square % across * SQUARE
        writer.line(f"const int top = {writer.index(top)};")
        writer.line(f"const int left = {writer.index(left)};")
        writer.line(f"__shared__ {type} a_tile[{DEPTH}][{SQUARE + 1}];")
        writer.line(f"__shared__ {type} b_tile[{DEPTH}][{SQUARE + 1}];")
        writer.line(f"{type} totals[{EACH}][{EACH}] = {{}};")
        with writer.loop(f"for (int first = 0; first < {self.depth}; first += {DEPTH})", "first", "totals"):
            self._copied("a", "top", self.rows, lambda m, k: self._left(batch, m, k))
            self._copied("b", "left", self.columns, lambda n, k: self._right(batch, n, k))
            writer.line("__syncthreads();")
            self._multiplied()
            writer.line("__syncthreads();")
        self._finished(batch)
        return self.body.source(entry_name(self.group), (blocks, 1, 1), (SIDE, SIDE, 1))

    def _left(self, batch: Coords, m: Index, k: Index) -> tuple[str, Coords]:
        lead = broadcast(batch, self.body.shape(self.a)[:-2])
        return self.a, (*lead, k, m) if self.turned[0] else (*lead, m, k)

    def _right(self, batch: Coords, n: Index, k: Index) -> tuple[str, Coords]:
        lead = broadcast(batch, self.body.shape(self.b)[:-2])
        return self.b, (*lead, n, k) if self.turned[1] else (*lead, k, n)

    def _copied(self, name: str, start: str, size: int, at: Callable[[Index, Index], tuple[str, Coords]]) -> None:
        """Writes how all threads together bring the next terms of an operand into shared memory."""
        writer, body = self.body.writer, self.body
        place, k = Index.variable(f"{name}_place", size), Index.variable(f"{name}_k", self.depth)
        value, coords = at(place, k)
        along = self._runs_along_depth(value, coords, f"{name}_k")
        count = SQUARE * DEPTH // (SIDE * SIDE)
        writer.line("#pragma unroll")
        with writer.block(f"for (int n = 0; n < {count}; ++n)"):
            writer.line(f"const int i = n * {SIDE * SIDE} + threadIdx.y * {SIDE} + threadIdx.x;")
            row, column = (f"i / {DEPTH}", f"i % {DEPTH}") if along else (f"i % {SQUARE}", f"i / {SQUARE}")
            writer.line(f"const int row = {row};")
            writer.line(f"const int column = {column};")
            writer.line(f"const int {name}_place = {start} + row;")
            writer.line(f"const int {name}_k = first + column;")
            inside = f"{name}_place < {size} && {name}_k < {self.depth}"
            cases: Sequence[tuple[str, Callable[[], Expr]]] = [
                (inside, lambda: body.value(value, coords)),
                ("", lambda: number(0, self.dtype)),
            ]
            made = body.choose(self.dtype, name, cases)
            writer.line(f"{name}_tile[column][row] = {made.template};")

    def _runs_along_depth(self, value: str, coords: Coords, name: str) -> bool:
        """Whether neighbours in memory are neighbours along the sums rather than along the result."""
        probe = Body(self.group)
        probe.value(value, coords)
        return any(abs(a.offset.coefficient(name)) == 1 for a in probe.accesses)

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
        """Writes what is made of the sums, and where it goes."""
        writer, body, made = self.body.writer, self.body, self.node.outputs[0]
        coords = (*batch, Index.variable("m", self.rows), Index.variable("n", self.columns))
        writer.line("#pragma unroll")
        with writer.block(f"for (int i = 0; i < {EACH}; ++i)"):
            writer.line(f"const int m = top + threadIdx.y + i * {SIDE};")
            writer.line("#pragma unroll")
            with writer.block(f"for (int j = 0; j < {EACH}; ++j)"):
                writer.line(f"const int n = left + threadIdx.x + j * {SIDE};")
                with writer.block(f"if (m < {self.rows} && n < {self.columns})"):
                    body.give(made, coords, scaled(body, self.node, Expr(self.dtype, "totals[i][j]"), coords))
                    for name in self.group.results:
                        at = body.onward(made, name, coords)
                        body.store(name, at, body.value(name, at))
