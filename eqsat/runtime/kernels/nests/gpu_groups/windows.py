"""Schedules of pooling: a thread for each element of the result, or for several channels where those are contiguous."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms import DType
from eqsat.language.terms import Node as Operator
from eqsat.runtime.kernels.body import LANE, KernelBody
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import C_TYPES, Expr, UnsupportedError, computed, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import Coordinate, ElementRead, GroupElement, KernelBuffer, Reduction
from eqsat.runtime.kernels.nests.gpu_groups.results import THREAD, block_of, shared_out, walked
from eqsat.runtime.kernels.nests.gpu_groups.row_reductions import identity, reduced
from eqsat.runtime.kernels.nests.gpu_groups.stores import local_name, named_quotients, side_by_side, stored_results
from eqsat.runtime.kernels.nests.gpu_groups.teams import checked
from eqsat.runtime.kernels.nests.tree import Assign, GpuKernel, Guard, Let, Local, Loop, Named, Node
from eqsat.runtime.kernels.packs import chunk_of, varying
from eqsat.runtime.kernels.view import WIDEST_ACCESS

#: Positions of a window that are written out one after the other, at most.
MOST_UNROLLED = 32


def pooled(group: Group, core: Operator) -> GpuKernel:
    """The kernel of a pooling: that of a reduction where the only window is the whole plane."""
    return reduced(group, core) if _is_whole(group, core) else _Pooling(group, core).kernel()


def _is_whole(group: Group, core: Operator) -> bool:
    """Return whether the only window is the whole plane, without padding, of an operand that has a mean."""
    type = group.types[str(core.inputs[0])]
    _, dilations, pads = conv_geometry(core.attrs, type.rank - 2)
    plain = not any(pads) and set(dilations) == {1} and type.static[2:] == core.attrs["kernel"]
    return plain and (type.dtype.is_float or core.op == "max_pool")


class _PlaneAxis:
    """Windows along one axis of the plane."""

    def __init__(self, size: int, out: int, kernel: int, stride: int, begin: int, end: int, dilation: int) -> None:
        self.size, self.out, self.kernel, self.stride = size, out, kernel, stride
        self.begin, self.end, self.dilation = begin, end, dilation

    def place(self, at: AffineIndex, within: AffineIndex) -> AffineIndex:
        """The coordinate in the operand of a position of the window of a number."""
        return at * self.stride + (within * self.dilation - self.begin)

    def inside(self, start: int, *, padding: bool) -> int:
        """The number of positions of the window from `start` that lie in the operand, or in it and its padding."""
        low, high = (-self.begin, self.size + self.end) if padding else (0, self.size)
        return sum(low <= start - self.begin + i * self.dilation < high for i in range(self.kernel))

    def counts(self, *, padding: bool) -> set[int]:
        """All that `inside` may be."""
        return {self.inside(at * self.stride, padding=padding) for at in range(self.out)}

    def counted(self, at: AffineIndex, *, padding: bool) -> Expr:
        """The number of positions inside for the window of a number."""
        counts = self.counts(padding=padding)
        if len(counts) == 1:
            return number(counts.pop(), DType.INT32)
        if padding:
            return self._before(self.size + self.begin + self.end, at)
        first = self._before(self.begin, at)
        return Expr(DType.INT32, "({0} - {1})", (self._before(self.size + self.begin, at), first))

    def _before(self, limit: int, at: AffineIndex) -> Expr:
        """The number of positions before a limit, counted from where the padding begins."""
        text = f"({limit + self.dilation - 1} - {{0}} * {self.stride}) / {self.dilation}"
        return Expr(DType.INT32, f"max(0, min({self.kernel}, {text}))", (Coordinate.of(at, DType.INT32),))


class _Pooling:
    """The kernel of windows that are smaller than the plane, or overlap its borders."""

    def __init__(self, group: Group, core: Operator) -> None:
        self.group, self.core = group, core
        self.x, self.made = str(core.inputs[0]), core.outputs[0]
        self.dtype = computed(group.types[self.x].dtype)
        self.mean = core.op == "avg_pool"
        if self.mean and not self.dtype.is_float:
            raise UnsupportedError("the mean of integers")
        self.reduction: Reduction = "+" if self.mean else "max"
        self.shape = group.types[self.made].static
        self.axes = self._axes()
        self.names = list(group.results)
        body = KernelBody(group)
        for name in self.names:  # only results made of the pooling have a place here
            body.onward(self.made, name, [AffineIndex.number(0)] * len(self.shape))
        view = group.results[self.names[0]]
        fits = view.shape == self.shape
        rank = range(len(self.shape))
        self.order = sorted(rank, key=lambda a: -abs(view.strides[a])) if fits else list(rank)
        self.count = checked(math.prod(self.shape))
        self.width = self._width()
        self.found = KernelBuffer(local_name(group, "found"), self.dtype, (self.width,), "local")

    def _axes(self) -> list[_PlaneAxis]:
        plane, kernel = self.group.types[self.x].static[2:], self.core.attrs["kernel"]
        rank = len(plane)
        strides, dilations, pads = conv_geometry(self.core.attrs, rank)
        return [
            _PlaneAxis(plane[i], self.shape[2 + i], kernel[i], strides[i], pads[i], pads[rank + i], dilations[i])
            for i in range(rank)
        ]

    def _width(self) -> int:
        """The number of neighbouring channels that a thread takes at once."""
        width = WIDEST_ACCESS
        while width > 1 and not (self.count and self.count % width == 0 and self._fits(width)):
            width //= 2
        return width

    def _fits(self, width: int) -> bool:
        coords = walked(self.shape, self.order, width)
        if any(c.reads(LANE) for c in coords[2:]):
            return False
        probe = KernelBody(self.group)
        probe.value(self.x, (*coords[:2], *self._places()))
        accesses = varying(probe.accesses)
        sizes = [self.group.operands[a.value].dtype.itemsize for a in accesses]
        if not sizes or width * min(sizes) > WIDEST_ACCESS:
            return False
        return all(chunk_of(self.group.operands[a.value], a.offset, width) for a in accesses)

    def _places(self) -> Sequence[AffineIndex]:
        """The coordinates in the plane of the element that a thread visits."""
        return [AffineIndex.variable(f"place_{i}", axis.size) for i, axis in enumerate(self.axes)]

    def kernel(self) -> GpuKernel:
        """The whole kernel."""
        count = self.count // self.width
        threads, (blocks,) = shared_out([count])
        named, coords = named_quotients(self.group, self.made, self.names, walked(self.shape, self.order, self.width))
        value, nodes = self._finished(coords)
        result = ElementRead.of(local_name(self.group, self.core.op), value.dtype, ())
        stores = stored_results(self.group, self.made, self.names, coords, result)
        start = Assign(self._slot, identity(self.reduction, self.dtype))
        body = (
            *named,
            Local(self.found),
            *side_by_side(self.width, (start,)),
            *self._visits(coords),
            *nodes,
            *side_by_side(self.width, (Let(result.buffer, value), *stores)),
        )
        place = block_of(blocks) * threads + AffineIndex.variable(THREAD, threads)
        t = AffineIndex.variable("t", (blocks + 1) * threads)
        return GpuKernel((Named("t", place), Guard(((t, count),), body)), blocks, (threads, 1))

    @property
    def _slot(self) -> ElementRead:
        """The register of a channel of a thread."""
        return ElementRead.of(self.found.name, self.dtype, (AffineIndex.variable(LANE, self.width),))

    def _visits(self, coords: Coords) -> tuple[Node, ...]:
        """Join the elements of the window; padding never counts."""
        kind: Literal["serial", "unrolled"] = "serial"
        if math.prod(axis.kernel for axis in self.axes) <= MOST_UNROLLED:
            kind = "unrolled"
        within = [AffineIndex.variable(f"i{i}", axis.kernel) for i, axis in enumerate(self.axes)]
        places = [axis.place(at, i) for axis, at, i in zip(self.axes, coords[2:], within, strict=True)]
        element = GroupElement.of(self.x, self.dtype, (*coords[:2], *self._places()))
        body = side_by_side(self.width, (Assign(self._slot, element, self.reduction),))
        below = tuple((place, axis.size) for place, axis in zip(places, self.axes, strict=True))
        body = (Guard(below, tuple(body), tuple((place, 0) for place in places)),)
        for i, axis in reversed(list(enumerate(self.axes))):
            body = (Named(f"place_{i}", places[i]), *body)
            if axis.kernel > 1:
                body = (Loop(f"i{i}", axis.kernel, body, kind, is_reduced=True),)
        return body

    def _finished(self, coords: Coords) -> tuple[Expr, Sequence[Node]]:
        """The element of the result, that of a window with nothing but padding as the reference has it."""
        padding = self.mean and bool(self.core.attrs["count_include_pad"])
        counts = [axis.counts(padding=padding) for axis in self.axes]
        if all(len(c) == 1 for c in counts) and (self.mean or all(min(c) for c in counts)):
            count = number(math.prod(min(c) for c in counts), self.dtype)
            return (FUNCTIONS["divide"](self._slot, count) if self.mean else self._slot), ()
        if not self.mean and all(min(c, default=1) for c in counts):
            return self._slot, ()
        sizes = [axis.counted(at, padding=padding) for axis, at in zip(self.axes, coords[2:], strict=True)]
        inside = Expr(DType.INT32, " * ".join(f"{{{i}}}" for i in range(len(sizes))), tuple(sizes))
        named = Let(local_name(self.group, "count"), inside)
        count = ElementRead.of(named.variable, DType.INT32, ())
        template = f"({{0}} / ({C_TYPES[self.dtype]}){{1}})" if self.mean else "({1} ? {0} : 0)"
        return Expr(self.dtype, template, (self._slot, count)), (named,)


#: By operator, the schedule of a group around it.
WINDOWS: Mapping[str, Callable[[Group, Operator], GpuKernel]] = {"max_pool": pooled, "avg_pool": pooled}
