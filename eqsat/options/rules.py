"""The rules that a user asks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from eqsat.errors import UsageError
from eqsat.options.options import RulesArgument
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.rules.rule import Rule, Trust
from eqsat.rewrites.rules.ruleset import RuleSet


def rules_of(given: RulesArgument, trust: Trust = "proved") -> RuleSet:
    """The library, the library with files or texts of rules besides, or exactly the rules given.

    Those of the library are as good as `trust` asks. RuleError for one in a file or text that is trusted less, and if
    the sides of a rule that somebody made, and that was not shipped, differ in types.
    """
    if given is None:
        return load_rules(trust=trust)
    if isinstance(given, str | Path):
        return load_rules([given], trust)
    wrong = [r for r in given if not isinstance(r, Rule | str | Path)] if isinstance(given, Sequence) else [given]
    if wrong:
        raise UsageError(f"rules = {given!r}", expected="a file or a text of rules, or a list of them or of rules")
    exact = tuple(r for r in given if isinstance(r, Rule))
    if own := [rule for rule in exact if rule.origin == "given"]:
        from eqsat.rewrites.instances.mismatch import check_types

        for rule in own:
            check_types(rule)
    more = [r for r in given if not isinstance(r, Rule)]
    return RuleSet((*RuleSet.of(exact).sources, *load_rules(more, trust).sources)) if more else RuleSet.of(exact)
