"""Rules where one of their conditions does not hold, which say what that condition is for.

A rule without a condition says what the rule says, and that the sides are equal where the condition does not hold: so
the second alone is to be refuted, or proved. Instances of it are all of what the condition keeps out, and often there
are none, as the other conditions, or the types of the left side, imply it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, fields

from eqsat.errors import ShapeError
from eqsat.language.terms import Bindings, Expression
from eqsat.rewrites.conditions.expression import evaluate
from eqsat.rewrites.proof.scope import SizesProof
from eqsat.rewrites.proof.sizes import HIGHEST, NO_MATCH, QUESTIONS, followed, prove_paths
from eqsat.rewrites.rules.rule import Rule


@dataclass(frozen=True, eq=False)
class DeniedRule(Rule):
    """A rule of which the last condition denies one: it holds where that is false, or has no value."""

    @classmethod
    def of(cls, mutant: Rule, condition: Expression) -> DeniedRule:
        """A rule that lacks a condition, where this does not hold."""
        text = f"not ({condition.text})"
        tree = ast.fix_missing_locations(ast.UnaryOp(ast.Not(), condition.tree))
        known = {f.name: getattr(mutant, f.name) for f in fields(mutant) if f.init}
        known["conditions"] = (*mutant.conditions, Expression(text, tree))
        known["text"] = f"{mutant.text}{', ' if mutant.conditions else ' if '}{text}"
        return cls(**known)

    def holds_undefined(self, condition: Expression) -> bool:
        """True of the denied condition."""
        return condition == self.conditions[-1]

    def refused_by(self, condition: Expression, bindings: Bindings) -> str | None:
        """Why a condition does not hold under these bindings; None where it does."""
        if not self.holds_undefined(condition):
            return super().refused_by(condition, bindings)
        try:
            holds = evaluate(condition, bindings)
        except ShapeError:
            return None
        return None if holds else f"not {condition.text}"


def dropped(rule: Rule, mutant: Rule) -> Expression | None:
    """The one condition of a rule that a mutant lacks; None where it lacks another number of them."""
    kept = {ast.dump(one.tree) for one in mutant.conditions}
    lacking = [one for one in rule.conditions if ast.dump(one.tree) not in kept]
    return lacking[0] if len(lacking) == 1 and len(rule.conditions) == len(mutant.conditions) + 1 else None


def prove_denied(denied: DeniedRule, questions: int = QUESTIONS) -> tuple[int, SizesProof]:
    """The rank up to which sides are equal, for every size, where a condition does not hold, and the proof of it.

    Where no path matches, at no rank up to the highest, the condition is implied by the others. Nothing is said of
    every rank: that a rank suffices is known of rules whose conditions all have a value.
    """
    opaque = followed(denied)
    best = SizesProof(-1, 0)
    for some in dict.fromkeys((opaque, frozenset[str]())):
        found = prove_paths(denied, questions, opaque=some)
        rank = HIGHEST if found.open == NO_MATCH else found.rank
        if rank >= HIGHEST:
            return rank, found
        is_further = found.rank > best.rank or (found.rank == best.rank and found.failing)
        best = found if is_further or not best.open else best
    return best.rank, best
