"""Rules read from right to left, for those who take them as equations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from eqsat.errors import RuleError
from eqsat.language.terms.pattern import App, Siblings
from eqsat.rewrites.rules.rule import Rule

#: What the name of a rule read from right to left ends in.
TURNED = "-turned"


@lru_cache(4096)
def turned(rule: Rule) -> Rule | None:
    """The rule with its sides exchanged; None where its right side cannot be a left side, or leaves a name unbound.

    It is no rule to rewrite with blindly: the rule says that its sides are equal where its own left side is well-typed.
    """
    if isinstance(rule.left, Siblings) or not all(isinstance(p, App) for p in rule.right):
        return None
    left, arrow, rest = rule.text.partition(" => ")
    right, word, conditions = rest.partition(" if ")
    try:
        return replace(
            rule,
            name=rule.name + TURNED,
            phase="expand",
            left=tuple(p for p in rule.right if isinstance(p, App)),
            right=rule.left,
            text=f"{right}{arrow}{left}{word}{conditions}",
            origin="candidate",
        )
    except RuleError:
        return None


def both_ways(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Rules as equations: each also from right to left, where that is a rule.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> [r.name for r in both_ways(parse_rules("law: relu(-(-x)) => relu(x)"))]
    ['law', 'law-turned']
    """
    return tuple(r for rule in rules for r in (rule, turned(rule)) if r is not None)
