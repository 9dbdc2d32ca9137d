"""Discovered rules as text: both sides and conditions, the phase and a name."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from eqsat.language.terms.pattern import Expression, Left, Pattern
from eqsat.rewrites.discovery.equations.direction import name_of, phase_of
from eqsat.rewrites.discovery.equations.sides import left_written, written
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule


def write_rule(left: Left, right: tuple[Pattern, ...], conditions: Sequence[Expression]) -> Rule:
    """The rule of two sides in canonical text, with its phase and a name after its form."""
    phase = phase_of(left, right) or "associate"
    numbers = numbers_of(conditions)
    kept = [c.text for c in conditions if _number(c) is None]
    tail = " if " + ", ".join(kept) if kept else ""
    body = f"{left_written(left)} => {', '.join(map(written, right))}{tail}"
    for name, value in numbers.items():
        body = re.sub(rf"(?<![.\w'])\b{name}\b(?!\w|=[^=]|')", str(value), body)
    (rule,) = parse_rules(f"%phase {phase}\n{name_of(left, right)}: {body}", "generated", origin="candidate")
    taken = _shipped().get(rule.name)
    if taken is not None and taken != rule.text:
        digest = hashlib.sha256(rule.text.encode()).hexdigest()[:6]
        rule = replace(rule, name=f"{rule.name}-{digest}")
    return rule


def numbers_of(conditions: Sequence[Expression]) -> dict[str, int]:
    """The attributes that conditions fix to a number: in a rule the number stands in their place."""
    return dict(found for c in conditions if (found := _number(c)) is not None)


def _number(condition: Expression) -> tuple[str, int] | None:
    tree = condition.tree
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or not isinstance(tree.ops[0], ast.Eq):
        return None
    left, right = tree.left, tree.comparators[0]
    named = isinstance(left, ast.Name) and isinstance(right, ast.Constant) and isinstance(right.value, int)
    return (left.id, right.value) if named else None  # type: ignore[attr-defined]


@cache
def _shipped() -> dict[str, str]:
    """The texts of the shipped rules by name."""
    return {rule.name: rule.text for rule in shipped_rules()}
