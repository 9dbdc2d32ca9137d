"""Grouping of operators into kernels, for a plan that names none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from eqsat.language.ops import OPS
from eqsat.language.terms import Conversion, Graph, Held, Kernel, Node, Plan, TensorType
from eqsat.runtime.kernels.expressions.elements import is_pointwise

#: Operators in one generated kernel, at most: longer ones take registers that others lack.
MOST_GROUPED = 12
#: Largest number of operands of one kernel: more addresses would fill the registers.
MOST_OPERANDS = 16


def is_pulled(op: str) -> bool:
    """True if a kernel may read elements where an operator takes them from; without such kernels it is a copy."""
    return op in OPS and OPS[op].pulled


def is_rowwise(op: str) -> bool:
    """True if operators on single elements before and after an operator are computed in its kernel, along rows."""
    return op in OPS and OPS[op].rowwise


def has_epilogue(op: str) -> bool:
    """True if pointwise operators are computed at the end of an operator."""
    return op in OPS and (OPS[op].product or op == "conv_transpose")


class ProductEnds(Protocol):
    """The operators that a library computes at the end of a product."""

    def take(self, graph: Graph, nodes: Sequence[Node], earlier: Kernel, now: Kernel) -> bool:
        """Return whether it computes the last of some nodes, those of one kernel and the first of the next, as well."""


def grouped(plan: Plan, ends: ProductEnds | None = None) -> Plan:
    """The plan with pointwise operators in the kernels of those that make, or read, their values.

    Products take those at their ends that `ends` lets a library compute there, and any where none is given.

    Nothing is computed twice: a value that several kernels read is written by the first of them. All values of one
    kernel are held in one layout.
    """
    return _Grouping(plan, ends).grouped()


class _Grouping:
    def __init__(self, plan: Plan, ends: ProductEnds | None) -> None:
        self.plan, self.graph, self.ends = plan, plan.graph, ends
        self.producers = {next(o for o in n.outputs if o): n for n in plan.graph.nodes}
        self.wanted = set(plan.graph.outputs.values())
        self.steps: list[Kernel | Conversion | None] = list(plan.steps)
        #: Present place of each step: its own, or that of the step it went into.
        self.at = list(range(len(plan.steps)))
        self.makers: dict[Held, int] = {}
        self.readers: dict[Held, list[int]] = {}
        for index, step in enumerate(plan.steps):
            for held in [Held(step.value, step.source)] if isinstance(step, Conversion) else step.operands:
                self.readers.setdefault(held, []).append(index)
            for held in [] if isinstance(step, Conversion) else step.results:
                self.makers[held] = index

    def grouped(self) -> Plan:
        """The plan with kernels joined, step by step, where they can be."""
        for index, step in enumerate(self.plan.steps):
            waiting = [] if isinstance(step, Conversion) else list(step.operands)
            while waiting:
                held = waiting.pop(0)
                place = self.at[self.makers.get(held, index)]
                earlier, now = self.steps[place], self.steps[index]
                if place == index or not isinstance(earlier, Kernel) or not isinstance(now, Kernel):
                    continue
                kept = self._kept(earlier, place, index)
                if kept is not None and self._joins(earlier, now, held, kept):
                    self.steps[index] = self._joined(earlier, now, kept)
                    self.steps[place] = None
                    self.at = [index if at == place else at for at in self.at]
                    # An operand that did not join the one may join both.
                    waiting += earlier.operands
        return replace(self.plan, steps=tuple(s for s in self.steps if s is not None))

    def _kept(self, earlier: Kernel, place: int, index: int) -> tuple[Held, ...] | None:
        """The results of the kernel at `place` that kernels other than it and the one at `index` read; None where one
        of them comes before that.
        """
        kept = []
        for held in earlier.results:
            places = {self.at[i] for i in self.readers.get(held, ())} - {place}
            if min(places, default=index) < index:
                return None
            if places != {index} or held.value in self.wanted:
                kept.append(held)
        return tuple(kept)

    def _joins(self, earlier: Kernel, now: Kernel, held: Held, kept: tuple[Held, ...]) -> bool:
        """Return whether a kernel that makes an operand can be computed within the one that reads it."""
        if len(earlier.nodes) + len(now.nodes) > MOST_GROUPED or earlier.arithmetic != now.arithmetic:
            return False
        read = {*earlier.operands, *now.operands} - set(earlier.results)
        if len(read) > MOST_OPERANDS:
            return False
        if any(h.state.layout != held.state.layout for h in (*now.results, *kept)):
            return False
        first = [self.producers[v] for v in earlier.nodes]
        then = [self.producers[v] for v in now.nodes]
        cores = [n for n in (*first, *then) if not is_pointwise(n) and not is_pulled(n.op)]
        if len(cores) > 1 or not all(is_rowwise(n.op) or has_epilogue(n.op) for n in cores):
            return False
        reader = next(n for n in then if held.value in n.inputs)
        if kept and (cores and has_epilogue(cores[0].op)):
            return False
        # A value that several read is written where the results are, or where a row is read.
        whole = self._elements(cores[0].inputs[0] if cores and cores[0] in then else then[-1].outputs[0])
        if any(self._elements(h.value) != whole for h in kept):
            return False
        if any(core in first for core in cores):
            # A follower of a row or a product must be as large: it is computed where each element is made.
            same = self._elements(reader.outputs[0]) == self._elements(first[-1].outputs[0])
            return is_pointwise(reader) and same and self._ends(cores[0], (*first, reader), earlier, now)
        if is_pulled(reader.op):
            # An operand that it copies whole is written where it belongs at once.
            return not kept and not (reader.op == "concat" and len(then) == 1)
        # Operators before a row are computed as the row is read; products read from memory alone.
        return is_rowwise(reader.op) or is_pointwise(reader)

    def _ends(self, core: Node, nodes: Sequence[Node], earlier: Kernel, now: Kernel) -> bool:
        """Return whether the last of some nodes is computed where the core makes its elements."""
        return self.ends is None or is_rowwise(core.op) or self.ends.take(self.graph, nodes, earlier, now)

    def _joined(self, earlier: Kernel, now: Kernel, kept: tuple[Held, ...]) -> Kernel:
        """The nodes of both, a product first; results that others read come before those of the later kernel."""
        operands = dict.fromkeys((*earlier.operands, *(h for h in now.operands if h not in earlier.results)))
        first = now.nodes[: 1 if has_epilogue(self.producers[now.nodes[0]].op) else 0]
        nodes = (*first, *earlier.nodes, *now.nodes[len(first) :])
        return replace(now, nodes=nodes, operands=tuple(operands), results=(*kept, *now.results))

    def _elements(self, value: str | None) -> object:
        type = None if value is None else self.graph.type(value)
        return type.shape if isinstance(type, TensorType) else None
