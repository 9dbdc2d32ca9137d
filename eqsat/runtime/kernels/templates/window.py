"""Kernels of pooling: a thread for each element of the result, or for several channels where those are contiguous."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from eqsat.language.ops.windows import conv_geometry
from eqsat.language.terms.graph import Node
from eqsat.runtime.kernels.body import entry_name
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import STORED, Expr, UnsupportedError, computed, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import Reduction
from eqsat.runtime.kernels.nests.gpu_groups.results import shared_out, walked
from eqsat.runtime.kernels.nests.gpu_groups.row_reductions import identity, reduced
from eqsat.runtime.kernels.nests.gpu_groups.teams import checked
from eqsat.runtime.kernels.nests.printing.cuda_nodes import OPERATORS
from eqsat.runtime.kernels.nests.printing.group_printer import group_kernel
from eqsat.runtime.kernels.packs import PackedBody, chunk_of, generated, varying
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import WIDEST_ACCESS

#: Operators that this module has kernels of.
WINDOWS = frozenset({"max_pool", "avg_pool"})
#: Positions of a window that are written out one after the other, at most.
MOST_UNROLLED = 32


def generate(group: Group) -> KernelSource | None:
    """One kernel of a pooling with the operators before and after it; None for other groups."""
    core = next((node for node in group.nodes if node.op in WINDOWS), None)
    if core is None:
        return None
    return generated(group, core, _whole if _is_whole(group, core) else _pooled)


def _whole(group: Group, core: Node) -> KernelSource:
    return group_kernel(PackedBody(group), reduced(group, core))


def _pooled(group: Group, core: Node) -> KernelSource:
    return _Pooling(group, core).source()


def _is_whole(group: Group, core: Node) -> bool:
    """Return whether the only window is the whole plane, without padding, of an operand that has a mean."""
    type = group.types[str(core.inputs[0])]
    _, dilations, pads = conv_geometry(core.attrs, type.rank - 2)
    plain = not any(pads) and set(dilations) == {1} and type.static[2:] == core.attrs["kernel"]
    return plain and (type.dtype.is_float or core.op == "max_pool")


class _Axis:
    """Windows along one axis of the plane."""

    def __init__(self, size: int, out: int, kernel: int, stride: int, begin: int, end: int, dilation: int) -> None:
        self.size, self.out, self.kernel, self.stride = size, out, kernel, stride
        self.begin, self.end, self.dilation = begin, end, dilation

    def inside(self, start: int, *, padding: bool) -> int:
        """The number of positions of the window from `start` that lie in the operand, or in it and its padding."""
        low, high = (-self.begin, self.size + self.end) if padding else (0, self.size)
        return sum(low <= start - self.begin + i * self.dilation < high for i in range(self.kernel))

    def counts(self, *, padding: bool) -> set[int]:
        """All that `inside` may be."""
        return {self.inside(at * self.stride, padding=padding) for at in range(self.out)}

    def counted(self, at: str, *, padding: bool) -> str:
        """The number of positions inside, in C, for the window of a number."""
        counts = self.counts(padding=padding)
        if len(counts) == 1:
            return str(counts.pop())
        if padding:
            return self._before(self.size + self.begin + self.end, at)
        low = self._before(self.begin, at)
        return f"({self._before(self.size + self.begin, at)} - {low})"

    def _before(self, limit: int, at: str) -> str:
        """The number of positions before a limit, counted from where the padding begins."""
        text = f"({limit + self.dilation - 1} - {at} * {self.stride}) / {self.dilation}"
        return f"max(0, min({self.kernel}, {text}))"


class _Pooling:
    def __init__(self, group: Group, core: Node) -> None:
        self.group, self.core = group, core
        self.x, self.made = str(core.inputs[0]), core.outputs[0]
        self.body = PackedBody(group)
        self.dtype = computed(group.types[self.x].dtype)
        self.mean = core.op == "avg_pool"
        if self.mean and not self.dtype.is_float:
            raise UnsupportedError("the mean of integers")
        self.reduction: Reduction = "+" if self.mean else "max"
        self.shape = self.body.shape(self.made)
        self.axes = self._axes()
        self.names = list(group.results)
        for name in self.names:  # only results made of the pooling have a place here
            self.body.onward(self.made, name, [AffineIndex.number(0)] * len(self.shape))
        view = group.results[self.names[0]]
        fits = view.shape == self.shape
        rank = range(len(self.shape))
        self.order = sorted(rank, key=lambda a: -abs(view.strides[a])) if fits else list(rank)
        self.count = checked(math.prod(self.shape))
        self.width = self._width()

    def _axes(self) -> list[_Axis]:
        plane, kernel = self.body.shape(self.x)[2:], self.core.attrs["kernel"]
        rank = len(plane)
        strides, dilations, pads = conv_geometry(self.core.attrs, rank)
        return [
            _Axis(plane[i], self.shape[2 + i], kernel[i], strides[i], pads[i], pads[rank + i], dilations[i])
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
        if any(c.reads("k") for c in coords[2:]):
            return False
        probe = PackedBody(self.group)
        probe.value(
            self.x, self._seen(coords, [AffineIndex.variable(f"place{i}", a.size) for i, a in enumerate(self.axes)])
        )
        accesses = varying(probe.accesses)
        sizes = [self.group.operands[a.value].dtype.itemsize for a in accesses]
        if not sizes or width * min(sizes) > WIDEST_ACCESS:
            return False
        return all(chunk_of(self.group.operands[a.value], a.offset, width) for a in accesses)

    @staticmethod
    def _seen(coords: Coords, places: Sequence[AffineIndex]) -> Coords:
        return (*coords[:2], *places)

    def source(self) -> KernelSource:
        body, writer, width = self.body, self.body.writer, self.width
        count = self.count // width
        threads, (blocks,) = shared_out([count])
        writer.line(f"const int t = blockIdx.x * {threads} + threadIdx.x;")
        writer.line(f"if (t >= {count}) return;")
        coords = body.forwardable(self.made, self.names, walked(self.shape, self.order, width))
        type = STORED[self.dtype]
        writer.line(f"{type} found[{width}];")
        with body.each(width):
            writer.line(f"found[{self._k}] = {identity(self.reduction, self.dtype).template};")
        self._visit(coords)
        total = self._finished(coords)
        probe = PackedBody(self.group)
        probe.store_made(self.made, self.names, coords, total)
        body.load_packs(probe, width)
        with body.stored_packs(probe.stores, width), body.each(width):
            body.store_made(self.made, self.names, coords, body.named(total, self.core.op))
        return body.source(entry_name(self.group), (blocks, 1, 1), (threads, 1, 1))

    @property
    def _k(self) -> str:
        return "k" if self.width > 1 else "0"

    def _visit(self, coords: Coords) -> None:
        """Join the elements of the window; padding never counts."""
        body, writer = self.body, self.body.writer
        unrolled = math.prod(axis.kernel for axis in self.axes) <= MOST_UNROLLED
        with ExitStack() as stack:
            places, conditions = [], []
            for i, axis in enumerate(self.axes):
                place = coords[2 + i] * axis.stride + (
                    AffineIndex.variable(f"i{i}", axis.kernel) * axis.dilation - axis.begin
                )
                if axis.kernel > 1:
                    if unrolled:
                        writer.line("#pragma unroll")
                    stack.enter_context(writer.block(f"for (int i{i} = 0; i{i} < {axis.kernel}; ++i{i})"))
                name = writer.define("int", "place", writer.index(place))
                conditions += [f"{name} >= 0"] if place.low < 0 else []
                conditions += [f"{name} < {axis.size}"] if place.high >= axis.size else []
                places.append(AffineIndex.variable(name, axis.size))
            if conditions:
                stack.enter_context(writer.block(f"if ({' && '.join(conditions)})"))
            seen = self._seen(coords, places)
            probe = PackedBody(self.group)
            probe.value(self.x, seen)
            body.load_packs(probe, self.width)
            with body.each(self.width):
                value = body.writer.render(body.value(self.x, seen), "element")
                text = f"({STORED[self.dtype]})({value})" if self.dtype.itemsize < 4 else value
                writer.line(f"found[{self._k}] = {OPERATORS[self.reduction]}::join(found[{self._k}], {text});")

    def _finished(self, coords: Coords) -> Expr:
        """The element of the result; that of a window with nothing but padding as the reference has it."""
        joined = Expr(self.dtype, f"found[{self._k}]")
        padding = self.mean and bool(self.core.attrs["count_include_pad"])
        counts = [axis.counts(padding=padding) for axis in self.axes]
        if all(len(c) == 1 for c in counts) and (self.mean or all(min(c) for c in counts)):
            count = number(math.prod(min(c) for c in counts), self.dtype)
            return FUNCTIONS["divide"](joined, count) if self.mean else joined
        if not self.mean and all(min(c, default=1) for c in counts):
            return joined
        at = [self.body.writer.index(c) for c in coords[2:]]
        names = [a if a.isidentifier() or a.isdigit() else f"({a})" for a in at]
        text = " * ".join(axis.counted(name, padding=padding) for axis, name in zip(self.axes, names, strict=True))
        inside = self.body.writer.define("int", "count", text)
        if self.mean:
            return Expr(self.dtype, f"({{0}} / ({STORED[self.dtype]}){inside})", (joined,))
        return Expr(self.dtype, f"({inside} ? {{0}} : 0)", (joined,))
