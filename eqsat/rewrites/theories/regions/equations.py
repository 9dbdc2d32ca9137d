"""Equations between regions of chosen e-nodes and functions in the language of comprehensions, with evidence."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.comprehension.graphs.operators import NAME, DeclaredRegion, declare_region, region_of
from eqsat.rewrites.rules.evidence import Evidence, recalled, remember, rule_hash
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.regions.finding import REGION, FunctionRegion, FunctionRegionFinder, RegionWidth
from eqsat.rewrites.theories.stating import stated
from eqsat.system.deadline import check

#: True of the function of a region that may be offered, by the name of its operator, the region, and its operands.
IsOffered: TypeAlias = Callable[[str, FunctionRegion, Sequence[int]], bool]
#: The most equations of each width of regions that are looked at in one graph.
_MOST_EQUATIONS = 4


def region_matches(
    egraph: EGraph, choices: Sequence[Collection[int]], roots: Collection[int], is_offered: IsOffered
) -> Iterator[Match]:
    """Matches of equations between functions and regions of e-nodes that were chosen together, choice by choice.

    `roots` are the classes of outputs. Of a function that is not offered no evidence is looked for.
    """
    for width in RegionWidth:
        laws: set[str] = set()
        for chosen in choices:
            finder = FunctionRegionFinder(ChosenNodes(egraph, chosen), frozenset(map(egraph.find, roots)), width)
            yield from _matches(egraph, finder, laws, is_offered)


def _matches(egraph: EGraph, finder: FunctionRegionFinder, laws: set[str], is_offered: IsOffered) -> Iterator[Match]:
    """The matches of the regions that are found, the largest first; `laws` are those that were looked at so far.

    Each is looked at once before any of them is at other sizes.
    """
    turns: dict[str, list[tuple[DeclaredRegion, tuple[int, ...], FunctionRegion]]] = {}
    for region in sorted(finder.regions(), key=lambda region: -len(region.steps)):
        check()
        found = region.declared()
        if found is None or (len(laws) == _MOST_EQUATIONS and found[0].law not in laws):
            continue
        laws.add(found[0].law)
        turns.setdefault(found[0].law, []).append((*found, region))
    for turn in itertools.chain.from_iterable(itertools.zip_longest(*turns.values())):
        if turn is None:
            continue
        check()
        declared, operands, region = turn
        name = declare_region(declared).name
        if not is_offered(name, region, operands):
            continue
        rule = stated(REGION, declared.law.replace(NAME, name), states_region)
        if rule is None:
            continue
        enodes = tuple(finder.nodes.made[one] for one in region.results)
        uses = tuple(finder.nodes.made[one] for one in region.steps)
        classes = {f"x{place}": leader for place, leader in enumerate(operands)}
        yield Match(egraph, rule, region.results, enodes, classes, {}, uses)


def states_region(rule: Rule) -> bool:
    """True of an equation between operators and the function of a region that holds of all instances looked at."""
    return region_evidence(rule).verdict == "proved"


@lru_cache(1024)
def region_evidence(rule: Rule) -> Evidence:
    """The evidence of the equation of a region, by the check that all laws of declarations go through."""
    from eqsat.rewrites.proof.check import Effort, check

    known = recalled([rule]).get(rule.name)
    if known is not None:
        return known
    found = check(_turned(rule), Effort(numeric=24, symbolic=6, turned=0, questions=0))
    found = replace(found, hash=rule_hash(rule))
    remember([found])
    return found


def _turned(rule: Rule) -> Rule:
    """The equation from right to left: the function draws shapes that it takes, of which terms with sizes in their
    attributes know nothing."""
    left, _, rest = rule.text.partition(" => ")
    right, condition, asked = rest.partition(" if ")
    text = f"%phase expand\n{rule.name}: {right} => {left}{condition}{asked}"
    (turned,) = parse_rules(text, "an equation from right to left", origin="identity")
    return turned


def is_region_rule(rule: Rule) -> bool:
    """True of an equation whose right side is the function of a region."""
    return (
        rule.origin == "identity" and len(rule.right) == 1 and region_of(getattr(rule.right[0], "op", "")) is not None
    )
