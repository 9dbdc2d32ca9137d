"""One match of a rule brought into an e-graph."""

from __future__ import annotations

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.build import RightSideBuilder
from eqsat.egraph.matching.match import Match
from eqsat.egraph.nodes import Firing
from eqsat.egraph.saturation import Saturation
from eqsat.errors import ShapeError


def fire(egraph: EGraph, match: Match, report: Saturation, generation: int = 0, steps: int = 0) -> bool:
    """Make the right side of a match equal to its left one, where the conditions hold; True if that was not known.

    `generation` counts the merges, and `steps` the firings, that lead to what is made.
    """
    rule, first = match.rule, len(egraph.nodes)
    try:
        refused = match.refused()
        if refused is not None:
            report.refused[rule.name, refused] += 1
            return False
        equations = RightSideBuilder(egraph, match, generation, steps).equations()
        firing = Firing(rule, match.classes, match.attrs)
        changed = [egraph.union(e, r, rule.name, firing, i) for i, e, r in equations]
    except ShapeError as error:
        report.refused[rule.name, error.what] += 1
        return False
    finally:
        if len(egraph.nodes) > first:
            report.made.append((first, rule.name))
    if any(changed):
        report.fired[rule.name] += 1
    return any(changed)
