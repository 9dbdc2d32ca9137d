"""Differences of a result from its original: regions between values that both compute, with the rules behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.encode import Encoding
from eqsat.egraph.explain import Derivation, Explainer
from eqsat.egraph.notation import Notation
from eqsat.language.terms.graph import Graph, Node, operator_name
from eqsat.report.explanation import SHARED, STATES, Change, Explanation, Grounds, Step, counted, together
from eqsat.report.finalists import Candidate
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.loader import evidence_of
from eqsat.rewrites.rules.rule import Rule
from eqsat.system.deadline import check

#: A key that distinguishes e-nodes: operator, attributes, classes of operands.
_Key: TypeAlias = tuple[Any, ...]


@dataclass
class Region:
    """Nodes of the original and of the result that compute the same `values`, from values that both have.

    `values` pairs each value of the original with the one that the result has for it, `derivation` says why they are
    equal. `reads` gives for each value of the result that the new nodes read the original's.
    """

    old: list[Node] = field(default_factory=list)
    new: list[Node] = field(default_factory=list)
    values: list[tuple[str, str]] = field(default_factory=list)
    reads: dict[str, str] = field(default_factory=dict)
    derivation: Derivation = field(default_factory=lambda: Derivation((), {}))


def regions(encoding: Encoding, finalist: Candidate) -> list[Region]:
    """The regions in which a finalist computes its values in another way, in the order of the original.

    Nodes that compute constants belong to none: nothing of them runs. Nodes that are run as one kernel are one region.
    """
    return [] if finalist.assembled is None else _Regions(encoding, finalist).regions()


class _Regions:
    def __init__(self, encoding: Encoding, finalist: Candidate) -> None:
        assert finalist.assembled is not None
        assembled, self.egraph = finalist.assembled, encoding.egraph
        self.old, self.new, self.encoding = encoding.graph, assembled.decoded.graph, encoding
        choice, nodes = assembled.choice, assembled.snapshot.nodes
        self.numbers = {name: nodes[choice[k]].number for k, name in assembled.decoded.names.items()}
        self.fused = [set(k.nodes) for k in assembled.plan.kernels if len(k.nodes) > 1]
        self.parent: dict[int, int] = {}
        find = self.egraph.find
        self.old_class = {v: find(n) for v, n in encoding.values.items()}
        self.new_class = {v: find(n) for v, n in self.numbers.items()}
        self.old_values: dict[int, list[tuple[int, str]]] = {}
        for place, (value, eclass) in enumerate(self.old_class.items()):
            self.old_values.setdefault(eclass, []).append((place, value))
        self.first_old = {c: v for v, c in reversed(self.old_class.items())}
        self.first_new = {c: v for v, c in reversed(self.new_class.items())}
        computed = {c for v, c in self.new_class.items() if not self.egraph.eclass(c).constant}
        self.shared = computed & {c for v, c in self.old_class.items()}

    def regions(self) -> list[Region]:
        old_keys, new_keys = self._keys(self.old, self.encoding.values), self._keys(self.new, self.numbers)
        often, now = Counter(old_keys.values()), Counter(new_keys.values())
        gone = [n for n in self.old.nodes if (key := old_keys.get(_first(n))) and often[key] != now[key]]
        added = [n for n in self.new.nodes if (key := new_keys.get(_first(n))) and often[key] != now[key]]
        fused: set[int] = set()
        for names in self.fused:
            classes = {self.new_class[v] for v in names if v in self.new_class}
            self._unite(classes)
            fused |= classes
        added += _within(self.new, self.new_class, fused, added)
        gone += _within(self.old, self.old_class, fused, gone)
        for node in gone:
            self._join(node, self.old_class)
        for node in added:
            self._join(node, self.new_class)
        groups: dict[int, Region] = {}
        for node in gone:
            groups.setdefault(self._root(node, self.old_class), Region()).old.append(node)
        for node in added:
            groups.setdefault(self._root(node, self.new_class), Region()).new.append(node)
        explainer = Explainer(self.egraph)
        for region in groups.values():
            self._pair(region, explainer)
        place = {v: i for i, n in enumerate(self.old.nodes) for v in n.outputs}
        return sorted(groups.values(), key=lambda r: min((place[o] for n in r.old for o in n.outputs if o), default=-1))

    def _pair(self, region: Region, explainer: Explainer) -> None:
        """The values a region has in both graphs, and why they are equal."""
        check()
        old = [o for n in region.old for o in n.outputs if o and self.old_class[o] in self.shared]
        new = {self.new_class[o] for n in region.new for o in n.outputs if o in self.new_class}
        # A value that is computed anew may be one whose old node serves another value of its class.
        known = sorted((pair for c in new & self.shared for pair in self.old_values[c]), key=lambda pair: pair[0])
        more = [v for _, v in known if v not in self.old.constants]
        values = [v for v in dict.fromkeys((*old, *more)) if v not in self.old.inputs]
        region.values = [(v, self.first_new[self.old_class[v]]) for v in values]
        read = {v for n in region.new for v in n.inputs if v in self.new_class and v not in self.new.constants}
        region.reads = {v: given for v in sorted(read) if (given := self.first_old.get(self.new_class[v])) is not None}
        pairs = [(self.encoding.values[v], self.numbers[n]) for v, n in region.values]
        region.derivation = explainer.derive(p for p in pairs if p[0] != p[1])

    def _keys(self, graph: Graph, numbers: Mapping[str, int]) -> dict[str, frozenset[_Key]]:
        """Keys that distinguish the nodes of a graph, by their first values; those that compute constants have none."""
        keys: dict[str, frozenset[_Key]] = {}
        for node in graph.nodes:
            check()
            outputs = [numbers[o] for o in node.outputs if o in numbers]
            if not all(self.egraph.eclass(n).constant for n in outputs):
                # A node with several results is one e-node, but for a split, which is as many slices.
                keys[_first(node)] = frozenset(
                    _key(self.egraph, n) for n in outputs[: None if node.op == "split" else 1]
                )
        return keys

    def _join(self, node: Node, classes: Mapping[str, int]) -> None:
        """One region for a node and for the nodes that make those of its operands which the other graph lacks."""
        results = {classes[o] for o in node.outputs if o in classes}
        read = {classes[v] for v in node.inputs if v is not None and v in classes}
        inner = {c for c in read if c not in self.shared and not self.egraph.eclass(c).constant}
        self._unite(results | inner)

    def _unite(self, classes: Iterable[int]) -> None:
        roots = sorted({self._find(c) for c in classes})
        for root in roots[1:]:
            self.parent[root] = roots[0]

    def _find(self, number: int) -> int:
        while (above := self.parent.get(number, number)) != number:
            number = above
        return number

    def _root(self, node: Node, classes: Mapping[str, int]) -> int:
        return self._find(next(classes[o] for o in node.outputs if o in classes))


def _within(graph: Graph, classes: Mapping[str, int], wanted: set[int], known: Iterable[Node]) -> list[Node]:
    """The nodes of a graph whose results are in some classes, without those that are known."""
    there = {_first(n) for n in known}
    return [n for n in graph.nodes if _first(n) not in there and any(classes.get(o) in wanted for o in n.outputs)]


def explain(encoding: Encoding, original: Candidate, finalist: Candidate, changed: Sequence[Region]) -> Explanation:
    """The regions of a finalist as changes, the same ones together, the most saving first."""
    if finalist.assembled is None:
        return Explanation(())
    egraph = encoding.egraph
    names = {
        egraph.find(finalist.assembled.snapshot.nodes[finalist.assembled.choice[k]].number): name
        for k, name in finalist.assembled.decoded.names.items()
    }
    notation = Notation(egraph, names)
    before, after = _seconds(original), _seconds(finalist)
    groups: dict[Any, list[Change]] = {}
    for region in changed:
        change = _change(region, notation, before, after)
        groups.setdefault((change.rules, *change.before.items(), *change.after.items()), []).append(change)
    changes = sorted(map(together, groups.values()), key=lambda c: (-(c.predicted or 0.0), -len(c.values)))
    changes += elsewhere(original, finalist, changes)
    return Explanation(
        changes=tuple(changes),
        grounds=grounds(fired_rules(egraph, {name for region in changed for name in region.derivation.rules})),
        pairs=sum(len(r.derivation.chains) for r in changed),
        gaps=sum(r.derivation.gaps for r in changed),
    )


#: A share of a graph's cost that is rounding.
_NOTHING = 1e-9


def elsewhere(original: Candidate, finalist: Candidate, changes: Sequence[Change]) -> list[Change]:
    """The changes by states and kernels outside the regions: the operators they spare and take, and the saving."""
    total = original.cost.total.seconds
    saved = total - finalist.cost.total.seconds - sum(c.predicted or 0.0 for c in changes)
    assert finalist.assembled is not None
    stated, lowered = (Counter(operator_name(n) for n in g.nodes) for g in (finalist.assembled.graph, finalist.graph))
    if abs(saved) <= _NOTHING * total and stated == lowered:
        return []
    spared, taken = stated - lowered, lowered - stated
    return [Change((), dict(spared), dict(taken), (STATES,), nodes=taken.total() - spared.total(), predicted=saved)]


def _seconds(candidate: Candidate) -> dict[str, float]:
    """The cost of each node, by its first output."""
    spent: dict[str, float] = {}
    for node, cost in candidate.cost.nodes:
        spent[_first(node)] = spent.get(_first(node), 0.0) + cost.seconds
    return spent


def _first(node: Node) -> str:
    return next(o for o in node.outputs if o)


def _change(region: Region, notation: Notation, before: Mapping[str, float], after: Mapping[str, float]) -> Change:
    derivation = region.derivation
    steps = tuple(
        Step(
            rule=step.rule,
            value=notation.name(step.source),
            before=notation.enode(step.source) if step.before is None else notation.term(step.before.term),
            after="" if step.after is None else notation.term(step.after.term),
            backwards=step.backwards,
        )
        for step in derivation.steps
    )
    old = sum(before.get(_first(n), 0.0) for n in region.old)
    new = sum(after.get(_first(n), 0.0) for n in region.new)
    return Change(
        values=tuple(v for v, _ in region.values),
        replaced=tuple(_first(n) for n in region.old),
        made=tuple(_first(n) for n in region.new),
        before=counted(operator_name(n) for n in region.old),
        after=counted(operator_name(n) for n in region.new),
        rules=derivation.rules or ((SHARED,) if len(region.new) < len(region.old) else ()),
        steps=steps,
        nodes=len(region.new) - len(region.old),
        gaps=derivation.gaps,
        predicted=old - new,
    )


def fired_rules(egraph: EGraph, names: Collection[str]) -> Iterable[Rule]:
    """The rules of these names, in the order in which they first fired."""
    fired = ((a.rule, a.firing) for a in egraph.applications if a.rule in names)
    return {name: firing.rule for name, firing in fired if firing is not None}.values()


def grounds(rules: Iterable[Rule]) -> dict[str, Grounds]:
    """Why rules are taken for true, by name."""
    wanted = list(rules)
    evidence = evidence_of(wanted)
    return {r.name: _grounds(r, evidence.get(r.name)) for r in wanted}


def _grounds(rule: Rule, evidence: Evidence | None) -> Grounds:
    if evidence is None:
        return Grounds(rule.name, rule.text, rule.origin, rule.laws)
    counts = ((evidence.symbolic, "by Z3"), (evidence.numeric, "in float64"), (evidence.bounded, "modulo a prime"))
    agreed = ", ".join(f"{n} {how}" for n, how in counts if n)
    whole = ", all up to the bound" if evidence.exhaustive else ""
    entailed = f"; {evidence.entailed}" if evidence.entailed else ""
    checked = f"{evidence.scope}: {agreed} instances{whole}{entailed}"
    return Grounds(rule.name, rule.text, rule.origin, rule.laws, evidence.laws, checked, evidence.is_for_every_size)


def _key(egraph: EGraph, number: int) -> _Key:
    node = egraph.nodes[number]
    return node.op, node.attrs, tuple(egraph.find(k) for k in node.operands)
