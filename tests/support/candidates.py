"""Rules of tests that nobody has yet: candidates, which proofs are asked about."""

from __future__ import annotations

from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule


def parsed(text: str) -> Rule:
    """The candidate of a text without a name."""
    (rule,) = parse_rules(f"asked: {text}", origin="candidate")
    return rule
