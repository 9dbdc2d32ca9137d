"""Rules found by the factory as text: both sides and conditions, the phase and a name."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from eqsat.language.pattern import Expression, Left, Pattern
from eqsat.rewrites.factory.direction import name_of, phase_of
from eqsat.rewrites.factory.equation import left_text, text_of
from eqsat.rewrites.loader import shipped_rules
from eqsat.rewrites.parser import parse_rules
from eqsat.rewrites.rule import Rule


def write_rule(left: Left, right: tuple[Pattern, ...], conditions: Sequence[Expression]) -> Rule:
    """The rule of two sides in canonical text, with its phase and a name after its form."""
    phase = phase_of(left, right) or "associate"
    tail = " if " + ", ".join(c.text for c in conditions) if conditions else ""
    body = f"{left_text(left)} => {', '.join(map(text_of, right))}{tail}"
    (rule,) = parse_rules(f"%phase {phase}\n{name_of(left, right)}: {body}", "generated")
    taken = _shipped().get(rule.name)
    if taken is not None and taken != rule.text:
        digest = hashlib.sha256(rule.text.encode()).hexdigest()[:6]
        rule = replace(rule, name=f"{rule.name}-{digest}")
    return rule


@cache
def _shipped() -> dict[str, str]:
    """The texts of the shipped rules by name."""
    return {rule.name: rule.text for rule in shipped_rules()}
