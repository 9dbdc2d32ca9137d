"""Trees of loops over the values of a group as kernels in CUDA C++."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from eqsat.runtime.kernels.body import LANE, KernelBody, entry_name
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, offset
from eqsat.runtime.kernels.expressions.expression import STORED, Expr, UnsupportedError
from eqsat.runtime.kernels.nests.computation import ElementRead, GroupElement, rebuilt
from eqsat.runtime.kernels.nests.printing.cuda_nodes import MappingPrinter
from eqsat.runtime.kernels.nests.tree import (
    Assign,
    Barrier,
    GpuKernel,
    Guard,
    Local,
    Named,
    Node,
    Promoted,
    ThreadLoop,
    Vector,
)
from eqsat.runtime.kernels.source import KernelSource


def group_kernel(body: KernelBody, kernel: GpuKernel) -> KernelSource:
    """The text of a kernel, whose values the body makes where they are read.

    Buffers are values of the group by name, and arrays that the tree declares.
    """
    return _GroupPrinter(body).source(kernel)


class _GroupPrinter(MappingPrinter):
    def __init__(self, body: KernelBody) -> None:
        self.body = body
        self._arrays: set[str] = set()

    def source(self, kernel: GpuKernel) -> KernelSource:
        """The kernel of a tree."""
        if kernel.purpose:
            self.body.writer.comment(kernel.purpose)
        self._last(kernel.body)
        columns, rows = kernel.threads
        assert isinstance(kernel.blocks, int), "groups have no free sizes"
        return self.body.source(entry_name(self.body.group), (kernel.blocks, 1, 1), (columns, rows, 1))

    def _last(self, nodes: Sequence[Node]) -> None:
        """Write the statements at the end of a kernel: a thread that has no part in the last of them returns."""
        self.nodes(nodes[:-1])
        for node in nodes[-1:]:
            if isinstance(node, Guard) and len(node.below) == 1 and not node.least:
                for place, _, bound in self.bounds(node):
                    self.line(f"if ({place} >= {bound}) return;")
                self._last(node.body)
            else:
                self.nodes([node])

    def nodes(self, nodes: Sequence[Node]) -> None:
        """Write statements in their order."""
        for one in nodes:
            self._node(one)

    def _node(self, node: Node) -> None:
        match node:
            case Named() | Guard() | Barrier():
                self.mapped(node)
            case ThreadLoop():
                name, first = node.variable, self.sum_text(node.first)
                self.line("#pragma unroll")
                with self.block(f"for (int {name} = {first}; {name} < {node.limit}; {name} += {node.step})"):
                    self.nodes(node.body)
            case Local(is_shared=True):
                self._arrays.add(node.buffer.name)
                sizes = "".join(f"[{size}]" for size in node.buffer.shape)
                self.line(f"__shared__ {STORED[node.buffer.dtype]} {node.buffer.name}{sizes};")
            case Promoted():
                self.body.hold(node.element.buffer, _sums(node.element), self._place(node.copy))
            case Vector(variable=variable) if variable == LANE:
                self._vector(node)
            case Assign(reduction=""):
                self._assign(node)
            case _:
                raise UnsupportedError(f"{type(node).__name__} in a kernel of a group")

    def _assign(self, node: Assign) -> None:
        if node.target.buffer in self._arrays:
            self.line(f"{self._place(node.target)} = {self._copied(node.value)};")
        else:
            self.body.store(node.target.buffer, _sums(node.target), self._value(node.value))

    def _vector(self, node: Vector) -> None:
        """Write the elements of each target into a pack, and store it in one access."""
        body, writer, width = self.body, self.body.writer, node.lanes
        packs = [writer.name(f"{body.pointer(one.target.buffer)}_pack") for one in node.body]
        for one, pack in zip(node.body, packs, strict=True):
            stored = STORED[body.group.results[one.target.buffer].dtype]
            self.line(f"Pack<{stored}, {width}> {pack};")
        with body.side_by_side(width):
            for one, pack in zip(node.body, packs, strict=True):
                self.line(f"{pack}.at[{LANE}] = {body.stored(one.target.buffer, self._value(one.value))};")
        for one, pack in zip(node.body, packs, strict=True):
            name = one.target.buffer
            place = offset(_sums(one.target), body.group.results[name].strides).without(LANE)
            self.line(f"store<{width}>({body.pointer(name)} + {self.sum_text(place)}, {pack});")

    def _value(self, value: Expr) -> Expr:
        """A value with the elements of the group put in."""
        return rebuilt(value, lambda e: self.body.value(e.name, e.coords) if isinstance(e, GroupElement) else None)

    def _copied(self, value: Expr) -> str:
        """The text of an element as it lies in memory."""
        if not isinstance(value, ElementRead):
            raise UnsupportedError("a value that is worked out in an array of a kernel of a group")
        return self._place(value)

    def _place(self, read: ElementRead) -> str:
        """The text of an element of an array, or of memory."""
        if read.buffer in self._arrays:
            return read.buffer + "".join(f"[{self.sum_text(one)}]" for one in _sums(read))
        place = offset(_sums(read), self.body.group.operands[read.buffer].strides)
        return f"{self.body.pointer(read.buffer)}[{self.sum_text(place)}]"

    # ---- lines ------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """Write a line."""
        self.body.writer.line(text)

    def block(self, head: str) -> AbstractContextManager[None]:
        """Lines in braces after a head."""
        return self.body.writer.block(head)

    def constant(self, type: str, name: str, text: str) -> None:
        """Define a constant under a name that a tree gives."""
        self.line(f"const {type} {name} = {text};")

    def sum_of(self, index: AffineIndex) -> AffineIndex:
        """A sum as it is: coordinates are in the variables of the kernel."""
        return index

    def sum_text(self, index: AffineIndex) -> str:
        """A sum of variables of the kernel as text."""
        return self.body.writer.index(index)


def _sums(read: ElementRead) -> tuple[AffineIndex, ...]:
    """The subscripts of an element of a group, which no elements decide."""
    return tuple(one for one in read.subscripts if isinstance(one, AffineIndex))
