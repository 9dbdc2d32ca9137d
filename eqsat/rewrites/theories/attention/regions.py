"""Attention in any spelling, read from an e-graph and brought back as the operator.

A product of values with the shares of scores is read through all that moves axes, repeats heads, scales queries or keys
and adds masks. Its indices say which are heads, queries, keys and widths. The equation has a proof of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.attention.indices import attention_indices
from eqsat.rewrites.theories.attention.proof import states_attention
from eqsat.rewrites.theories.attention.writing import Asked, AttentionWriter
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.stating import literal_fields, stated, term_of
from eqsat.system.deadline import check

#: The first part of the names of such equations.
ATTENTION = "attention-spelled"
#: The operators that only move elements, or repeat them.
_MOVES = frozenset({"transpose", "reshape", "expand"})
#: The most operators of a region.
_MOST_STEPS = 48


@dataclass
class _AttentionRegion:
    """The classes that a region reads by their names, its numbers and masks, and what it is made of."""

    leaves: dict[int, str] = field(default_factory=dict)
    numbers: dict[int, float] = field(default_factory=dict)
    masks: set[int] = field(default_factory=set)
    uses: list[int] = field(default_factory=list)

    @property
    def classes(self) -> dict[str, int]:
        """The class of each name."""
        return {name: leader for leader, name in self.leaves.items()}


def attention_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between regions of chosen e-nodes and the attention that they spell out."""
    nodes = ChosenNodes(egraph, chosen)
    if not any(nodes.op(leader) == "softmax" for leader in nodes.made):
        return
    for root in [leader for leader in nodes.made if nodes.op(leader) == "matmul" and nodes.is_wide(leader)]:
        check()
        reader = _AttentionReader(nodes)
        try:
            text = reader.average(root)
            rules = _rules(text, reader.asked())
        except UnreadError:
            continue
        for rule in rules:
            yield nodes.match(rule, root, reader.region.classes, reader.region.uses)


class _AttentionReader:
    """Reads one region as a term, from a product of shares and values."""

    def __init__(self, nodes: ChosenNodes) -> None:
        self.nodes, self.egraph, self.region = nodes, nodes.egraph, _AttentionRegion()

    def average(self, leader: int) -> str:
        """The term of a product of shares and values; UnreadError for another."""
        shares, values = self._used(leader)
        return f"matmul({self._shares(shares)}, {self._operand(values)})"

    def asked(self) -> Asked:
        """The conditions on the operands."""
        conditions = [one for stated in self.nodes.about_shapes(self.region.leaves).values() for one in stated]
        numbers = tuple((self.region.leaves[k], value) for k, value in self.region.numbers.items())
        conditions += [f"is_all({name}, {value!r})" for name, value in numbers]
        others = [k for k in self.region.leaves if k not in self.region.numbers and k not in self.region.masks]
        conditions.append(f"wide({', '.join(self.region.leaves[k] for k in others)})")
        given = [name for k, name in self.region.leaves.items() if k not in self.region.numbers]
        finite = [name for name in given if self.egraph.eclass(self.region.classes[name]).finite]
        if finite:
            conditions.append(f"finite({', '.join(finite)})")
        attending = frozenset(self.region.leaves[k] for k in self.region.masks if self.egraph.view(k).attends)
        return Asked(tuple(conditions), numbers, frozenset(finite), attending)

    def _node(self, leader: int) -> Any:
        enode = self.nodes.made.get(self.egraph.find(leader))
        return None if enode is None else self.egraph.nodes[enode]

    def _used(self, leader: int) -> Sequence[int]:
        """The operands of what was chosen for a class, which is a part of the region now."""
        leader = self.egraph.find(leader)
        if leader not in self.nodes.made or len(self.region.uses) >= _MOST_STEPS:
            raise UnreadError
        self.region.uses.append(self.nodes.made[leader])
        return self.egraph.nodes[self.nodes.made[leader]].operands

    def _shares(self, leader: int) -> str:
        node = self._node(leader)
        if node is None:
            raise UnreadError
        if node.op in _MOVES:
            return self._moved(leader, self._shares)
        if node.op == "softmax":
            (scores,) = self._used(leader)
            return f"softmax({self._scores(scores)}, axis={node.attrs['axis']})"
        if node.op == "where":
            asked, zero, shares = node.operands
            known = self._node(asked)
            if known is None or known.op != "isnan" or self.egraph.find(known.operands[0]) != self.egraph.find(shares):
                raise UnreadError
            self._used(leader)
            self._used(asked)
            text, number = self._shares(shares), self._number(zero)
            if number is None:
                raise UnreadError
            return f"where(isnan({text}), {number}, {text})"
        raise UnreadError

    def _scores(self, leader: int) -> str:
        """The term of a sum of a product of queries and keys, and of masks."""
        node = self._node(leader)
        if node is not None and node.op == "add":
            return f"add({', '.join(self._scores(k) for k in self._used(leader))})"
        if node is not None and self._leads_to_product(leader):
            return self._product(leader)
        return self._operand(leader, mask=True)

    def _leads_to_product(self, leader: int) -> bool:
        """True if a class is a product of two tensors, but for numbers and moves of axes."""
        node = self._node(leader)
        if node is None:
            return False
        if node.op in ("mul", "div") and (k := self._scaled(node)) is not None:
            return self._leads_to_product(k)
        return node.op == "matmul" or (node.op in _MOVES and self._leads_to_product(node.operands[0]))

    def _product(self, leader: int) -> str:
        node = self._node(leader)
        if node.op == "matmul":
            one, other = self._used(leader)
            return f"matmul({self._operand(one)}, {self._operand(other)})"
        return self._moved(leader, self._product)

    def _operand(self, leader: int, mask: bool = False) -> str:
        """The term of an operand: what is left where moves of axes, and numbers, are taken off."""
        node = self._node(leader)
        is_moved = node is not None and node.op in _MOVES and literal_fields(node.op, node.attrs) is not None
        if not is_moved and (node is None or mask or node.op not in ("mul", "div") or self._scaled(node) is None):
            return self._leaf(leader, mask)
        return self._moved(leader, lambda k: self._operand(k, mask))

    def _moved(self, leader: int, read: Any) -> str:
        """The term of what moves elements of a class, or multiplies them by a number."""
        node = self._node(leader)
        operands = self._used(leader)
        fields = literal_fields(node.op, node.attrs)
        if fields is None:
            raise UnreadError
        moved = self._scaled(node) if node.op in ("mul", "div") else operands[0]
        texts = [read(k) if k == moved else self._number(k) for k in operands]
        return f"{node.op}({', '.join([*map(str, texts), *fields])})"

    def _scaled(self, node: Any) -> int | None:
        """The operand that a product, or a quotient, has beside a number."""
        one, other = node.operands
        if self._uniform(other) is not None:
            return int(one)
        return int(other) if node.op == "mul" and self._uniform(one) is not None else None

    def _uniform(self, leader: int) -> float | None:
        """The number that a constant of one element is."""
        type = self.egraph.type(leader)
        if not isinstance(type, TensorType) or not type.is_static or type.elements({}) != 1:
            return None
        return self.nodes.uniform(self.egraph.find(leader)) if self.egraph.eclass(leader).constant else None

    def _number(self, leader: int) -> str | None:
        leader, number = self.egraph.find(leader), self._uniform(leader)
        if number is None:
            return None
        self.region.numbers[leader] = number
        return self.region.leaves.setdefault(leader, f"x{len(self.region.leaves)}")

    def _leaf(self, leader: int, mask: bool) -> str:
        leader = self.egraph.find(leader)
        type = self.egraph.type(leader)
        if not isinstance(type, TensorType) or type.shape is None or leader in self.region.numbers:
            raise UnreadError
        if (leader in self.region.masks) != mask and leader in self.region.leaves:
            raise UnreadError
        if mask:
            self.region.masks.add(leader)
        return self.region.leaves.setdefault(leader, f"x{len(self.region.leaves)}")


@lru_cache(1024)
def _rules(text: str, asked: Asked) -> list[Rule]:
    """The equations of a region with attention, with shared heads and without, that are proved."""
    term = term_of(text, asked.conditions)
    if term is None:
        raise UnreadError
    indices = attention_indices(term[1], dict(asked.numbers))
    writer = AttentionWriter(indices, indices.followed(term[0]), asked)
    conditions = [*asked.conditions, *([] if writer.about_mask is None else [writer.about_mask])]
    forms = dict.fromkeys(writer.written(sharing) for sharing in (True, False))
    found = (stated(ATTENTION, f"{text} => {form} if {', '.join(conditions)}", states_attention) for form in forms)
    return [rule for rule in found if rule is not None]
