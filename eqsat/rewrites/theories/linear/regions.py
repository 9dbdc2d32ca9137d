"""Regions that add, multiply and sum over axes, read from an e-graph and brought back with products taken apart.

Rules take a product of sums apart one step at a time, each of which makes more work; only after all of them does less
remain, as where a matrix of rank one is subtracted from the identity before a product. Here the whole region is read as
one sum of products, and each of these is written in the order of least work.
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
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.linear.combinations import LINEAR, CombinationReader, states_combination
from eqsat.rewrites.theories.linear.writing import CombinationWriter
from eqsat.rewrites.theories.orders import PairwiseSteps
from eqsat.rewrites.theories.stating import literal_fields, stated, term_of
from eqsat.system.deadline import check

#: The operators of regions: those that sum over axes, products, sums, and moves.
_SUMMING = frozenset({"matmul", "reduce_sum", "reduce_mean"})
_ADDING = frozenset({"add", "sub"})
_MOVES = frozenset({"transpose", "reshape", "expand"})
_WORKS = _SUMMING | _ADDING | {"mul", "div", "neg"}
#: The most operators of a region, the share of its work that another form has to be below, and the forms brought in.
_MOST_STEPS, _LESS, _FORMS = 24, 0.999, 2
#: The most moves of axes that are looked behind, and the most operators of a term, in which one may occur twice.
_MOST_MOVES, _LONGEST = 8, 64


@dataclass
class _LinearRegion:
    """The classes that a region reads, by their names, those that are numbers, what it is made of, and its work."""

    leaves: dict[int, str] = field(default_factory=dict)
    numbers: dict[int, float] = field(default_factory=dict)
    uses: list[int] = field(default_factory=list)
    work: float = 0.0
    length: int = 0


def linear_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between regions of chosen e-nodes and the same sums of products with less work."""
    nodes = ChosenNodes(egraph, chosen)
    if not any(nodes.op(leader) in _SUMMING for leader in nodes.made):
        return
    # A choice may compute more elements than there are, of what an e-node that was not chosen spreads afterwards.
    for leader, enode in ChosenNodes(egraph, range(len(egraph.nodes)), ["expand"]).made.items():
        if leader in nodes.made and nodes.op(leader) not in _WORKS | _MOVES:
            nodes.made[leader] = enode
    reader = _LinearReader(nodes, _WORKS, _MOVES)
    for root in reader.roots():
        check()
        yield from reader.matches(root)


class _LinearReader(RegionReader):
    def matches(self, root: int) -> Iterator[Match]:
        """The equations of the region that ends at a class."""
        if self._cancels(root) or not self._may_gain(root):
            return
        region = _LinearRegion()
        try:
            text = self._read(root, region, top=True)
            constants = frozenset(name for k, name in region.leaves.items() if self.egraph.eclass(k).constant)
            like = next((name for k, name in region.leaves.items() if k not in region.numbers), None)
            if like is None:
                return
            rules = _rules(text, self._conditions(region), constants, like, region.work)
        except UnreadError:
            return
        named = {name: leader for leader, name in region.leaves.items()}
        for rule in rules:
            yield self.nodes.match(rule, root, named, region.uses)

    def _may_gain(self, root: int) -> bool:
        """True if a region sums over axes of what is added, spread or reshaped, or adds products of equal operands."""
        summed: list[frozenset[int]] = []
        stack, steps = [(root, False)], 0
        while stack and steps < _MOST_STEPS:
            leader, below = stack.pop()
            op, operands = self.nodes.op(leader), [self.egraph.find(k) for k in self._operands(leader)]
            steps += 1
            if below and op in (*_ADDING, "expand", "reshape"):
                return True
            if op in _SUMMING:
                if any(self._is_form(k) for k in operands):
                    return True
                leaves = frozenset(map(self._base, operands))
                if leaves in summed:
                    return True
                summed.append(leaves)
            stack += [(k, below or op in _SUMMING) for k in operands if self._is_read(k)]
        return False

    def _base(self, leader: int) -> int:
        """The class that a few moves of axes are of."""
        leader = self.egraph.find(leader)
        for _ in range(_MOST_MOVES):
            if not self.moves(leader):
                break
            leader = self.egraph.find(self._operands(leader)[0])
        return leader

    def _is_form(self, leader: int) -> bool:
        """True for a constant that is one number, or a matrix with one along its diagonal alone."""
        view = self.egraph.view(leader)
        return self.egraph.eclass(leader).constant and bool(view.diagonal)

    def _operands(self, leader: int) -> Sequence[int]:
        return self.egraph.nodes[self.nodes.made[leader]].operands

    def _is_read(self, leader: int) -> bool:
        """True for a part of a region that is not its end."""
        if not self.works(leader) and not self.moves(leader):
            return False
        return self.is_inner(leader) and not self._cancels(leader)

    def _cancels(self, leader: int) -> bool:
        """True for a product of two differences: taken apart it is a difference of large numbers, which rounds more."""
        if self.nodes.op(leader) not in ("mul", "matmul"):
            return False
        return all(self._takes_away(k) for k in self._operands(leader))

    def _takes_away(self, root: int) -> bool:
        """True if a class is read as a sum with parts that are taken away, or has more parts than are read."""
        stack = [self.egraph.find(root)]
        for _ in range(_MOST_STEPS):
            if not stack:
                return False
            leader = stack.pop()
            if (self.works(leader) or self.moves(leader)) and self.is_inner(leader):
                if self.nodes.op(leader) in ("sub", "neg"):
                    return True
                stack += map(self.egraph.find, self._operands(leader))
        return True

    def _read(self, leader: int, region: _LinearRegion, top: bool = False) -> str:
        leader = self.egraph.find(leader)
        if not top and (self.egraph.eclass(leader).constant or not self._is_read(leader)):
            return self._leaf(leader, region)
        node = self.egraph.nodes[self.nodes.made[leader]]
        fields = literal_fields(node.op, node.attrs)
        if fields is None or len(region.uses) >= _MOST_STEPS or not self._is_divided_by_number(leader):
            return self._leaf(leader, region)
        region.length += 1
        if region.length > _LONGEST:
            raise UnreadError
        if self.nodes.made[leader] not in region.uses:
            region.uses.append(self.nodes.made[leader])
            region.work += self._work(node.op, leader, node.operands)
        operands = [self._read(k, region) for k in node.operands]
        return f"{node.op}({', '.join([*operands, *fields])})"

    def _is_divided_by_number(self, leader: int) -> bool:
        """True for any operator but a quotient by something else than a number."""
        return self.nodes.op(leader) != "div" or bool(self._number(self._operands(leader)[1]))

    def _work(self, op: str, leader: int, operands: Sequence[int]) -> float:
        """The elements that an operator of a region computes, or moves."""
        made, shapes = math.prod(self.nodes.sizes(leader)), [self.nodes.sizes(k) for k in operands]
        if op == "matmul":
            return PairwiseSteps.step + made * shapes[0][-1]
        if op in ("reshape", "expand"):
            return PairwiseSteps.step
        return PairwiseSteps.step + max(made, *(math.prod(shape) for shape in shapes))

    def _number(self, leader: int) -> float | None:
        """The number that all elements of a constant are."""
        leader = self.egraph.find(leader)
        return self.nodes.uniform(leader) if self.egraph.eclass(leader).constant else None

    def _leaf(self, leader: int, region: _LinearRegion) -> str:
        type = self.egraph.type(leader)
        if not self.egraph.eclass(leader).finite or not isinstance(type, TensorType) or type.shape is None:
            raise UnreadError
        number = self._number(leader)
        if number is not None:
            region.numbers[leader] = number
        return region.leaves.setdefault(leader, f"x{len(region.leaves)}")

    def _conditions(self, region: _LinearRegion) -> tuple[str, ...]:
        """The conditions on the operands: ranks and sizes, numbers, and matrices with one on the diagonal alone."""
        conditions: list[str] = []
        shapes = self.nodes.about_shapes(region.leaves)
        for leader, name in region.leaves.items():
            conditions += shapes[name]
            if leader in region.numbers:
                conditions.append(f"is_all({name}, {region.numbers[leader]!r})")
            elif number := self.egraph.view(leader).diagonal:
                conditions.append(f"is_diagonal({name}, {number!r})")
        names = ", ".join(name for k, name in region.leaves.items() if k not in region.numbers)
        return (*conditions, f"wide({names})", f"finite({names})")


@lru_cache(1024)
def _rules(text: str, conditions: tuple[str, ...], constants: frozenset[str], like: str, work: float) -> list[Rule]:
    """The equations of a region with forms of less than its work that are proved."""
    term = term_of(text, conditions)
    if term is None:
        raise UnreadError
    reader = CombinationReader.under(term[1])
    (whole,) = reader.finished([reader.followed(term[0])])
    writer = CombinationWriter(PairwiseSteps(dict(enumerate(reader.indices.dims))), constants, like)
    forms = sorted(writer.written(whole), key=lambda form: (form.work, len(form.text)))
    asked = ", ".join(conditions)
    bodies = (f"{text} => {form.text} if {asked}" for form in forms[:_FORMS] if form.work < _LESS * work)
    found = (stated(LINEAR, body, states_combination) for body in bodies)
    return [rule for rule in found if rule is not None]
