"""The evidence of equations that theories make, from proofs of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from eqsat.rewrites.rules.evidence import Evidence, rule_hash
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.attention.proof import states_attention
from eqsat.rewrites.theories.choices.cases import states_choice
from eqsat.rewrites.theories.choices.products import states_hidden_product
from eqsat.rewrites.theories.contractions import states_contraction
from eqsat.rewrites.theories.functions import states_function
from eqsat.rewrites.theories.identities import states_identity
from eqsat.rewrites.theories.joins.labels import states_joined
from eqsat.rewrites.theories.linear.combinations import states_combination
from eqsat.rewrites.theories.norms import states_norm
from eqsat.rewrites.theories.regions.equations import is_region_rule, region_evidence
from eqsat.rewrites.theories.slices import states_sliced_sum
from eqsat.rewrites.theories.views.reading import states_view

#: The proofs of equations, by what they show.
PROOFS: Mapping[str, Callable[[Rule], bool]] = MappingProxyType(
    {
        "both sides are one polynomial": states_identity,
        "both sides are one function of an operand": states_function,
        "both sides are one function of the elements of rows": states_norm,
        "both sides are one sum of slices": states_sliced_sum,
        "both sides are one sum of products over the same indices": states_contraction,
        "both sides are one sum of sums of products over the same indices": states_combination,
        "each element of both sides is a sum of the same two products": states_joined,
        "both sides are the same in each case of their conditions": states_choice,
        "both sides are one product of which a choice hides the same elements": states_hidden_product,
        "both sides are one average of values by shares of the same scores": states_attention,
        "both sides are one view of an operand": states_view,
    }
)


def theory_evidence(rule: Rule) -> Evidence:
    """The evidence of an equation of a theory: proved, for all sizes that it may meet, where a proof shows it.

    That a function is what a region computes is looked at as laws of declarations are.
    """
    if is_region_rule(rule):
        return region_evidence(rule)
    shown = next((text for text, proves in PROOFS.items() if proves(rule)), "")
    detail = "" if shown else "no proof of a theory shows it"
    if not shown:
        return Evidence(rule.name, rule_hash(rule), "undecided", detail=detail)
    return Evidence(rule.name, rule_hash(rule), "proved", entailed=shown, ranks=0, every_rank=True)
