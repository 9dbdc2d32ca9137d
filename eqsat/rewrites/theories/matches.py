"""The equations that all theories find among chosen e-nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.ruleset import RuleSet
from eqsat.rewrites.theories.attention.regions import attention_matches
from eqsat.rewrites.theories.choices.columns import hidden_matches
from eqsat.rewrites.theories.choices.masks import mask_matches
from eqsat.rewrites.theories.functions import function_matches
from eqsat.rewrites.theories.joins.regions import joined_matches
from eqsat.rewrites.theories.linear.regions import linear_matches
from eqsat.rewrites.theories.norms import norm_matches
from eqsat.rewrites.theories.products import product_matches
from eqsat.rewrites.theories.slices import slice_matches
from eqsat.rewrites.theories.sums import sum_matches
from eqsat.rewrites.theories.views.chains import view_matches

#: Rules that say of views, and of sums and products, one step at a time what theories do at once: where some of these
#: are left out, nothing is regrouped.
_SAID_OF_VIEWS = frozenset({"reshapes-compose", "transposes-compose", "slices-compose", "expands-compose"})
_SAID_OF_SUMS = frozenset({"add-associates", "mul-associates", "factor", "mul-over-add"})


def theory_matches(egraph: EGraph, chosen: Collection[int], rules: Iterable[Rule]) -> Iterator[Match]:
    """Matches of equations between chosen e-nodes and better forms of them; none where the rules do not regroup.

    The e-graph may grow between matches.
    """
    known = RuleSet.of(rules)
    if len(known.named(_SAID_OF_VIEWS)) == len(_SAID_OF_VIEWS):
        yield from view_matches(egraph, chosen)
    if len(known.named(_SAID_OF_SUMS)) == len(_SAID_OF_SUMS):
        yield from product_matches(egraph, chosen)
        yield from sum_matches(egraph, chosen)
        yield from linear_matches(egraph, chosen)
        yield from joined_matches(egraph, chosen)
        yield from slice_matches(egraph, chosen)
        yield from function_matches(egraph, chosen)
        yield from norm_matches(egraph, chosen)
        yield from mask_matches(egraph, chosen)
        yield from hidden_matches(egraph, chosen)
        yield from attention_matches(egraph, chosen)
