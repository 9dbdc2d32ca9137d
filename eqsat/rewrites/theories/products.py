"""Sums of products of tensors, read from an e-graph and brought back in the order of least work.

Products of matrices, einsum, products element by element, sums over axes and moves of axes between them are one sum
over indices of a product of tensors. Of its orders the one with the least work is found, two tensors at a time, where
what is known before the program runs costs nothing. The equation has a proof of its own: every axis is followed on
both sides.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes, RegionReader
from eqsat.rewrites.theories.contractions import (
    CONTRACTION,
    Contraction,
    UnreadError,
    contraction_of,
    states_contraction,
)
from eqsat.rewrites.theories.orders import PairwiseSteps, PartialProduct, least_work
from eqsat.rewrites.theories.stating import literal_fields, stated, term_of
from eqsat.system.deadline import check

#: The operators of regions, and those of them that do work.
_MOVES = frozenset({"transpose", "reshape"})
_WORKS = frozenset({"matmul", "mul", "einsum", "reduce_sum", "reduce_mean"})
#: The most operators of a region.
_MOST_STEPS = 24
#: The share of the work of a region that another order has to be below.
_LESS = 0.999


@dataclass
class _ProductRegion:
    """The classes that a region reads, by their names, what it is made of, and its work."""

    leaves: dict[int, str] = field(default_factory=dict)
    uses: list[int] = field(default_factory=list)
    work: float = 0.0


class _NoProductError(Exception):
    """Leaves the reading of a region that is no sum of products."""


def product_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between regions of chosen e-nodes and the same sums of products with less work."""
    reader = _ProductReader(ChosenNodes(egraph, chosen), _WORKS, _MOVES)
    for root in reader.roots():
        check()
        yield from reader.matches(root)


class _ProductReader(RegionReader):
    def matches(self, root: int) -> Iterator[Match]:
        """The equations of the region that ends at a class with other orders of it that have less work."""
        region = _ProductRegion()
        try:
            text = self._read(root, region, top=True)
            constants = frozenset(name for k, name in region.leaves.items() if self.egraph.eclass(k).constant)
            rules = _rules(text, self._conditions(region), constants, region.work)
        except (_NoProductError, UnreadError):
            return
        named = {name: leader for leader, name in region.leaves.items()}
        for rule in rules:
            yield self.nodes.match(rule, root, named, region.uses)

    def _read(self, leader: int, region: _ProductRegion, top: bool = False) -> str:
        leader = self.egraph.find(leader)
        op = self.nodes.op(leader)
        inner = top or ((self.works(leader) or self.moves(leader)) and self.is_inner(leader))
        if not inner or self.egraph.eclass(leader).constant or len(region.uses) >= _MOST_STEPS:
            return self._leaf(leader, region)
        node = self.egraph.nodes[self.nodes.made[leader]]
        fields = literal_fields(node.op, node.attrs)
        if fields is None:
            return self._leaf(leader, region)
        region.uses.append(self.nodes.made[leader])
        operands = [self._read(k, region) for k in node.operands]
        region.work += self._work(op, leader, node.operands)
        return f"{op}({', '.join([*operands, *fields])})"

    def _work(self, op: str, leader: int, operands: Sequence[int]) -> float:
        """The elements that an operator of a region computes, or moves."""
        made = math.prod(self.nodes.sizes(leader))
        shapes = [self.nodes.sizes(k) for k in operands]
        if op == "matmul":
            return PairwiseSteps.step + made * shapes[0][-1]
        if op == "reshape":
            return PairwiseSteps.step
        if op == "einsum":
            return math.inf  # runtimes rarely have kernels of more than two operands: any order is offered
        return PairwiseSteps.step + max(made, *(math.prod(shape) for shape in shapes))

    def _leaf(self, leader: int, region: _ProductRegion) -> str:
        type = self.egraph.type(leader)
        if not self.egraph.eclass(leader).finite or not isinstance(type, TensorType) or type.shape is None:
            raise _NoProductError
        return region.leaves.setdefault(leader, f"x{len(region.leaves)}")

    def _conditions(self, region: _ProductRegion) -> tuple[str, ...]:
        """The conditions on the operands: ranks and sizes, and matrices with a diagonal of one number alone."""
        conditions: list[str] = []
        shapes = self.nodes.about_shapes(region.leaves)
        for leader, name in region.leaves.items():
            conditions += shapes[name]
            if number := self.egraph.view(leader).diagonal:
                conditions.append(f"is_diagonal({name}, {number!r})")
        names = ", ".join(region.leaves.values())
        return (*conditions, f"wide({names})", f"finite({names})")


@lru_cache(1024)
def _rules(text: str, conditions: tuple[str, ...], constants: frozenset[str], work: float) -> list[Rule]:
    """The equations of a region with orders of less than its work that are proved."""
    asked = ", ".join(conditions)
    forms = (form for form in _least(_contraction(text, conditions), constants) if form.work < _LESS * work)
    found = (stated(CONTRACTION, f"{text} => {form.text} if {asked}", states_contraction) for form in forms)
    return [rule for rule in found if rule is not None]


def _contraction(text: str, conditions: Sequence[str]) -> Contraction:
    """The sum of products that a region is."""
    term = term_of(text, conditions)
    if term is None:
        raise UnreadError
    return contraction_of(*term)


def _least(contraction: Contraction, constants: Collection[str]) -> Iterator[PartialProduct]:
    """A contraction in the orders of least work, as terms with their work."""
    flat = [i for axis in contraction.axes for i in axis]
    held = [[i for axis in axes for i in axis] for _, axes in contraction.factors]
    if any(len({*indices}) < len(indices) for indices in (flat, *held)):
        return
    steps = PairwiseSteps(contraction.sizes)
    parts = [steps.leaf(name, axes, name in constants) for name, axes in contraction.factors]
    for whole in least_work(parts, flat, steps):
        ordered = steps.reshaped(steps.ordered(steps.summed(whole, flat), flat), contraction.axes)
        yield steps.scaled(ordered, contraction.scale, contraction.factors[0][0])
