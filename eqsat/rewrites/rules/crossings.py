"""The substitutions that go through each node of a graph, which a cut of the graph at that node loses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from eqsat.language.terms import Graph, Node
from eqsat.language.terms.pattern import ABSENT, App, Pattern, Spread
from eqsat.rewrites.rules.rule import Rule
from eqsat.system.deadline import check

#: A pattern without its attributes: the operator, and its operands; None for one that may be anything.
Skeleton: TypeAlias = "tuple[str, tuple[Skeleton | None, ...]]"

#: Nodes between two looks at the clock.
_AT_ONCE = 256


def crossings(graph: Graph, rules: Iterable[Rule]) -> tuple[int, ...]:
    """For each node, the number of substitutions that match an edge into it and an edge out of it.

    A substitution is counted where the operators of a rule's left side are there: attributes and conditions are not
    asked, so that some of those counted would not fire. One node of a graph that several places of a left side stand
    for is counted once. A rule that takes a sequence of operands is counted where it needs no operator behind them.

    >>> from eqsat.language.graphs.builder import Builder
    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> g = Builder("g"); x = g.input("x", (2, 3))
    >>> g.output("y", g.apply("relu", g.apply("relu", g.apply("tanh", x))))
    >>> crossings(g.build(), parse_rules("twice: relu(relu(x)) => relu(x)"))
    (0, 1, 0)
    """
    skeletons = _by_root(rules)
    makers = {value: number for number, node in enumerate(graph.nodes) for value in node.outputs if value}
    counts = [0] * len(graph.nodes)
    for number, node in enumerate(graph.nodes):
        if number % _AT_ONCE == 0:
            check(0)
        for skeleton, times in skeletons.get(node.op, {}).items():
            inner: set[int] = set()
            if _matches(skeleton, node, graph.nodes, makers, inner):
                for one in inner:
                    counts[one] += times
    return tuple(counts)


def _by_root(rules: Iterable[Rule]) -> Mapping[str, Mapping[Skeleton, int]]:
    """The left sides of rules without attributes, and how many rules have each, by the operator of the root."""
    found: dict[str, Counter[Skeleton]] = {}
    for rule in rules:
        for root in rule.roots:
            skeleton = _skeleton(root)
            if any(skeleton[1]):  # an operator on anything has no inner node
                found.setdefault(root.op, Counter())[skeleton] += 1
    return found


def _skeleton(app: App) -> Skeleton:
    if any(isinstance(operand, Spread) for operand in app.operands):
        return app.op, ()
    return app.op, tuple(_operand(operand) for operand in app.operands)


def _operand(pattern: Pattern | Spread) -> Skeleton | None:
    return _skeleton(pattern) if isinstance(pattern, App) and pattern != ABSENT else None


def _matches(skeleton: Skeleton, node: Node, nodes: Sequence[Node], makers: Mapping[str, int], inner: set[int]) -> bool:
    """True if a skeleton has its operators at a node; adds the nodes inside, which have an edge in and one out."""
    op, operands = skeleton
    if node.op != op or (operands and len(operands) > len(node.inputs)):
        return False
    for operand, value in zip(operands, node.inputs, strict=False):
        if operand is None:
            continue
        maker = makers.get(value) if value is not None else None
        if maker is None or not _matches(operand, nodes[maker], nodes, makers, inner):
            return False
        if nodes[maker].inputs:
            inner.add(maker)
    return True
