"""Layouts that pay: those in which kernels cost less than they do on row-major values."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

from eqsat.extract.problem.problem import ProblemNode
from eqsat.extract.problem.program import connected
from eqsat.extract.tensors.pricing import KernelOption
from eqsat.language.terms import State
from eqsat.system.deadline import watched

#: Relative difference of prices that is no saving.
_TIE = 1e-9
#: The part of the original's price that a layout has to be able to save to be offered. A view that needs no kernel of
#: its own, where another view costs one, doubles the options of all that it hangs together with.
_LITTLE = 1e-4


@dataclass(frozen=True, slots=True)
class KernelsInStates:
    """Kernels, each a node of the problem and its option, with the states of values by number.

    `constant` are the classes that are computed at compile time, and `bound` those that come, or are wanted, in another
    layout than the row-major one.
    """

    nodes: Sequence[ProblemNode]
    options: Sequence[KernelOption]
    states: Sequence[State]
    constant: Collection[int]
    bound: Collection[int]

    def is_plain(self, index: int) -> bool:
        """Return whether a kernel reads and makes row-major values."""
        node = self.nodes[index]
        return all(self.states[s].layout == "row" for s in (node.state, *(s for _, s in node.operands)))

    def touched(self, index: int) -> list[int]:
        """The classes, of those that are computed when the program runs, that a kernel reads or makes in a layout."""
        node = self.nodes[index]
        goals = [(node.eclass, node.state), *node.operands]
        return [c for c, s in goals if self.states[s].layout != "row" and c not in self.constant]

    def same_work(self, index: int) -> tuple[Hashable, Hashable]:
        """Keys that are equal for kernels which differ in layouts alone, or which make the same of the same values."""
        node, option = self.nodes[index], self.options[index]
        ways = tuple(
            (*(s.precision for s in one.operands), one.result.precision, one.arithmetic)
            for one in option.implementations
        )
        operands = frozenset((eclass, self.states[state].precision) for eclass, state in node.operands)
        return (option.positions, ways), (node.eclass, self.states[node.state].precision, operands)


def in_useful_layouts(kernels: KernelsInStates, given: Collection[int]) -> list[int]:
    """The kernels that are left when layouts which save next to nothing are dropped; `given` are the positions of the
    original's e-nodes.

    Values of one class in any two layouts hang together, and so do those that one kernel reads and makes. A kernel
    saves what it costs less than the same one on row-major values, and less than any other that makes the same of the
    same values row-major. Where all that hangs together saves at most 1e-4 of what the original costs, and nothing
    comes or is wanted in a layout, it is dropped: everything in it can be row-major at no greater cost but for that.

    On a GPU, a convolution takes a tensor to add at its end only with the channels last. That kernel is offered where
    the layout is kept for another reason, such as a measured time.
    """
    count = len(kernels.nodes)
    plain: dict[Hashable, float] = {}
    price: dict[int, float] = {}
    for index in watched(range(count)):
        if kernels.is_plain(index):
            cost, positions = kernels.nodes[index].cost, kernels.options[index].positions
            for key in kernels.same_work(index):
                plain[key] = min(plain.get(key, math.inf), cost)
            if len(positions) == 1 and positions[0] in given:
                price[positions[0]] = min(price.get(positions[0], math.inf), cost)
    touched = [kernels.touched(index) for index in watched(range(count))]
    classes = 1 + max((c for node in kernels.nodes for c in (node.eclass, *(k for k, _ in node.operands))), default=0)
    groups = connected(classes, touched)
    saved = [_saving(kernels, index, plain) for index in watched(range(count))]
    savings: dict[int, dict[tuple[int, ...], float]] = defaultdict(dict)
    for index in watched(range(count)):
        if saved[index] > 0 and touched[index]:
            own, positions = savings[groups[touched[index][0]]], kernels.options[index].positions
            own[positions] = max(own.get(positions, 0.0), saved[index])
    little = _LITTLE * sum(price.values())
    paying = {group for group, own in savings.items() if sum(own.values()) > little}
    paying |= {groups[eclass] for eclass in kernels.bound}
    return [
        index
        for index in watched(range(count))
        if kernels.is_plain(index) or (groups[touched[index][0]] in paying if touched[index] else saved[index] > 0)
    ]


def _saving(kernels: KernelsInStates, index: int, plain: dict[Hashable, float]) -> float:
    """The price that a kernel saves against those that do the same on row-major values; 0 within rounding."""
    least = min(plain.get(key, math.inf) for key in kernels.same_work(index))
    cost = kernels.nodes[index].cost
    return least - cost if cost < least * (1 - _TIE) else 0.0
