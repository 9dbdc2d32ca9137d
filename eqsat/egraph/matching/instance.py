"""The two sides of a rule found again in the e-graph after it fired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from eqsat.egraph.egraph import PROJECTION, EGraph
from eqsat.egraph.forest import Forest
from eqsat.egraph.matching.build import cuts
from eqsat.egraph.matching.match import bindings_of
from eqsat.egraph.nodes import Firing, RuleUnion
from eqsat.errors import GraphError
from eqsat.language.ops import spec
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.pattern import ABSENT, App, Bindings, Pattern, Siblings, Spread, Var, element

#: Two e-nodes of one class.
Pair: TypeAlias = tuple[int, int]
#: E-classes by variable, each by an e-node in it; sequences of them for groups.
Classes: TypeAlias = dict[str, Any]
#: The variables of a loop and the sequences they run over.
Over: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MatchedTerm:
    """An e-node with the terms a pattern has below it; none where the pattern has a variable."""

    enode: int
    below: tuple[MatchedTerm, ...] | None = None


@dataclass(frozen=True, slots=True)
class MatchedSide:
    """One side of a rule as it stands in the e-graph, and the pairs of e-nodes that had to be equal for it.

    A pair is an operand that an e-node was made over, and the e-node that the pattern has in its place.
    """

    term: MatchedTerm
    equalities: tuple[Pair, ...]


class SideFinder:
    """Finds the instances of a rule's sides that one union was about, among the equalities before it."""

    def __init__(self, egraph: EGraph, forest: Forest) -> None:
        self.egraph, self.forest = egraph, forest

    def sides(self, applied: RuleUnion, time: int) -> tuple[MatchedSide, MatchedSide] | None:
        """The left and the right side; None where the record has no bindings, or no e-node fits them."""
        firing = applied.firing
        if firing is None:
            return None
        rule, search = firing.rule, _SideSearch(self.egraph, self.forest, firing, time, applied.root)
        bound, classes = search.bindings, dict(firing.classes)
        find = search.part if len(rule.right) < rule.results else search.instance
        right = find(rule.right[applied.root % len(rule.right)], applied.right, bound, classes)
        if isinstance(rule.left, Siblings):
            bound, classes = search.at(bound, classes, rule.left.over, applied.root)
            left = search.instance(rule.left.item, applied.left, bound, classes)
        elif rule.parts:
            left = search.part(rule.left[0], applied.left, bound, classes)
        else:
            left = search.instance(rule.left[applied.root], applied.left, bound, classes)
        return None if left is None or right is None else (left, right)


class _SideSearch:
    """The instances under one firing's bindings."""

    def __init__(self, egraph: EGraph, forest: Forest, firing: Firing, time: int, root: int) -> None:
        self.egraph, self.forest, self.rule, self.time, self.root = egraph, forest, firing.rule, time, root
        self.bindings = bindings_of(egraph, firing.classes, firing.attrs)

    def instance(self, pattern: Pattern, enode: int, bindings: Bindings, classes: Classes) -> MatchedSide | None:
        """A pattern at an e-node, or at another that was equal to it."""
        fit = self._fit(pattern, enode, bindings, classes)
        return None if fit is None else MatchedSide(fit[0], tuple(dict.fromkeys(fit[1])))

    def part(self, pattern: Pattern, enode: int, bindings: Bindings, classes: Classes) -> MatchedSide | None:
        """One output of a pattern, at an e-node that projects it."""
        node = self.egraph.nodes[enode]
        fit = self._fit(pattern, node.operands[0], bindings, classes) if node.op == PROJECTION else None
        return None if fit is None else MatchedSide(MatchedTerm(enode, (fit[0],)), tuple(dict.fromkeys(fit[1])))

    def at(self, bindings: Bindings, classes: Classes, over: Over, index: int) -> tuple[Bindings, Classes]:
        """The bindings inside a loop, at one element."""
        chosen = {v: classes[s][index] for v, s in over if s in classes}
        return element(bindings, over, index), {**classes, **chosen}

    def _fit(
        self, pattern: Pattern, wanted: int, bindings: Bindings, classes: Classes
    ) -> tuple[MatchedTerm, list[Pair]] | None:
        """A term that a pattern stands for where an e-node is wanted, and the premises that takes."""
        if isinstance(pattern, Var):
            number: int = classes[pattern.name]
            if not self.forest.equal_before(wanted, number, self.time):
                return None
            return MatchedTerm(number), [(wanted, number)] if wanted != number else []
        try:
            stated = self.rule.attributes(pattern, bindings)
            attrs = Attrs() if pattern == ABSENT else spec(pattern.op).complete(stated)
        except GraphError:
            return None
        if pattern.op == "split":
            pattern, attrs = App("slice", pattern.operands), cuts(attrs)[self.root]
        for enode in self._candidates(pattern.op, attrs, wanted):
            below = self._operands(pattern, enode, bindings, classes)
            if below is not None:
                terms, equalities = below
                return MatchedTerm(enode, terms), [*([(wanted, enode)] if enode != wanted else []), *equalities]
        return None

    def _candidates(self, op: str, attrs: Attrs, wanted: int) -> Iterator[int]:
        """The e-nodes that were equal to one and apply an operator; itself first, then as they were made."""
        nodes = self.egraph.nodes
        for enode in (wanted, *sorted(self.forest.members(wanted))):
            node = nodes[enode]
            if node.op == op and node.attrs == attrs and self.forest.equal_before(enode, wanted, self.time):
                yield enode

    def _operands(
        self, pattern: App, enode: int, bindings: Bindings, classes: Classes
    ) -> tuple[tuple[MatchedTerm, ...], list[Pair]] | None:
        operands = self.egraph.nodes[enode].operands
        terms: list[MatchedTerm] = []
        equalities: list[Pair] = []
        for item, inner, known in self._expanded(pattern, bindings, classes):
            if len(terms) == len(operands):
                return None
            fit = self._fit(item, operands[len(terms)], inner, known)
            if fit is None:
                return None
            terms.append(fit[0])
            equalities += fit[1]
        return (tuple(terms), equalities) if len(terms) == len(operands) else None

    def _expanded(
        self, pattern: App, bindings: Bindings, classes: Classes
    ) -> Iterator[tuple[Pattern, Bindings, Classes]]:
        """The operands of a pattern, spreads element by element, with the bindings in each."""
        for operand in pattern.operands:
            if not isinstance(operand, Spread):
                yield operand, bindings, classes
                continue
            for index in self.rule.window(operand, bindings):
                if operand.over:
                    yield operand.item, *self.at(bindings, classes, operand.over, index)
                elif isinstance(operand.item, Var):
                    yield operand.item, bindings, {**classes, operand.item.name: classes[operand.item.name][index]}
