"""The equations that all theories find among chosen e-nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.functions import function_matches
from eqsat.rewrites.theories.norms import norm_matches
from eqsat.rewrites.theories.products import product_matches
from eqsat.rewrites.theories.sums import sum_matches

#: Rules that say of sums and products, one step at a time, what theories do at once: without them nothing is regrouped.
_SAID = frozenset({"add-associates", "mul-associates", "factor", "mul-over-add"})


def theory_matches(egraph: EGraph, chosen: Collection[int], rules: Iterable[Rule]) -> Iterator[Match]:
    """Matches of equations between chosen e-nodes and better forms of them; none where the rules do not regroup.

    The e-graph may grow between matches.
    """
    if {rule.name for rule in rules} >= _SAID:
        yield from product_matches(egraph, chosen)
        yield from sum_matches(egraph, chosen)
        yield from function_matches(egraph, chosen)
        yield from norm_matches(egraph, chosen)
