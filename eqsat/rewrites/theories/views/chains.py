"""Views among chosen e-nodes, and what makes the same with fewer operators."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.terms.dims import Dim
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.stating import stated
from eqsat.rewrites.theories.views.arranging import written_views
from eqsat.rewrites.theories.views.operators import VIEWS
from eqsat.rewrites.theories.views.pieces import PiecewiseView
from eqsat.rewrites.theories.views.reading import states_view
from eqsat.rewrites.theories.views.regions import RefusedError, ViewRegion, viewed
from eqsat.rewrites.theories.views.writing import steps_of
from eqsat.system.deadline import check

#: The first part of the names of such equations.
VIEW = "view"


def view_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between views among chosen e-nodes and terms of fewer operators."""
    nodes = ChosenNodes(egraph, chosen)
    ends = [leader for leader in nodes.made if nodes.op(leader) in VIEWS and _is_end(nodes, leader)]
    begun: set[int] = set()
    while ends:
        check()
        root = ends.pop(0)
        if root in begun:
            continue
        begun.add(root)
        whole: set[int] = set()
        while True:
            try:
                yield from _matches(ViewRegion(nodes, root, whole))
                break
            except RefusedError as refused:
                # Of what it reads as it is, the operator may be a view; if not, what reads it has to take it so.
                at = refused.leader
                below = {one for one in viewed(nodes, at) if one in nodes.made} - whole if at in nodes.made else set()
                if not below and (at in (root, *whole) or at not in nodes.made):
                    break
                whole |= below or {at}
        for leader in sorted(whole):
            ends += [one for one in (leader, *viewed(nodes, leader)) if nodes.op(one) in VIEWS]


def _is_end(nodes: ChosenNodes, leader: int) -> bool:
    """True if something else than a view, or nothing, reads a class."""
    readers = nodes.readers.get(leader, set())
    views = [nodes.egraph.find(n) for n in readers if nodes.egraph.nodes[n].op in VIEWS]
    return not readers or len(views) < len(readers) or any(leader not in viewed(nodes, one) for one in views)


def _matches(region: ViewRegion) -> Iterator[Match]:
    """The equations of a region; RefusedError for an operator that is to be taken as it is."""
    if region.steps < 2:
        return
    text, view = region.read(region.root)
    for rule in _rules(text, region.conditions(), view, region.shapes()):
        yield region.match(rule)


@lru_cache(4096)
def _rules(
    text: str,
    conditions: tuple[str, ...],
    view: PiecewiseView,
    shapes: tuple[tuple[str, tuple[Dim, ...]], ...],
) -> list[Rule]:
    """The equations of a term that is a view with terms of fewer operators that are proved."""
    steps, asked = steps_of(text), f" if {', '.join(conditions)}"
    try:
        forms = [form for form in dict.fromkeys(written_views(view, dict(shapes))) if steps_of(form) < steps]
    except (UnreadError, ValueError):
        return []
    found = (stated(VIEW, f"{text} => {form}{asked}", states_view) for form in forms)
    return [rule for rule in found if rule is not None]
