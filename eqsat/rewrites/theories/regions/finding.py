"""Regions of operators on single elements and along axes that one function of a comprehension computes.

A program runs each reduction as a kernel, with what goes before and after it element by element. Where several of these
follow one another, one function with all their statements reads and writes less.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from eqsat.language.comprehension.graphs.operators import NAME, DeclaredRegion
from eqsat.language.comprehension.graphs.regions import RegionStep, region_function
from eqsat.language.comprehension.graphs.renaming import operand_conditions
from eqsat.language.comprehension.graphs.standard import REDUCING, function_of_node
from eqsat.language.ops import OPS
from eqsat.language.terms import Node, TensorType
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.stating import literal_fields
from eqsat.system.deadline import check

#: The first part of the names of regions, and of equations about them.
REGION = "region"
#: The most operators and results of a region, and the most operators in the terms that say what it is, where what is
#: read twice counts twice.
_MOST_STEPS, _MOST_RESULTS, _MOST_TERMS = 24, 3, 80


@dataclass(frozen=True)
class FunctionRegion:
    """Steps of a region by their classes, in the order in which they can be run, and the classes that others read."""

    steps: Mapping[int, RegionStep]
    results: tuple[int, ...]

    @property
    def _name(self) -> str:
        """A name that says what is computed: the last operators along axes, and those of the results."""
        ops = [step.node.op for step in self.steps.values()]
        last = [op for op in ops if op in REDUCING][-2:]
        return "_".join(dict.fromkeys([REGION, *last, *(self.steps[one].node.op for one in self.results)]))

    @property
    def is_worth_it(self) -> bool:
        """True where a program makes several kernels of it.

        It puts operators on single elements before and after one along axes, as long as the shapes are the same.
        """
        along = [one for one, step in self.steps.items() if step.node.op in REDUCING]
        spread = any(
            int(value) in self.steps and _shape(type) != _shape(step.result)
            for one, step in self.steps.items()
            if one not in along
            for value, type in zip(map(str, step.node.inputs), step.operands, strict=True)
        )
        return bool(along) and len(along) + spread > 1

    def declared(self) -> tuple[DeclaredRegion, tuple[int, ...]] | None:
        """The function with its law, and the classes of its operands; None where there is none."""
        found = region_function([*self.steps.values()], [str(one) for one in self.results])
        if found is None:
            return None
        function, operands = found
        names = {value: f"x{place}" for place, value in enumerate(operands)}
        terms = self._terms(names)
        if terms is None:
            return None
        asked = ", ".join(operand_conditions(function, [*names.values()]))
        law = f"{', '.join(terms)} => {NAME}({', '.join(names.values())}) if {asked}"
        return DeclaredRegion(self._name, repr(function), law), tuple(map(int, operands))

    def _terms(self, names: Mapping[str, str]) -> list[str] | None:
        """The results as terms of the operands; None where a term would be too long, or has no text."""
        sizes: dict[str, int] = dict.fromkeys(names, 0)
        terms = dict(names)
        for one, step in self.steps.items():
            fields = literal_fields(step.node.op, step.node.attrs)
            given = [*map(str, step.node.inputs)]
            sizes[str(one)] = 1 + sum(sizes[value] for value in given)
            if fields is None or sizes[str(one)] > _MOST_TERMS:
                return None
            terms[str(one)] = f"{step.node.op}({', '.join([*(terms[value] for value in given), *fields])})"
        return [terms[str(one)] for one in self.results]


class FunctionRegionFinder:
    """Finds regions of chosen e-nodes: all that one value is computed by and that nothing else reads.

    Values that others read as well are results too, where none of the region is computed from what reads them.
    """

    def __init__(self, nodes: ChosenNodes, roots: Collection[int]) -> None:
        self.nodes, self.egraph, self.roots = nodes, nodes.egraph, roots
        self._steps: dict[int, RegionStep | None] = {}

    def regions(self) -> Iterator[FunctionRegion]:
        """The regions that are worth a function, each once."""
        seen = set()
        for root in self.place:
            check()
            if self._step(root) is None:
                continue
            alone = self._cone([root])
            for results in ((root,), self._results(root, alone)):
                region = self._region(self._cone(results), results)
                if results not in seen and len(region.steps) <= _MOST_STEPS and region.is_worth_it:
                    yield region
                seen.add(results)

    @cached_property
    def place(self) -> dict[int, int]:
        """The places of the classes in an order in which what they are computed from comes first."""
        order: dict[int, int] = {}
        stack = [(leader, False) for leader in self.nodes.made]
        while stack:
            leader, is_ready = stack.pop()
            if leader in order:
                continue
            if is_ready:
                order[leader] = len(order)
                continue
            stack.append((leader, True))
            stack += [(one, False) for one in self._operands(leader) if one in self.nodes.made and one not in order]
        return order

    def _operands(self, leader: int) -> list[int]:
        return [self.egraph.find(one) for one in self.egraph.nodes[self.nodes.made[leader]].operands]

    def _readers(self, leader: int) -> set[int]:
        return {self.egraph.find(one) for one in self.nodes.readers.get(leader, ())}

    def _step(self, leader: int) -> RegionStep | None:
        """A class as a step; None where its operator is not written as a function."""
        if leader not in self._steps:
            enode = self.egraph.nodes[self.nodes.made[leader]]
            operands = self._operands(leader)
            node = Node(enode.op, tuple(map(str, operands)), (str(leader),), enode.attrs)
            step = RegionStep(node, tuple(map(self.egraph.type, operands)), self.egraph.type(leader))
            is_known = enode.op in OPS and len(enode.types) == 1 and isinstance(step.result, TensorType)
            written = function_of_node(node, step.operands, step.result) if is_known else None
            self._steps[leader] = None if written is None else step
        return self._steps[leader]

    def _cone(self, results: Sequence[int]) -> set[int]:
        """The classes that are computed for these results alone, themselves included."""
        taken: set[int] = set()
        heap = [-self.place[one] for one in results]
        heapq.heapify(heap)
        order = [*self.place]
        while heap and len(taken) <= _MOST_STEPS:
            one = order[-heapq.heappop(heap)]
            if one in taken:
                continue
            alone = one not in self.roots and self._readers(one) <= taken
            if (one in results or alone) and self._step(one) is not None:
                taken.add(one)
                for operand in self._operands(one):
                    if operand in self.place:
                        heapq.heappush(heap, -self.place[operand])
        return taken

    def _results(self, root: int, cone: Collection[int]) -> tuple[int, ...]:
        """A class and others that its region reads, and that others read as well, as results of one region."""
        results, taken = [root], {*cone}
        read = {k for one in cone for k in self._operands(one) if k in self.place and k not in cone}
        for one in sorted(read, key=lambda k: -self.place[k]):
            if len(results) < _MOST_RESULTS and self._step(one) is not None and not self._comes_back(one, taken):
                results.append(one)
                taken = self._cone(results)
        return tuple(results)

    def _comes_back(self, leader: int, taken: Collection[int]) -> bool:
        """True if some of a region is computed from what reads a class outside of it."""
        last = max(self.place[one] for one in taken)
        stack, seen = [one for one in self._readers(leader) if one not in taken], set()
        while stack:
            one = stack.pop()
            if one in taken:
                return True
            if one not in seen and self.place.get(one, last) < last:
                seen.add(one)
                stack += self._readers(one)
        return False

    def _region(self, taken: Collection[int], results: tuple[int, ...]) -> FunctionRegion:
        steps = {
            one: step for one in sorted(taken, key=self.place.__getitem__) if (step := self._step(one)) is not None
        }
        return FunctionRegion(steps, results)


def _shape(type: object) -> object:
    return type.shape if isinstance(type, TensorType) else None
