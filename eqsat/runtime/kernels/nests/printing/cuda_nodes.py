"""Nodes that map a tree to the blocks and threads of a GPU, as statements of CUDA C++."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.tree import Barrier, Guard, Named, Node

#: The statement at which the threads of a block wait for each other.
BARRIER = "__syncthreads();"


class MappingPrinter(ABC):
    """Statements that are written alike whatever the values of a kernel are made of."""

    @abstractmethod
    def nodes(self, nodes: Sequence[Node]) -> None:
        """Write statements in their order."""

    @abstractmethod
    def line(self, text: str) -> None:
        """Write a line."""

    @abstractmethod
    def block(self, head: str) -> AbstractContextManager[None]:
        """Lines in braces after a head."""

    @abstractmethod
    def constant(self, type: str, name: str, text: str) -> None:
        """Define a constant under a name that a tree gives."""

    @abstractmethod
    def sum_of(self, index: AffineIndex) -> AffineIndex:
        """A sum in the variables of the kernel."""

    @abstractmethod
    def sum_text(self, index: AffineIndex) -> str:
        """A sum of variables of the kernel as text."""

    def mapped(self, node: Named | Guard | Barrier) -> None:
        """Write a node of the mapping."""
        match node:
            case Named():
                made = self.sum_of(node.value)
                self.constant("long long" if made.is_wide else "int", node.variable, self.sum_text(made))
            case Guard():
                bounds = self.bounds(node)
                if not bounds:
                    self.nodes(node.body)
                    return
                with self.block(f"if ({' && '.join(f'{sum} {sign} {bound}' for sum, sign, bound in bounds)})"):
                    self.nodes(node.body)
            case Barrier():
                self.line(BARRIER)

    def bounds(self, node: Guard) -> list[tuple[str, str, int]]:
        """The conditions of a guard without those that always hold: a sum, the sign of a comparison and a number."""
        found = []
        for index, bound in node.least:
            made = self.sum_of(index)
            if made.low < bound:
                found.append((self.sum_text(made), ">=", bound))
        for index, bound in node.below:
            made = self.sum_of(index)
            if made.high >= bound:
                made, bound = made.compared(bound) if made.low >= 0 else (made, bound)
                found.append((self.sum_text(made), "<", bound))
        return found
