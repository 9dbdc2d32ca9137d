"""Trees of loops as kernels in CUDA C++."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.resources import files

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import STORED
from eqsat.runtime.kernels.nests.computation import Computation, reads
from eqsat.runtime.kernels.nests.extents import largest
from eqsat.runtime.kernels.nests.printing.cuda_nodes import MappingPrinter
from eqsat.runtime.kernels.nests.printing.dialects import CudaCpp
from eqsat.runtime.kernels.nests.printing.nodes import NodePrinter
from eqsat.runtime.kernels.nests.tree import Assign, Barrier, BlockFold, GpuKernel, Guard, Local, Loop, Named, Node
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.writer import bare

#: The argument that a kernel sets to 1 where a subscript passes its bounds or a divisor is 0.
FAILED = "failed"
_FAILING = re.compile(r"\b(failed|INSIDE|CHECKED)\b")
_OPERATORS = {"+": "Sum", "*": "Product", "min": "Least", "max": "Greatest"}


@cache
def _checks() -> str:
    return files("eqsat.runtime.kernels.nests").joinpath("checks.cuh").read_text(encoding="utf-8")


def cuda_kernel(computation: Computation, kernel: GpuKernel, number: int) -> KernelSource:
    """The text of a kernel, one of those of a computation.

    Its arguments are buffers by name, those that it reads alone and then those that it writes, and `failed`, one i32,
    where it can fail.
    """
    return _CudaPrinter(computation).source(kernel, number)


def buffers_of(computation: Computation, kernel: GpuKernel) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The buffers that a kernel reads alone, and those that it writes, in the order of the computation."""
    read, written = set(), set()
    for node in _assignments(kernel.body):
        read |= {one.buffer for one in reads(node.value)}
        written.add(node.target.buffer)
    alone = tuple(name for name in computation.buffers if name in read - written)
    return alone, tuple(name for name in computation.buffers if name in written)


class _CudaPrinter(NodePrinter, MappingPrinter):
    def __init__(self, computation: Computation) -> None:
        super().__init__(computation, CudaCpp())
        self._shared: list[str] = []

    def source(self, kernel: GpuKernel, number: int) -> KernelSource:
        """The kernel of a tree."""
        computation = self.computation
        self.nodes(kernel.body)
        lines = self.lines.text
        read, written = buffers_of(computation, kernel)
        names = [*read, *written]
        parameters = [
            f"{'' if name in written else 'const '}{STORED[computation.buffers[name].dtype]}* __restrict__ {name}"
            for name in names
        ]
        checks = ""
        if any(_FAILING.search(line) for line in lines):
            names.append(FAILED)
            parameters.append("i32* __restrict__ failed_")
            lines = ["  bool failed = false;", *lines, "  if (failed) *failed_ = 1;"]
            checks = _checks()
        columns, rows = kernel.threads
        entry = f"{computation.name}_{number}"
        joined = ",\n    ".join(parameters)
        head = f'extern "C" __global__ void __launch_bounds__({columns * rows}) {entry}(\n    {joined}) {{'
        code = "\n".join([*([checks] if checks else []), head, *lines, "}", ""])
        return KernelSource(
            entry, code, tuple(names), (kernel.blocks, 1, 1), (columns, rows, 1), comment=computation.name
        )

    def node(self, node: Node) -> None:
        """Write a statement."""
        match node:
            case Named() | Guard():
                self.mapped(node)
            case Barrier():
                self.mapped(node)
                for name in self._shared:
                    self.lines.forget(name)
            case BlockFold():
                name = self.scalars.element(node.target, False)
                operator = _OPERATORS[node.reduction]
                self.lines.add(f"{name} = block_reduce<{operator}, {node.threads}>({name});")
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
