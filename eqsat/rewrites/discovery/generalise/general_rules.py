"""General rules of candidates, each with its evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from eqsat.language.terms.pattern import Bindings
from eqsat.rewrites.discovery.equations.candidate import CandidateEquation
from eqsat.rewrites.discovery.equations.canonical import canonical
from eqsat.rewrites.discovery.equations.derivable import SAVING, Claim
from eqsat.rewrites.discovery.equations.direction import phase_of
from eqsat.rewrites.discovery.equations.equation import equations
from eqsat.rewrites.discovery.equations.sides import RuleStatement
from eqsat.rewrites.rules.evidence import Evidence
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import both_sides

if TYPE_CHECKING:
    from eqsat.rewrites.proof.entail import Entailment
import math

from eqsat.rewrites.discovery.equations.equation import LiteralEquation
from eqsat.rewrites.discovery.generalise.search import Found, GeneralisationEffort, RuleSearch
from eqsat.rewrites.discovery.generalise.spread import lifted
from eqsat.rewrites.discovery.generalise.template import templates

#: The rules that generalise a candidate, each with its evidence.
Generaliser = Callable[[CandidateEquation], "list[tuple[Rule, Evidence]]"]
#: Number of times that a candidate is generalised where its rules are refuted, each time on more instances.
_AGAIN = 2


def general_rules(candidate: CandidateEquation, laws: tuple[Rule, ...]) -> list[tuple[Rule, Evidence]]:
    """The general rules of a candidate, each checked on instances and against the laws.

    Where the check refutes one, which looks farther than learning does, conditions are learned from more instances.
    """
    rules: dict[str, tuple[Rule, Evidence]] = {}
    for again in range(_AGAIN):
        effort = replace(
            USUAL,
            first=USUAL.first << 2 * again,
            most=USUAL.most << 2 * again,
            confirm=USUAL.confirm << 2 * again,
            check=USUAL.check << 2 * again,
            grid=USUAL.grid << 2 * again,
        )
        stated = [_stated(rule, laws) for rule in generalise(candidate, effort, seed=again)]
        fresh = {
            rule.text: (rule, proof) for rule, proof in stated if rule.text not in {r.text for r, _ in rules.values()}
        }
        rules |= {rule.name: (rule, _evidence(rule, laws, proof)) for rule, proof in fresh.values()}
        if any(e.verdict == "proved" for _, e in rules.values()) or not fresh:
            break
    return list(rules.values())


def of_law(law: Rule, laws: tuple[Rule, ...]) -> tuple[Rule, Evidence]:
    """A law as a rule of its own, with its evidence."""
    rule = replace(law, origin="candidate")
    return rule, _evidence(rule, laws)


def _stated(rule: Rule, laws: tuple[Rule, ...]) -> tuple[Rule, Entailment | None]:
    """The rule, and its proof by laws if there is one; or the law that states the same, whose name and phase its
    declaration chose.
    """
    from eqsat.rewrites.proof.entail import with_conditions

    law = _same_law(rule, laws)
    proof: Entailment | None = None
    if law is None:
        rule, proof = with_conditions(rule, laws)
        law = _same_law(rule, laws)
    if law is not None:
        return replace(law, origin="candidate"), None
    # What was sought without its explanation is sought again with it where it was not found.
    return rule, proof if proof is not None and proof.verdict == "proved" else None


def _evidence(rule: Rule, laws: tuple[Rule, ...], proof: Entailment | None = None) -> Evidence:
    from eqsat.rewrites.proof.verify import verify_rule
    from eqsat.rewrites.rules.loader import shipped_evidence

    return verify_rule(rule, laws, known=shipped_evidence().get(rule.name), proof=proof)


def _same_law(rule: Rule, laws: tuple[Rule, ...]) -> Rule | None:
    """The first law that states the same as a rule; only laws of the same operators are written out for that."""
    form = _form(rule)
    return next((law for law in _by_operators(laws).get(rule.operators(), ()) if _form(law) == form), None)


@lru_cache(maxsize=4096)
def _form(rule: Rule) -> str:
    return canonical(RuleStatement.of(rule))


@lru_cache(maxsize=2)
def _by_operators(laws: tuple[Rule, ...]) -> dict[frozenset[str], list[Rule]]:
    """Laws by their operators, in order."""
    groups: dict[frozenset[str], list[Rule]] = {}
    for law in laws:
        groups.setdefault(law.operators(), []).append(law)
    return groups


def claim(candidate: CandidateEquation) -> Claim | None:
    """The candidate at its own shapes, from more work to less; None where the rules' syntax has no place for it."""
    directed = [(e, phase_of(e.left, e.right)) for e in equations(candidate)]
    phases = {phase for _, phase in directed}
    for equation, phase in sorted(directed, key=lambda pair: pair[1] not in SAVING):
        rule = equation.rule("candidate", "simplify")
        sides = both_sides(rule, Bindings(dict(equation.operands)))
        if sides is None:
            continue
        merges, associates = len(candidate.left) > 1, phases <= {"associate", None}
        left, right = map(tuple, sides)
        return Claim(candidate.name, left, right, merges, associates, phase in SAVING)
    return None


def phases(candidate: CandidateEquation) -> set[str | None]:
    """The phases of the rules that a candidate makes, this way round and the other."""
    return {phase_of(e.left, e.right) for e in equations(candidate)}


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
    rules: dict[str, Rule] = {}
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
            general = _rules(form, effort, seed) if form is not None else ()
            rules.update((rule.text, rule) for rule in general if rule.text not in rules)
            if general:
                break
    order = ("simplify", "fuse", "merge", "expand", "associate")
    return tuple(sorted(rules.values(), key=lambda r: order.index(r.phase)))


def _rules(equation: LiteralEquation, effort: GeneralisationEffort, seed: int) -> tuple[Rule, ...]:
    """The rules of the most general left side that needs few conditions; of all, the one that needs the least."""
    best: Found | None = None
    for template in templates(equation):
        if best is not None and best.cost <= template.cost + effort.plain:
            break
        enough = best.cost if best is not None else math.inf
        for candidate in RuleSearch(equation, template, effort, seed).found(enough):
            best = candidate if best is None or candidate.cost < best.cost else best
    if best is None:
        return ()
    return tuple(conditioned.rule for conditioned in best.rules)
