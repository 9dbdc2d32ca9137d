"""Equations of theories as rules that are made for one use, each with its proof."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache

from eqsat.errors import RuleError
from eqsat.language.ops import OPS
from eqsat.language.terms import Attrs, Siblings
from eqsat.language.terms.pattern import Pattern
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule


def literal_fields(op: str, attrs: Attrs) -> list[str] | None:
    """The attributes of an operator as a term states them; None where one is no literal, such as a named dim, and of
    what is no operator, such as an input."""
    if op not in OPS:
        return None
    given = OPS[op].complete(attrs)
    if any(not _is_literal(value) for value in given.values()):
        return None
    return [f"{name}={value!r}" for name, value in given.items()]


def _is_literal(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, (bool, int, float, str))


def term_of(text: str, conditions: Sequence[str] = ()) -> tuple[Pattern, set[str]] | None:
    """A term as a pattern, and conditions as rules write them; None for a text that is no left side of a rule."""
    asked = f" if {', '.join(conditions)}" if conditions else ""
    try:
        (rule,) = parse_rules(f"%phase expand\nterm: {text} => {text}{asked}", "a term", origin="candidate")
    except RuleError:
        return None
    return None if isinstance(rule.left, Siblings) else (rule.left[0], {one.text for one in rule.conditions})


@lru_cache(4096)
def stated(kind: str, body: str, proves: Callable[[Rule], bool]) -> Rule | None:
    """The equation of a kind with a body, left => right if conditions; None where it is no rule, or is not proved.

    Equal blocks of a model ask for equal ones.
    """
    name = f"{kind}-{hashlib.blake2b(body.encode(), digest_size=4).hexdigest()}"
    try:
        (rule,) = parse_rules(f"%phase expand\n{name}: {body}", f"an equation of the kind {kind}", origin="identity")
    except RuleError:
        return None
    return rule if proves(rule) else None
