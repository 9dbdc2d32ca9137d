"""Regions of operators that one function of a comprehension computes.

A program runs each reduction as a kernel, with what goes before and after it element by element. Where several of these
follow one another, one function with all their statements reads and writes less. So it may where a small product, or
windows, read or make what is moved: what moves elements takes subscripts in place of a copy.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

from eqsat.language.comprehension.definitions.trials import size_text
from eqsat.language.comprehension.graphs.nodes.node import is_movement, is_product, is_window, stated_node
from eqsat.language.comprehension.graphs.operators import NAME, DeclaredRegion
from eqsat.language.comprehension.graphs.regions import RegionStep, region_function
from eqsat.language.comprehension.graphs.renaming import operand_conditions
from eqsat.language.comprehension.graphs.standard import REDUCING
from eqsat.language.comprehension.text.syntax import Parameter
from eqsat.language.ops import OPS
from eqsat.language.parametric.facts import Fact
from eqsat.language.terms import Attrs, Node, TensorType, evaluate
from eqsat.language.terms.dims import Sym
from eqsat.rewrites.theories.chosen import UNKNOWN, ChosenNodes
from eqsat.rewrites.theories.stating import literal_fields
from eqsat.system.deadline import check

#: The first part of the names of regions, and of equations about them.
REGION = "region"
#: The most operators and results of a region, and the most operators in the terms that say what it is, where what is
#: read twice counts twice.
_MOST_STEPS, _MOST_RESULTS, _MOST_TERMS = 24, 3, 80
#: The most operations of a product, beyond which a library is faster, and the most products of a region.
_MOST_WORK, _MOST_PRODUCTS = 1_000_000, 2


class RegionWidth(IntEnum):
    """The operators that regions are of: on single elements and along axes, those that move as well, or products and
    windows as well."""

    PLAIN = 0
    MOVES = 1
    SUMS = 2


@dataclass(frozen=True)
class FunctionRegion:
    """Steps of a region by their classes, in the order in which they can be run, and the classes that others read."""

    steps: Mapping[int, RegionStep]
    results: tuple[int, ...]

    @property
    def _name(self) -> str:
        """A name that says what is computed: the last operators along axes, and those of the results."""
        ops = [step.node.op for step in self.steps.values()]
        last = [op for op in ops if is_along(op)][-2:]
        return "_".join(dict.fromkeys([REGION, *last, *(self.steps[one].node.op for one in self.results)]))

    @property
    def is_worth_it(self) -> bool:
        """True where a program makes several kernels of it.

        It puts operators on single elements before and after one along axes, as long as the shapes are the same. A
        product, windows, and what moves elements to other places may be kernels of their own.
        """
        ops = [step.node.op for step in self.steps.values()]
        if self.width > RegionWidth.PLAIN:
            alone = [op for op in ops if is_along(op) or (is_movement(op) and not OPS[op].view)]
            return len(ops) > 1 and len(alone) + any(width_of(op) is RegionWidth.PLAIN for op in ops) > 1
        along = [one for one, step in self.steps.items() if step.node.op in REDUCING]
        spread = any(
            int(value) in self.steps and _shape(type) != _shape(step.result)
            for one, step in self.steps.items()
            if one not in along
            for value, type in zip(map(str, step.node.inputs), step.operands, strict=True)
        )
        return bool(along) and len(along) + spread > 1

    @property
    def width(self) -> RegionWidth:
        """The least kind of regions that it is of."""
        return max((width_of(step.node.op) for step in self.steps.values()), default=RegionWidth.PLAIN)

    def declared(self) -> tuple[DeclaredRegion, tuple[int, ...]] | None:
        """The function with its law, and the classes of its operands; None where there is none."""
        found = region_function([*self.steps.values()], [str(one) for one in self.results])
        if found is None:
            return None
        names = {value: f"x{place}" for place, value in enumerate(found.operands)}
        sizes = _sizes(found.function.operands, found.function.scope.parameters, [*names.values()])
        terms = self._terms(names, found.attrs, sizes)
        conditions = [_condition(fact, sizes) for fact in found.conditions]
        if terms is None or any(one is None for one in conditions):
            return None
        asked = ", ".join([*operand_conditions(found.function, [*names.values()]), *map(str, conditions)])
        law = f"{', '.join(terms)} => {NAME}({', '.join(names.values())}) if {asked}"
        return DeclaredRegion(self._name, repr(found.function), law), tuple(map(int, found.operands))

    def _terms(
        self, names: Mapping[str, str], attrs: Mapping[str, Mapping[str, Any]], dims: Mapping[str, str]
    ) -> list[str] | None:
        """The results as terms of the operands; None where a term would be too long, or has no text."""
        sizes: dict[str, int] = dict.fromkeys(names, 0)
        terms = dict(names)
        for one, step in self.steps.items():
            formulas = attrs.get(str(one))
            fields = literal_fields(step.node.op, step.node.attrs) if formulas is None else _fields(formulas, dims)
            given = [*map(str, step.node.inputs)]
            sizes[str(one)] = 1 + sum(sizes[value] for value in given)
            if fields is None or sizes[str(one)] > _MOST_TERMS:
                return None
            terms[str(one)] = f"{step.node.op}({', '.join([*(terms[value] for value in given), *fields])})"
        return [terms[str(one)] for one in self.results]


def is_along(op: str) -> bool:
    """True of an operator that puts elements together."""
    return op in REDUCING or is_product(op) or is_window(op)


def width_of(op: str) -> RegionWidth:
    """The least kind of regions that an operator may be of."""
    if is_product(op) or is_window(op):
        return RegionWidth.SUMS
    return RegionWidth.MOVES if is_movement(op) else RegionWidth.PLAIN


def _sizes(operands: Sequence[str], parameters: Mapping[str, Parameter], names: Sequence[str]) -> Mapping[str, str]:
    """The named sizes of a function, as conditions and attributes say them."""
    found: dict[str, str] = {}
    for operand, name in zip(operands, names, strict=True):
        for axis, extent in enumerate(parameters[operand].extents):
            if isinstance(extent, str):
                found.setdefault(extent, f"dim({name}, {axis})")
    return found


def _condition(fact: Fact, sizes: Mapping[str, str]) -> str | None:
    """A fact as a condition of a law; None where it has no text."""
    text = size_text(fact.formula, sizes)
    sign = ("==" if fact.held else "!=") if fact.is_zero else (">" if fact.held else "<=")
    return None if text is None else f"{text} {sign} 0"


def _fields(attrs: Mapping[str, Any], sizes: Mapping[str, str]) -> list[str] | None:
    """Attributes as a term states them, sizes in them as those of operands; None where one has no text."""

    def written(value: Any) -> str | None:
        if isinstance(value, tuple):
            parts = [written(one) for one in value]
            known = [one for one in parts if one is not None]
            return None if len(known) < len(parts) else f"({', '.join(known)}{',' * (len(known) == 1)})"
        if isinstance(value, Sym):
            return size_text(value, sizes)
        return repr(value) if value is None or isinstance(value, bool | int | float | str) else None

    fields = {name: written(value) for name, value in attrs.items()}
    return None if None in fields.values() else [f"{name}={text}" for name, text in fields.items()]


class FunctionRegionFinder:
    """Finds regions of a width among chosen e-nodes: all that one value is computed by and that nothing else reads.

    Values that others read as well are results too, where none of the region is computed from what reads them.
    """

    def __init__(self, nodes: ChosenNodes, roots: Collection[int], width: RegionWidth = RegionWidth.SUMS) -> None:
        self.nodes, self.egraph, self.roots, self.width = nodes, nodes.egraph, roots, width
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
                is_new = results not in seen and len(region.steps) <= _MOST_STEPS and region.width is self.width
                if is_new and region.is_worth_it:
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
        """A class as a step; None where its operator is not stated as a function, or is too large a product."""
        if leader not in self._steps:
            enode = self.egraph.nodes[self.nodes.made[leader]]
            operands = self._operands(leader)
            node = Node(enode.op, tuple(map(str, operands)), (str(leader),), enode.attrs)
            types, result = tuple(map(self.egraph.type, operands)), self.egraph.type(leader)
            self._steps[leader] = None
            if enode.op not in OPS or len(enode.types) > 1 or not isinstance(result, TensorType):
                return None
            if width_of(enode.op) <= self.width and self._is_small(node, types, result):
                stated = stated_node(node, types, result)
                self._steps[leader] = None if stated is None else RegionStep(node, types, result, stated)
        return self._steps[leader]

    def _is_small(self, node: Node, operands: Sequence[Any], result: Any) -> bool:
        """True of what is no product, and of one that no library is needed for."""
        flops = OPS[node.op].flops
        if not is_product(node.op) or flops is None:
            return True
        if any(not isinstance(one, TensorType) or one.shape is None for one in (*operands, result)):
            return False
        work = flops(operands, [result], Attrs(OPS[node.op].complete(node.attrs)))
        names = work.names() if isinstance(work, Sym) else ()
        return evaluate(work, dict.fromkeys(names, UNKNOWN)) <= _MOST_WORK

    def _cone(self, results: Sequence[int]) -> set[int]:
        """The classes that are computed for these results alone, themselves included, and few products."""
        taken: set[int] = set()
        heap = [-self.place[one] for one in results]
        heapq.heapify(heap)
        order = [*self.place]
        products = 0
        while heap and len(taken) <= _MOST_STEPS:
            one = order[-heapq.heappop(heap)]
            if one in taken:
                continue
            alone = one not in self.roots and self._readers(one) <= taken
            step = self._step(one) if one in results or alone else None
            if step is None:
                continue
            products += is_product(step.node.op)
            if products > _MOST_PRODUCTS and is_product(step.node.op):
                continue
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
