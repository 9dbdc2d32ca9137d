"""Scores that a condition hides behind a number, as scores of queries and keys of which some are put to 0.

Models hide keys from attention by a choice of a large negative number. Added to scores it would be another function:
where all keys are hidden, shares of the choice are equal, and those of the sum are not. But a choice that varies along
keys alone is one of keys: their scores are 0, to which the number is added.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.theories.choices.cases import CHOICE
from eqsat.rewrites.theories.choices.products import states_hidden_product
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.stating import stated
from eqsat.system.deadline import check

_ZERO = "fill(shape=(), value=0.0, dtype=dtype(k))"


def hidden_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between choices of scores before a softmax and scores of keys that are chosen."""
    nodes = ChosenNodes(egraph, chosen)
    for root in [leader for leader in nodes.made if nodes.op(leader) == "where" and _is_weighed(nodes, leader)]:
        check()
        asked, *branches = map(egraph.find, egraph.nodes[nodes.made[root]].operands)
        for kept in (0, 1):
            if nodes.uniform(branches[1 - kept]) is None:
                continue
            try:
                match = _match(nodes, root, asked, branches, kept)
            except UnreadError:
                continue
            if match is not None:
                yield match


def _is_weighed(nodes: ChosenNodes, leader: int) -> bool:
    """True if a softmax reads a class, and nothing else does."""
    readers = nodes.readers.get(leader, set())
    return {nodes.egraph.nodes[reader].op for reader in readers} == {"softmax"}


#: A term of keys, which stand in it as {keys}, and the axis of keys that each of its axes is.
_Term: TypeAlias = tuple[str, list[int | None]]


@dataclass
class _Scores:
    """The classes that scores are made of, by their names, their numbers, and the e-nodes that make them."""

    nodes: ChosenNodes
    named: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    uses: list[int] = field(default_factory=list)

    def read(self, leader: int) -> _Term:
        """A product of queries and keys, behind numbers and moves of axes; UnreadError for another class."""
        if self.nodes.op(leader) != "matmul":
            return self._around(leader, self.read)
        queries, keys = self._used(leader)
        text, axes = self._keys(keys)
        rank = len(self.nodes.sizes(queries))
        if queries in self.named.values() or not self.nodes.egraph.eclass(queries).finite or min(rank, len(axes)) < 2:
            raise UnreadError
        self.named["q"] = queries
        return f"matmul(q, {text})", [*([None] * (rank - len(axes))), *axes[:-2], None, axes[-1]]

    def _keys(self, leader: int) -> _Term:
        try:
            return self._around(leader, self._keys)
        except UnreadError:
            type = self.nodes.egraph.type(leader)
            if not isinstance(type, TensorType) or type.shape is None:
                raise
            self.named["k"] = leader
            return "{keys}", list(range(type.rank))

    def _around(self, leader: int, read: Callable[[int], _Term]) -> _Term:
        """The term of what moves axes of another, or multiplies it by a number."""
        op = self.nodes.op(leader)
        if op == "transpose":
            perm = self.nodes.egraph.nodes[self.nodes.made[leader]].attrs["perm"]
            text, axes = read(*self._used(leader))
            return f"transpose({text}, perm={perm!r})", [axes[axis] for axis in perm]
        if op not in ("mul", "div"):
            raise UnreadError
        other = self.nodes.egraph.find(self.nodes.egraph.nodes[self.nodes.made[leader]].operands[1])
        number = self.nodes.uniform(other)
        if not number or any(size != 1 for size in self.nodes.sizes(other)):
            raise UnreadError
        within, _ = self._used(leader)
        name = f"n{len(self.numbers)}"
        self.numbers[name], self.named[name] = number, other
        text, axes = read(within)
        return f"{op}({text}, {name})", axes

    def _used(self, leader: int) -> list[int]:
        enode = self.nodes.made[leader]
        self.uses.append(enode)
        return [self.nodes.egraph.find(k) for k in self.nodes.egraph.nodes[enode].operands]


def _match(nodes: ChosenNodes, root: int, asked: int, branches: list[int], kept: int) -> Match | None:
    scores = _Scores(nodes)
    text, axes = scores.read(branches[kept])
    named = {**scores.named, "c": asked, "n": branches[1 - kept]}
    if len({*named.values()}) < len(named):
        return None
    sizes = nodes.sizes(asked)
    missing = len(axes) - len(sizes)
    shape = ["1"] * len(nodes.sizes(named["k"]))
    for axis, size in enumerate(sizes):
        if size != 1 and missing >= 0 and (own := axes[axis + missing]) is not None:
            shape[own] = f"dim(c, {axis})"
    keys = _choice(f"reshape(c, shape=({', '.join(shape)},))", "k", _ZERO, kept)
    left = _choice("c", text.format(keys="k"), "n", kept)
    right = f"add({text.format(keys=keys)}, {_choice('c', _ZERO, 'n', kept)})"
    stated_of = nodes.about_shapes({leader: name for name, leader in named.items()})
    conditions = [one for shown in stated_of.values() for one in shown]
    conditions += [f"is_all({name}, {value!r})" for name, value in scores.numbers.items()]
    conditions += ["finite(q)", f"shape({keys}) == shape(k)", f"shape({left}) == shape({right})"]
    rule = stated(CHOICE, f"{left} => {right} if {', '.join(conditions)}", states_hidden_product)
    return None if rule is None else nodes.match(rule, root, named, [nodes.made[root], *scores.uses])


def _choice(asked: str, one: str, other: str, kept: int) -> str:
    return f"where({asked}, {one}, {other})" if kept == 0 else f"where({asked}, {other}, {one})"
