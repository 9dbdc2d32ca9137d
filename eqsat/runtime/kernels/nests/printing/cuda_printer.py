"""Trees of loops as kernels in CUDA C++."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.resources import files

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import STORED
from eqsat.runtime.kernels.expressions.expression import number as literal
from eqsat.runtime.kernels.nests.computation import Computation, reads, substituted
from eqsat.runtime.kernels.nests.extents import largest, number_or_sum, sum_of
from eqsat.runtime.kernels.nests.launches import FreeKernel
from eqsat.runtime.kernels.nests.printing.cuda_nodes import MappingPrinter, folded
from eqsat.runtime.kernels.nests.printing.dialects import CudaCpp
from eqsat.runtime.kernels.nests.printing.lines import Lines
from eqsat.runtime.kernels.nests.printing.nodes import NodePrinter
from eqsat.runtime.kernels.nests.tree import (
    Assign,
    Barrier,
    GpuKernel,
    Guard,
    IndexSplit,
    Local,
    Loop,
    Named,
    Node,
    PointCount,
    ThreadFold,
)
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.writer import bare

#: The argument that a kernel sets to 1 where a subscript passes its bounds or a divisor is 0.
FAILED = "failed"
_FAILING = re.compile(r"\b(failed|INSIDE|CHECKED)\b")
_CACHED = re.compile(r"\bCACHED\b")


@cache
def _text(name: str) -> str:
    return files("eqsat.runtime.kernels.nests").joinpath(name).read_text(encoding="utf-8")


def cuda_kernel(computation: Computation, kernel: GpuKernel, number: int) -> KernelSource:
    """The text of a kernel, one of those of a computation whose sizes are all numbers.

    Its arguments are buffers by name, those that it reads alone and then those that it writes, and `failed`, one i32,
    where it can fail.
    """
    assert not computation.sizes and isinstance(kernel.blocks, int), computation.sizes
    return _CudaPrinter(computation).source(kernel, number, kernel.blocks)


def free_cuda_kernel(
    computation: Computation, constants: Sequence[Named], kernel: GpuKernel, number: int
) -> FreeKernel:
    """The text of a kernel of a computation with free sizes, which are arguments behind those of `cuda_kernel`.

    Extents are stated by `constants` of the kernel, which it defines as far as it reads them.
    """
    source = _CudaPrinter(computation, constants).source(kernel, number, 0)
    known = {one.variable: one.value for one in constants}
    boxes = frozenset(
        tuple(number_or_sum(substituted(sum_of(axis.extent), known)) for axis in axes)
        for one in computation.statements
        for axes in (one.kept, one.reduced)
    )
    return FreeKernel(source, computation.sizes, kernel.blocks, boxes, tuple(constants))


def buffers_of(computation: Computation, kernel: GpuKernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The buffers that a kernel reads alone, and those that it writes, in the order of the computation.

    Tables are none of them: their elements are in the text.
    """
    read, written = set(), set()
    for node in _assignments(kernel.body):
        read |= {one.buffer for one in reads(node.value)}
        written.add(node.target.buffer)
    tables = {name for name, one in computation.buffers.items() if one.role == "table"}
    alone = tuple(name for name in computation.buffers if name in read - written - tables)
    return alone, tuple(name for name in computation.buffers if name in written)


class _CudaPrinter(NodePrinter, MappingPrinter):
    def __init__(self, computation: Computation, constants: Sequence[Named] = ()) -> None:
        super().__init__(computation, CudaCpp())
        self._shared: list[str] = []
        self._constants = constants
        for one in constants:
            self.lines.name(one.variable)

    def source(self, kernel: GpuKernel, number: int, blocks: int) -> KernelSource:
        """The kernel of a tree, launched by so many blocks."""
        computation = self.computation
        read, written = buffers_of(computation, kernel)
        self.memory.cached = frozenset(read) if kernel.is_cached else frozenset()
        self.nodes(kernel.body)
        body = self.lines.text
        self.lines = self.scalars.lines = Lines()
        for one in self._constants:
            if any(re.search(rf"\b{one.variable}\b", line) for line in body):
                self.mapped(one)
        lines = [*self.lines.text, *body]
        names = [*read, *written]
        parameters = [
            f"{'' if name in written else 'const '}{STORED[computation.buffers[name].dtype]}* __restrict__ {name}"
            for name in names
        ]
        heads = [_text("cached.cuh")] if any(_CACHED.search(line) for line in lines) else []
        if any(_FAILING.search(line) for line in lines):
            names.append(FAILED)
            parameters.append("i32* __restrict__ failed_")
            lines = ["  bool failed = false;", *lines, "  if (failed) *failed_ = 1;"]
            heads.append(_text("checks.cuh"))
        heads += self._tables(lines)
        parameters += [f"const int {name}" for name in computation.sizes]
        columns, rows = kernel.threads
        entry = f"{computation.name}_{number}"
        joined = ",\n    ".join(parameters)
        head = f'extern "C" __global__ void __launch_bounds__({columns * rows}) {entry}(\n    {joined}) {{'
        code = "\n".join([*heads, head, *lines, "}", ""])
        return KernelSource(entry, code, tuple(names), (blocks, 1, 1), (columns, rows, 1), comment=computation.name)

    def _tables(self, lines: Sequence[str]) -> Iterator[str]:
        """Define the buffers whose elements are known, as far as lines read them."""
        for one in self.computation.buffers.values():
            if one.role == "table" and any(re.search(rf"\b{one.name}\b", line) for line in lines):
                texts = ", ".join(literal(element, one.dtype).template for element in one.elements)
                yield f"static __device__ const {STORED[one.dtype]} {one.name}[{one.count}] = {{{texts}}};\n"

    def node(self, node: Node) -> None:
        """Write a statement."""
        match node:
            case Named() | PointCount() | IndexSplit() | Guard():
                self.mapped(node)
            case Barrier():
                self.mapped(node)
                for name in self._shared:
                    self.lines.forget(name)
            case ThreadFold():
                name = self.scalars.element(node.target, False)
                self.lines.add(f"{name} = {folded(node, name)};")
            case Local(is_shared=True):
                name = self.array(node)
                self._shared.append(name)
                self.lines.add(f"__shared__ {STORED[node.buffer.dtype]} {name}[{node.buffer.count}];")
            case _:
                super().node(node)

    def before_loop(self, node: Loop) -> None:
        """Write the directive that a loop takes, if any."""
        if node.unroll > 1:
            self.lines.add(f"#pragma unroll {min(node.unroll, largest(node.extent))}")

    def line(self, text: str) -> None:
        """Write a line."""
        self.lines.add(text)

    def block(self, head: str) -> AbstractContextManager[None]:
        """Lines in braces after a head."""
        return self.lines.block(head)

    def constant(self, type: str, name: str, text: str) -> None:
        """Define a constant under a name that a tree gives."""
        self.lines.add(f"const {type} {name} = {bare(text)};")

    def sum_of(self, index: AffineIndex) -> AffineIndex:
        """A sum of variables of the kernel, without indices of statements."""
        self.scalars.environment = {}
        return self.scalars.index(index)

    def sum_text(self, index: AffineIndex) -> str:
        """A sum of variables of the kernel as text."""
        return self.scalars.index_text(index)


def _assignments(nodes: Sequence[Node]) -> Iterator[Assign]:
    for node in nodes:
        if isinstance(node, Assign):
            yield node
        elif isinstance(node, Loop | Guard):
            yield from _assignments(node.body)
