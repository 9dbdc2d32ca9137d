"""A generated kernel: its text, and how it is launched."""

from __future__ import annotations

from dataclasses import dataclass

Extent = tuple[int, int, int]


@dataclass(frozen=True)
class KernelSource:
    """CUDA C++ of one kernel, compiled after the prelude, for fixed shapes and strides.

    `entry` is the function's name, which has C linkage. It takes one pointer for each of `arguments`, values of the
    graph, operands first: to the first element of the value's view, and then an int for each of `numbers`. `code` names
    nothing of the graph, so that equal kernels are compiled once; the graph's names stand in `comment`. Nothing is
    launched where `grid` holds a 0. `shared` is dynamic shared memory, in bytes.
    """

    entry: str
    code: str
    arguments: tuple[str, ...]
    grid: Extent
    block: Extent
    shared: int = 0
    comment: str = ""
    numbers: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The code as a person reads it, with the graph's names in a comment before it."""
        lines = [f"// {line}".rstrip() for line in self.comment.splitlines()]
        return "\n".join([*lines, self.code])
