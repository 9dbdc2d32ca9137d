"""Numbers that a condition hides behind minus infinity, as a sum with a mask.

Exporters mask scores by a choice, kernels of attention by a sum. The two are the same of finite scores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.rewrites.conditions.functions import is_minus_infinity
from eqsat.rewrites.theories.choices.cases import CHOICE, states_choice
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.stating import stated
from eqsat.system.deadline import check


def mask_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between choices of minus infinity among chosen e-nodes and sums with a mask."""
    nodes = ChosenNodes(egraph, chosen)
    for root in [leader for leader in nodes.made if nodes.op(leader) == "where" and nodes.is_wide(leader)]:
        check()
        asked, *branches = map(egraph.find, egraph.nodes[nodes.made[root]].operands)
        hidden = [_is_minus_infinity(egraph, branch) for branch in branches]
        for kept, beside in ((0, 1), (1, 0)):
            if hidden[beside] and egraph.eclass(branches[kept]).finite:
                named = {"c": asked, "x": branches[kept], "n": branches[beside]}
                rule = stated(CHOICE, _equation(kept == 0), states_choice)
                if rule is not None:
                    yield nodes.match(rule, root, named, [nodes.made[root]])


def _equation(kept_if_true: bool) -> str:
    """The equation of a choice between numbers and minus infinity, in the order of its branches."""
    zero = "fill(shape=(), value=0.0, dtype=dtype(x))"
    given, mask = (
        ("where(c, x, n)", f"where(c, {zero}, n)") if kept_if_true else ("where(c, n, x)", f"where(c, n, {zero})")
    )
    right = f"add(x, {mask})"
    return f"{given} => {right} if wide(x), finite(x), is_minus_infinity(n), shape({given}) == shape({right})"


def _is_minus_infinity(egraph: EGraph, leader: int) -> bool:
    return is_minus_infinity(egraph.view(leader)) is True
