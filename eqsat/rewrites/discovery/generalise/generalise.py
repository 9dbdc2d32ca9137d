"""From a candidate, equal at one choice of shapes, to the most general rules that it is an instance of.

Attributes become variables and expressions of them, from the most general left side to the most special; of the right
sides that are the candidate's at its own shapes, the one that is equal at most drawn instances is taken; conditions are
learned from the instances at which it is equal and those at which it is not, until fresh instances bear them out.
"""

from __future__ import annotations

import math

from eqsat.rewrites.discovery.equations.candidate import CandidateEquation
from eqsat.rewrites.discovery.equations.direction import phase_of
from eqsat.rewrites.discovery.equations.equation import LiteralEquation, equations
from eqsat.rewrites.discovery.generalise.search import Found, GeneralisationEffort, RuleSearch
from eqsat.rewrites.discovery.generalise.spread import lifted
from eqsat.rewrites.discovery.generalise.template import templates
from eqsat.rewrites.rules.rule import Rule

#: The default effort.
USUAL = GeneralisationEffort()


def generalise(candidate: CandidateEquation, effort: GeneralisationEffort = USUAL, seed: int = 0) -> tuple[Rule, ...]:
    """The most general rules found for a candidate, best first; none where it holds by accident of its shapes.

    Ways round that repeat work, whose phase is off unless asked for, are looked at where the effort says so. Every
    rule is worth checking, none is proved yet. Deterministic for a seed.

    >>> twice = CandidateEquation("c1", ("relu(relu(x))",), ("relu(x)",), {"x": (3, 3)}, 2, 1)
    >>> [str(rule) for rule in generalise(twice)]
    ['relu-of-relu-to-relu: relu(relu(x)) => relu(x)']
    """
    found: dict[str, Rule] = {}
    seen: set[str] = set()
    for equation in equations(candidate):
        text = equation.text
        if text in seen:  # the same the other way round, as x + y => y + x
            continue
        seen.add(text)
        phase = phase_of(equation.left, equation.right)
        if phase is None or (phase == "associate" and not effort.repeats):
            continue
        for form in (lifted(equation), equation):
            made = _rules(form, effort, seed) if form is not None else ()
            found.update((rule.text, rule) for rule in made if rule.text not in found)
            if made:
                break
    order = ("simplify", "fuse", "merge", "expand", "associate")
    return tuple(sorted(found.values(), key=lambda r: order.index(r.phase)))


def _rules(equation: LiteralEquation, effort: GeneralisationEffort, seed: int) -> tuple[Rule, ...]:
    """The rules of the most general left side that needs few conditions; of all, the one that needs the least."""
    best: Found | None = None
    for template in templates(equation):
        if best is not None and best.cost <= template.cost + effort.plain:
            break
        enough = best.cost if best is not None else math.inf
        for found in RuleSearch(equation, template, effort, seed).found(enough):
            best = found if best is None or found.cost < best.cost else best
    if best is None:
        return ()
    return tuple(way.rule for way in best.ways)
