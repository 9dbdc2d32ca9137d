"""What a condition of a rule is for: the verdict on the rule without it, and why."""

from __future__ import annotations

import ast
from dataclasses import replace

from benchmarks.rules.dropping import DeniedRule, dropped, empty_mismatch, prove_denied
from eqsat.language.terms import Expression
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.proof.check import Effort, check, size_mismatch
from eqsat.rewrites.proof.naturality.proof import is_natural
from eqsat.rewrites.proof.sizes import HIGHEST, NO_MATCH, prove_sizes
from eqsat.rewrites.proof.types import FLOATS, told_apart
from eqsat.rewrites.rules.evidence import sizes_proved
from eqsat.rewrites.rules.rule import Rule

#: What a condition is about, by the functions that it calls.
SUBJECTS = {
    "cost": frozenset({"constant", "static"}),
    "numbers": frozenset({"wide", "finite", "floating", "numeric", "representable"}),
}
#: Instances alone: those that are soon drawn, all that are drawn or solved for, and some with infinities and integers.
_SOON = Effort(numeric=24, extremes=6, turned=0, questions=0, symbolic=0, tries=200)
_LONG = Effort(questions=0, symbolic=0, tries=1000)
_EXTREME = Effort(numeric=32, extremes=32, turned=0, questions=0, symbolic=0, tries=500)
#: How often Z3 is asked for a proof where a condition does not hold, at first and at last.
_FEW, _MANY = 150, 1500
#: Why a condition does not matter to what is equal, or to what is of real numbers.
_KNOWN_BEFORE = "the same as the rule: what is known before a program runs changes no element"
_REALS = "the same as the rule over real numbers, and neither infinities and NaN nor integers were found to differ"
_WHERE_DENIED = "the sides are equal where it does not hold"
Verdict = tuple[str, str]


def subject(condition: Expression | None) -> str:
    """What a condition is about: cost, kinds of numbers, or what is equal."""
    names = set(_called(condition)) if condition is not None else set()
    return next((name for name, functions in SUBJECTS.items() if names and names <= functions), "equality")


def _called(condition: Expression) -> list[str]:
    """The functions that a condition calls."""
    nodes = ast.walk(condition.tree)
    return [n.func.id for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]


def verdict(rule: Rule, mutant: Rule) -> Verdict:
    """The verdict on a rule that lacks a condition, "refuted", "redundant" or "undecided", and why.

    The rule itself is taken for true: a condition is redundant where the rule without it says no more that is not.
    """
    condition = dropped(rule, mutant)
    if condition is None:
        return _without(mutant)
    if _says_only(condition, SUBJECTS["cost"]):
        return "redundant", _KNOWN_BEFORE
    if _is_of_one_number(mutant, condition):
        return _refuted(mutant, _EXTREME) or ("redundant", f"{_REALS}, of one element")
    denied = DeniedRule.of(mutant, condition)
    if _says_only(condition, SUBJECTS["numbers"]):
        return _refuted(mutant, _EXTREME) or _of_reals(mutant, condition, denied) or _without(mutant)
    return (
        _refuted(denied, _SOON)
        or _refuted_empty(mutant, denied)
        or _natural(mutant)
        or _proved(denied, _FEW)
        or _refuted(denied, _LONG)
        or _proved(denied, _MANY)
        or _without(mutant)
    )


def _of_reals(mutant: Rule, condition: Expression, denied: DeniedRule) -> Verdict | None:
    """The verdict on a rule that holds of more kinds of numbers, where it is of real ones as the rule is.

    All of these are finite. Proofs are of floats; of a rule that tells no types of floats apart, but by whether they
    are the same, they are of float32 and float64, all of which are wide.
    """
    alike = set(told_apart(mutant)) <= set(FLOATS[:2]) and "representable" not in _called(condition)
    if alike or _says_only(condition, frozenset({"finite"})):
        return "redundant", _REALS
    found = _proved(denied, _FEW)
    return found if found is None or found[0] == "refuted" else ("redundant", f"{_REALS}: {found[1]}")


def _is_of_one_number(mutant: Rule, condition: Expression) -> bool:
    """True of `is_uniform(c)` where the others ask for the number c, and leave it one element.

    The number is asked of constants alone, so that only numbers that are not finite are kept out.
    """
    match condition.tree:
        case ast.Call(func=ast.Name(id="is_uniform"), args=[ast.Name(id=name)]):
            text = f"size({name}) == 1"
            one = Expression(text, ast.parse(text, mode="eval").body)
            if f"number({name})" not in mutant.text:
                return False
            # Of more instances than the others let through: proofs know no number of an element.
            others = tuple(given for given in mutant.conditions if "number" not in _called(given))
            some = DeniedRule.of(replace(mutant, conditions=others), one)
            return prove_denied(some, _MANY)[1].open == NO_MATCH
    return False


def _says_only(condition: Expression, functions: frozenset[str]) -> bool:
    """True of a condition that is one of some functions of operands, or several of them together."""
    parts = conjuncts(condition.tree)
    return all(isinstance(p, ast.Call) and isinstance(p.func, ast.Name) and p.func.id in functions for p in parts)


def _refuted(rule: Rule, effort: Effort) -> Verdict | None:
    found = check(rule, effort)
    return ("refuted", found.detail) if found.verdict == "refuted" else None


def _refuted_empty(mutant: Rule, denied: DeniedRule) -> Verdict | None:
    found = empty_mismatch(mutant, denied)
    return ("refuted", str(found)) if found is not None else None


def _proved(denied: DeniedRule, questions: int) -> Verdict | None:
    """The verdict on what a condition keeps out, where that is refuted or proved.

    A proof up to a rank that ends on a path on which the sides may differ is none: there the condition may be needed.
    """
    rank, proof = prove_denied(denied, questions)
    refuting = size_mismatch(denied, proof)
    if refuting is not None:
        return "refuted", str(refuting)
    if rank < 0 or proof.failing:
        return None
    how = "the other conditions imply it" if proof.open == NO_MATCH else _WHERE_DENIED
    return "redundant", f"{how}: {sizes_proved(rank, False)}"


def _natural(mutant: Rule) -> Verdict | None:
    """The verdict on a rule that is proved for every shape at once."""
    return ("redundant", sizes_proved(HIGHEST, True)) if is_natural(mutant) else None


def _without(mutant: Rule) -> Verdict:
    """The verdict on the rule without the condition as on any other rule."""
    known = _natural(mutant) or _refuted(mutant, _LONG)
    if known is not None:
        return known
    sizes = prove_sizes(mutant, _MANY)
    refuting = size_mismatch(mutant, sizes)
    if refuting is not None:
        return "refuted", str(refuting)
    if sizes.failing or not sizes.is_proved:
        return "undecided", sizes.open
    return "redundant", sizes_proved(sizes.rank, sizes.every_rank)
