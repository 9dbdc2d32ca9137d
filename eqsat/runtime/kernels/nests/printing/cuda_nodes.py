"""Nodes that map a tree to the blocks and threads of a GPU, as statements of CUDA C++."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.extents import Extent
from eqsat.runtime.kernels.nests.tree import Barrier, Guard, IndexSplit, Named, Node, PointCount, ThreadFold

#: The statement at which the threads of a block wait for each other.
BARRIER = "__syncthreads();"
#: Operations that join two values, by reduction.
OPERATORS: Mapping[str, str] = {
    "+": "Sum",
    "*": "Product",
    "min": "Least",
    "max": "Greatest",
    "argmax": "Extreme<false, false>",
    "argmin": "Extreme<true, false>",
    "last argmax": "Extreme<false, true>",
    "last argmin": "Extreme<true, true>",
}
_FOLDS = {"lanes": "warp_reduce", "block": "block_reduce", "columns": "column_reduce"}


def folded(node: ThreadFold, source: str) -> str:
    """The reduction over threads of a register of that name."""
    return f"{_FOLDS[node.among]}<{OPERATORS[node.reduction]}, {node.threads}>({source})"


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

    def mapped(self, node: Named | PointCount | IndexSplit | Guard | Barrier) -> None:
        """Write a node of the mapping."""
        match node:
            case Named():
                made = self.sum_of(node.value)
                self.constant("long long" if made.is_wide else "int", node.variable, self.sum_text(made))
            case PointCount():
                self.constant("int", node.variable, " * ".join(map(self._factor, node.extents)) or "1")
            case IndexSplit():
                self._split(node)
            case Guard():
                bounds = self.bounds(node)
                if not bounds:
                    self.nodes(node.body)
                    return
                with self.block(f"if ({' && '.join(f'{sum} {sign} {bound}' for sum, sign, bound in bounds)})"):
                    self.nodes(node.body)
            case Barrier():
                self.line(BARRIER)

    def _split(self, node: IndexSplit) -> None:
        """Define indices, the last first, by what is left of a place."""
        place = self.sum_of(node.place)
        for variable, extent in reversed([*zip(node.variables, node.extents, strict=True)][1:]):
            text, by = self.sum_text(place), self._factor(extent)
            text = text if text.isidentifier() else f"({text})"
            self.constant("int", variable, f"{text} % {by}")
            rest = f"{variable}_q"
            self.constant("int", rest, f"{text} / {by}")
            place = AffineIndex.variable(rest, max(place.high + 1, 2))
        self.constant("int", node.variables[0], self.sum_text(place))

    def _factor(self, extent: Extent) -> str:
        """An extent as a factor."""
        text = str(extent) if isinstance(extent, int) else self.sum_text(self.sum_of(extent))
        return text if text.isidentifier() or text.isdecimal() else f"({text})"

    def bounds(self, node: Guard) -> list[tuple[str, str, int | str]]:
        """The conditions of a guard without those that always hold: a sum, the sign of a comparison and a bound."""
        found: list[tuple[str, str, int | str]] = []
        for index, least in node.least:
            made = self.sum_of(index)
            if made.low < least:
                found.append((self.sum_text(made), ">=", least))
        for index, bound in node.below:
            made = self.sum_of(index)
            if not isinstance(bound, int):
                most = self.sum_of(bound)
                if made.high >= most.low:
                    found.append((self.sum_text(made), "<", self.sum_text(most)))
                continue
            if made.high >= bound:
                made, end = made.compared(bound) if made.low >= 0 else (made, bound)
                found.append((self.sum_text(made), "<", end))
        return found
