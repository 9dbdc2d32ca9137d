"""The e-nodes that were chosen, as theories read them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.ops import OPS
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.conditions.functions import is_uniform, number, wide
from eqsat.rewrites.rules.rule import Rule

#: The size that is taken for a dim whose size is not known.
UNKNOWN = 64


class ChosenNodes:
    """The first of the chosen e-nodes, of some operators where these are given, for each class that is computed.

    Operators that a user declares come last: theories read none of them, and may read what defines them.
    """

    def __init__(self, egraph: EGraph, chosen: Collection[int], operators: Collection[str] | None = None) -> None:
        self.egraph = egraph
        self.made: dict[int, int] = {}
        others = {name for name, declared in OPS.items() if not declared.is_shipped}
        for enode in sorted(chosen, key=lambda one: (egraph.nodes[one].op in others, one)):
            leader = egraph.find(enode)
            if operators is None or egraph.nodes[enode].op in operators:
                self.made.setdefault(leader, enode)
        self.made = {leader: enode for leader, enode in self.made.items() if not egraph.eclass(leader).constant}

    @cached_property
    def readers(self) -> Mapping[int, set[int]]:
        """The chosen e-nodes that read each class."""
        found: dict[int, set[int]] = {}
        for enode in self.made.values():
            for operand in self.egraph.nodes[enode].operands:
                found.setdefault(self.egraph.find(operand), set()).add(enode)
        return found

    def op(self, leader: int) -> str:
        """The operator that was chosen for a class, "" where none was."""
        enode = self.made.get(leader)
        return "" if enode is None else self.egraph.nodes[enode].op

    def is_wide(self, leader: int) -> bool:
        """True if a class holds floats that are wide enough to be regrouped, of known rank."""
        type = self.egraph.type(leader)
        return isinstance(type, TensorType) and type.shape is not None and bool(wide(self.egraph.view(leader)))

    def sizes(self, leader: int) -> tuple[int, ...]:
        """The sizes of the axes of a class, one for all that are not known."""
        type = self.egraph.type(leader)
        dims = type.dims if isinstance(type, TensorType) else ()
        return tuple(d if isinstance(d, int) else UNKNOWN for d in dims)

    def uniform(self, leader: int) -> float | None:
        """The number that all elements of a small constant are; None where they differ, or are not finite."""
        view = self.egraph.view(leader)
        return float(number(view)) if is_uniform(view) else None

    def about_shapes(self, named: Mapping[int, str]) -> dict[str, list[str]]:
        """Conditions that state the rank of each named class, and its sizes: numbers, or those of another axis."""
        first: dict[Any, str] = {}
        stated: dict[str, list[str]] = {}
        for leader, name in named.items():
            type = self.egraph.type(leader)
            dims = type.dims if isinstance(type, TensorType) else ()
            stated[name] = [f"rank({name}) == {len(dims)}"]
            for axis, dim in enumerate(dims):
                own = f"dim({name}, {axis})"
                other = str(dim) if isinstance(dim, int) else first.setdefault(dim, own)
                if other != own:
                    stated[name].append(f"{own} == {other}")
        return stated

    def match(
        self,
        rule: Rule,
        root: int,
        named: Mapping[str, int],
        uses: Sequence[int],
        attrs: Mapping[str, Any] = MappingProxyType({}),
    ) -> Match:
        """The match of an equation at a class, with the classes of its variables, and attributes that it names."""
        classes: dict[str, Any] = {name: leader for name, leader in named.items() if name in rule.tensors}
        return Match(self.egraph, rule, (root,), (self.made[root],), classes, attrs, tuple(uses))


class RegionReader:
    """A reader of regions of chosen e-nodes: operators that work, with operators between them that move elements."""

    def __init__(self, nodes: ChosenNodes, working: Collection[str], moving: Collection[str]) -> None:
        self.nodes, self.egraph = nodes, nodes.egraph
        self._working, self._moving = working, moving

    def roots(self) -> list[int]:
        """The classes at which regions end, in the order they were made."""
        return [leader for leader in self.nodes.made if self.works(leader) and not self.is_inner(leader)]

    def works(self, leader: int) -> bool:
        """True if an operator that works was chosen for a class of floats that are wide enough to be regrouped."""
        return self.nodes.op(leader) in self._working and self.nodes.is_wide(leader)

    def moves(self, leader: int) -> bool:
        """True if an operator that moves elements was chosen for a class."""
        return self.nodes.op(leader) in self._moving

    def is_inner(self, leader: int) -> bool:
        """True if a class is read by one operator, of a region, on the way or by itself."""
        readers = self.nodes.readers.get(leader, set())
        if len(readers) != 1:
            return False
        (reader,) = readers
        above = self.egraph.find(reader)
        return self.works(above) or (self.moves(above) and self.is_inner(above))
