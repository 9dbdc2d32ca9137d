"""Schedules of the largest or smallest elements along an axis: every element counts how many come before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from eqsat.language.terms import DType
from eqsat.language.terms import Node as Operator
from eqsat.runtime.kernels.body import THREADS, KernelBody
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex, Coords, unflattened
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, convert, number
from eqsat.runtime.kernels.expressions.scalar import given
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import Coordinate, ElementRead, GroupElement, KernelBuffer
from eqsat.runtime.kernels.nests.gpu_groups.results import THREAD, block_of
from eqsat.runtime.kernels.nests.gpu_groups.stores import local_name, made
from eqsat.runtime.kernels.nests.tree import (
    Assign,
    Barrier,
    ComputedIndex,
    GpuKernel,
    Guard,
    Let,
    Local,
    Loop,
    Named,
    Node,
    Produced,
    ThreadLoop,
)

#: Longer rows are sorted faster than counted, and do not fit in shared memory.
MOST_ELEMENTS = 4096
LEAST_THREADS = 32
_PURPOSE = "Every element counts those that come before it; of equal elements the first comes first."


def selected(group: Group, core: Operator) -> GpuKernel:
    """The kernel of a selection; UnsupportedError for long rows."""
    selection = _Selection(group, core)
    if selection.size > MOST_ELEMENTS or math.prod(selection.others) >= INT_LIMIT:
        raise UnsupportedError("a selection of long rows")
    return selection.kernel()


class _Selection:
    """A block takes a row: a thread compares its elements with all others, and puts them where they belong."""

    def __init__(self, group: Group, node: Operator) -> None:
        self.group, self.node = group, node
        self.x = given(node)
        shape = group.types[self.x].static
        self.axis: int = node.attrs["axis"] % len(shape)
        self.size, self.kept = shape[self.axis], node.attrs["k"]
        self.others = [n for axis, n in enumerate(shape) if axis != self.axis]
        self.dtype = computed(group.types[self.x].dtype)
        body = KernelBody(group)
        outputs = [output for output in node.outputs if output]
        #: Results by the part of the selection they are made of; None for those beside it.
        self.origins = {n: next((m for m in outputs if body.depends(n, m)), None) for n in group.results}
        if any(m is None and group.types[n].static != shape for n, m in self.origins.items()):
            raise UnsupportedError("a result of another shape beside the selection")
        self.elements = KernelBuffer(local_name(group, "elements"), self.dtype, (max(self.size, 1),), "local")

    def kernel(self) -> GpuKernel:
        """The whole kernel."""
        beside = [name for name, origin in self.origins.items() if origin is None]
        blocks = math.prod(self.others) if self.kept or beside else 0
        threads = THREADS
        while threads > LEAST_THREADS and threads >= 2 * self.size:
            threads //= 2
        i = AffineIndex.variable("i", self.size)
        coords = self._coords(i)
        thread = AffineIndex.variable(THREAD, threads)
        copy = Assign(self._at(i), GroupElement.of(self.x, self.dtype, coords))
        copies = (copy, *(made(self.group, name, coords) for name in beside))
        nodes = (
            Named("row", block_of(blocks)),
            Local(self.elements, is_shared=True),
            ThreadLoop("i", thread, self.size, threads, copies, "serial"),
            Barrier(),
            ThreadLoop("i", thread, self.size, threads, self._placed(i), "serial"),
        )
        return GpuKernel(nodes, blocks, (threads, 1), _PURPOSE)

    def _at(self, place: AffineIndex) -> ElementRead:
        """The element at a place of the row in shared memory."""
        return ElementRead.of(self.elements.name, self.dtype, (place,))

    def _coords(self, along: AffineIndex) -> Coords:
        """The coordinates of an element of the block's row."""
        other = unflattened(AffineIndex.variable("row", math.prod(self.others)), self.others)
        return (*other[: self.axis], along, *other[self.axis :])

    def _placed(self, i: AffineIndex) -> tuple[Node, ...]:
        """Count the elements before one, and store it at that place."""
        element = ElementRead.of(local_name(self.group, "element"), self.dtype, ())
        before = KernelBuffer(local_name(self.group, "before"), DType.INT32, (), "local")
        count = ElementRead.of(before.name, DType.INT32, ())
        other = AffineIndex.variable("other", self.size)
        update = Assign(count, convert(self._is_ahead(element, other, i), DType.INT32), "+")
        return (
            Let(element.buffer, self._at(i)),
            Local(before, True, value=number(0, DType.INT32)),
            Loop("other", self.size, (update,), is_reduced=True),
            ComputedIndex("rank", count),
            Guard(((AffineIndex.variable("rank", self.size + 1), self.kept),), self._stores(element, i)),
        )

    def _is_ahead(self, element: ElementRead, other: AffineIndex, i: AffineIndex) -> Expr:
        """The condition that another element comes before one."""
        ahead = f"ahead<{'true' if self.node.attrs['largest'] else 'false'}>"
        template = f"({ahead}({{0}}, {{1}}) || ({{2}} < {{3}} && !{ahead}({{1}}, {{0}})))"
        places = (Coordinate.of(other, DType.INT32), Coordinate.of(i, DType.INT32))
        return Expr(DType.BOOL, template, (self._at(other), element, *places))

    def _stores(self, element: ElementRead, i: AffineIndex) -> tuple[Node, ...]:
        """The results made of an element and its place in the row."""
        body, coords = KernelBody(self.group), self._coords(AffineIndex.variable("rank", self.kept))
        place = Expr(DType.INT64, "(i64){0}", (Coordinate.of(i, DType.INT32),))
        nodes: list[Node] = []
        for name, value in zip(self.node.outputs, (element, place), strict=True):
            if name:
                nodes.append(Produced(GroupElement.of(name, value.dtype, coords), value))
        for name, origin in self.origins.items():
            if origin is not None:
                nodes.append(made(self.group, name, body.onward(origin, name, coords)))
        return tuple(nodes)


#: By operator, the schedule of a group around it.
SELECTIONS: Mapping[str, Callable[[Group, Operator], GpuKernel]] = {"topk": selected}
