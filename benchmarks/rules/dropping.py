"""Rules where one of their conditions does not hold, which say what that condition is for.

A rule without a condition says what the rule says, and that the sides are equal where the condition does not hold: so
the second alone is to be refuted, or proved. Instances of it are all of what the condition keeps out, and often there
are none, as the other conditions, or the types of the left side, imply it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from eqsat.errors import EqsatError, ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.terms import Bindings, Expression
from eqsat.rewrites.conditions.expression import evaluate
from eqsat.rewrites.instances.extremes import replaced
from eqsat.rewrites.instances.instance import Sampler, evaluated, operands
from eqsat.rewrites.instances.mismatch import Mismatch
from eqsat.rewrites.proof.check import mismatch
from eqsat.rewrites.proof.scope import SizesProof
from eqsat.rewrites.proof.sizes import HIGHEST, NO_MATCH, QUESTIONS, followed, prove_paths
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import left_terms, typed_left

#: Instances of which some axes are made empty, and tries to draw each.
_EMPTIED, _TRIES = 12, 200


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


def empty_mismatch(mutant: Rule, denied: DeniedRule) -> Mismatch | None:
    """The mismatch of an instance without elements along some axes, which a condition keeps out; None without one.

    Proofs are of tensors that have elements: of a condition that keeps out others they say nothing.
    """
    sampler = Sampler.unnamed(mutant, 0)
    for _ in range(_EMPTIED):
        bindings = sampler.draw(_TRIES)
        for empty in _emptied(bindings) if bindings is not None else ():
            try:
                if typed_left(denied, empty) is None or denied.refused(empty) is not None:
                    continue
                evaluated(empty, Floats(wide=True), left_terms(denied, empty))
            except (EqsatError, ArithmeticError, IndexError, TypeError, ValueError):
                continue  # a left side, or a condition, that takes no such tensor: no graph has it
            found = mismatch(denied, empty)
            if found is not None:
                return found
    return None


def _emptied(bindings: Bindings) -> Iterator[Bindings]:
    """The instance with all dims of one size made empty, for each size, and with each dim made empty alone."""
    drawn = operands(bindings)
    places = [(number, axis, dim) for number, one in enumerate(drawn) for axis, dim in enumerate(one.type.static)]
    chosen = [{p[:2] for p in places if p[2] == size} for size in sorted({p[2] for p in places})]
    for empty in (*chosen, *({p[:2]} for p in places)):
        changed = {}
        for number, one in enumerate(drawn):
            dims = tuple(0 if (number, axis) in empty else dim for axis, dim in enumerate(one.type.static))
            if 0 in dims:
                array = np.zeros(dims, one.array.dtype)
                changed[id(one)] = replace(one, type=one.type.with_shape(dims), array=array)
        yield replaced(bindings, changed)
