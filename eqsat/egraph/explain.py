"""Proofs that two e-nodes are equal: chains of rule applications and congruences, and the equalities they need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.forest import Edge, Forest
from eqsat.egraph.matching.instance import MatchedSide, Pair, SideFinder

#: The name of a step between e-nodes of one operator over equal operands.
CONGRUENCE = "congruence"


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One step of a chain: the rule, the e-nodes it leads from and to, and whether it was used right to left.

    `equalities` are pairs of e-nodes that had to be equal for it: operands as they were made and as the rule matched
    them, or, for congruence, the operands of both sides. `left` and `right` are the sides of the rule as they stood in
    the e-graph; both are None for congruence, and where the record of the firing does not tell, which is a gap.
    `time` counts unions: every premise was equal before.
    """

    rule: str
    source: int
    target: int
    backwards: bool
    time: int
    equalities: tuple[Pair, ...] = ()
    left: MatchedSide | None = None
    right: MatchedSide | None = None

    @property
    def is_gap(self) -> bool:
        """True if the rule was applied, but its match is not known."""
        return self.rule != CONGRUENCE and self.left is None

    @property
    def before(self) -> MatchedSide | None:
        """The side that the step leads from."""
        return self.right if self.backwards else self.left

    @property
    def after(self) -> MatchedSide | None:
        """The side that the step leads to."""
        return self.left if self.backwards else self.right


@dataclass(frozen=True)
class Derivation:
    """Chains for pairs of e-nodes and, each once, for every pair that their steps rest on; in the order of need.

    A pair without a chain has None: a gap. All premises of a chain were equal before its last union, so no chain rests
    on itself.
    """

    wanted: tuple[Pair, ...]
    chains: dict[Pair, tuple[ProofStep, ...] | None]

    @property
    def gaps(self) -> int:
        """The number of pairs without a chain, or with a step whose match is not known."""
        return sum(chain is None or any(s.is_gap for s in chain) for chain in self.chains.values())

    @property
    def steps(self) -> list[ProofStep]:
        """Every step by a rule, in the order in which the unions were made."""
        used = {s.time: s for chain in self.chains.values() for s in chain or () if s.rule != CONGRUENCE}
        return [used[time] for time in sorted(used)]

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules used, each once, in the order in which they first fired."""
        return tuple(dict.fromkeys(s.rule for s in self.steps))


class Explainer:
    """Replays the unions of an e-graph, and finds why e-nodes of one class are equal.

    Chains record the steps of the run; that a result is right is shown by its certificate.
    """

    def __init__(self, egraph: EGraph) -> None:
        self.egraph = egraph
        self._forest = Forest()
        self._instances = SideFinder(egraph, self._forest)
        self._known: dict[int, ProofStep] = {}
        self._replayed = (0, 0)
        self.replay()

    def replay(self) -> None:
        """Bring in the additions to the e-graph since the last time."""
        egraph, forest = self.egraph, self._forest
        nodes, applications = self._replayed
        for node in egraph.nodes[nodes:]:
            forest.intern((node.op, node.attrs), node.operands)
        for number in range(nodes, len(egraph.nodes)):
            forest.revive(number)
        for index, applied in enumerate(egraph.applications[applications:], applications):
            forest.equate(applied.left, applied.right, index)
        self._replayed = (len(egraph.nodes), len(egraph.applications))

    def chain(self, source: int, target: int) -> tuple[ProofStep, ...] | None:
        """The steps from one e-node to another of its class; None where the record has none."""
        if self._forest.find(source) != self._forest.find(target):
            return None
        return tuple(self._step(edge) for edge in self._forest.path(source, target))

    def derive(self, pairs: Iterable[Pair]) -> Derivation:
        """The chains of pairs of e-nodes, and of all that these rest on."""
        wanted = tuple(pairs)
        chains: dict[Pair, tuple[ProofStep, ...] | None] = {}
        pending = list(reversed(wanted))
        while pending:
            pair = pending.pop()
            if pair in chains or (pair[1], pair[0]) in chains or pair[0] == pair[1]:
                continue
            chains[pair] = self.chain(*pair)
            pending += [p for step in reversed(chains[pair] or ()) for p in reversed(step.equalities)]
        return Derivation(wanted, chains)

    def derive_all(self) -> Derivation:
        """The chains from the first e-node of each class to all others in it, and of all that these rest on."""
        find = self.egraph.find
        return self.derive((find(n), n) for n in range(len(self.egraph.nodes)) if find(n) != n)

    def _step(self, edge: Edge) -> ProofStep:
        """The step of an edge of the forest, with its premises."""
        known = self._known.get(edge.time)
        if known is None:
            known = self._known[edge.time] = self._made(edge)
        if (known.source, known.target) == (edge.source, edge.target):
            return known
        turned = tuple((b, a) for a, b in known.equalities) if known.rule == CONGRUENCE else known.equalities
        backwards = not known.backwards
        return replace(known, source=edge.source, target=edge.target, backwards=backwards, equalities=turned)

    def _made(self, edge: Edge) -> ProofStep:
        source, target, nodes = edge.source, edge.target, self.egraph.nodes
        if edge.equation is None:
            pairs = zip(nodes[source].operands, nodes[target].operands, strict=True)
            equalities = tuple((a, b) for a, b in pairs if a != b)
            return ProofStep(CONGRUENCE, source, target, edge.backwards, edge.time, equalities)
        applied = self.egraph.applications[edge.equation]
        sides = self._instances.sides(applied, edge.time)
        if sides is None:
            return ProofStep(applied.rule, source, target, edge.backwards, edge.time)
        left, right = sides
        equalities = tuple(dict.fromkeys((*left.equalities, *right.equalities)))
        return ProofStep(applied.rule, source, target, edge.backwards, edge.time, equalities, left, right)
