"""Kernels of the largest or smallest elements along an axis: every element counts how many come before it."""

from __future__ import annotations

import math

from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.body import THREADS, KernelBody, entry_name
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex, Coords, unflattened
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed
from eqsat.runtime.kernels.expressions.scalar import given
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.source import KernelSource

SELECTIONS = frozenset({"topk"})
#: Longer rows are sorted faster than counted, and do not fit in shared memory.
MOST_ELEMENTS = 4096
LEAST_THREADS = 32


def generate(group: Group) -> KernelSource | None:
    """One kernel of a selection, the operators before it and those that move its results; None for long rows."""
    core = next((node for node in group.nodes if node.op in SELECTIONS), None)
    if core is None:
        return None
    selection = _Selection(group, core)
    fits = selection.size <= MOST_ELEMENTS and math.prod(selection.others) < INT_LIMIT
    return selection.source() if fits else None


class _Selection:
    """A block takes a row: a thread compares its elements with all others, and puts them where they belong."""

    def __init__(self, group: Group, node: Node) -> None:
        self.group, self.node, self.body = group, node, KernelBody(group)
        self.x = given(node)
        shape = self.body.shape(self.x)
        self.axis: int = node.attrs["axis"] % len(shape)
        self.size, self.kept = shape[self.axis], node.attrs["k"]
        self.others = [n for axis, n in enumerate(shape) if axis != self.axis]
        self.dtype = computed(group.types[self.x].dtype)
        outputs = [output for output in node.outputs if output]
        #: Results by the part of the selection they are made of; None for those beside it.
        self.origins = {n: next((m for m in outputs if self.body.depends(n, m)), None) for n in group.results}
        if any(m is None and self.body.shape(n) != shape for n, m in self.origins.items()):
            raise UnsupportedError("a result of another shape beside the selection")

    def _coords(self, along: AffineIndex) -> Coords:
        """The coordinates of an element of the block's row."""
        other = unflattened(AffineIndex.variable("row", math.prod(self.others)), self.others)
        return (*other[: self.axis], along, *other[self.axis :])

    def source(self) -> KernelSource:
        """The whole kernel."""
        body, writer, size = self.body, self.body.writer, self.size
        beside = [name for name, origin in self.origins.items() if origin is None]
        blocks = math.prod(self.others) if self.kept or beside else 0
        threads = THREADS
        while threads > LEAST_THREADS and threads >= 2 * size:
            threads //= 2
        type = Expr(self.dtype, "").c_type
        writer.line("const int row = blockIdx.x;")
        writer.line(f"__shared__ {type} elements[{max(size, 1)}];")
        each = f"for (int i = threadIdx.x; i < {size}; i += {threads})"
        i = AffineIndex.variable("i", size)
        with writer.block(each):
            value = body.value(self.x, self._coords(i))
            writer.line(f"elements[i] = {value.template};")
            body.store_at(beside, self._coords(i))
        writer.line("__syncthreads();")
        with writer.block(each):
            writer.line(f"const {type} element = elements[i];")
            writer.line("int rank = 0;")
            writer.comment("Of equal elements the first comes first.")
            with writer.block(f"for (int other = 0; other < {size}; ++other)"):
                largest = "true" if self.node.attrs["largest"] else "false"
                before, after = (
                    f"ahead<{largest}>(elements[other], element)",
                    f"ahead<{largest}>(element, elements[other])",
                )
                writer.line(f"rank += {before} || (other < i && !{after});")
            with writer.block(f"if (rank < {self.kept})"):
                self._finished(i)
        return body.source(entry_name(self.group), (blocks, 1, 1), (threads, 1, 1))

    def _finished(self, i: AffineIndex) -> None:
        body, coords = self.body, self._coords(AffineIndex.variable("rank", self.kept))
        elements = dict(zip(self.node.outputs, self._elements(i), strict=True))
        for name, value in elements.items():
            if name:
                body.give(name, coords, value)
        for name, origin in self.origins.items():
            if origin is not None:
                at = body.onward(origin, name, coords)
                body.store(name, at, body.value(name, at))

    def _elements(self, i: AffineIndex) -> tuple[Expr, Expr]:
        """The element of a thread, and its place in the row."""
        place = self.body.writer.index(i)
        return Expr(self.dtype, "element"), self.body.named(Expr(DType.INT64, f"(i64){place}"), "place")
