"""Values of attributes that conditions list: of all others, a rule has no match."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.rules.rule import Rule


@cache
def stated_values(rule: Rule, record: str) -> Mapping[str, Sequence[Any]]:
    """The values of attributes of a record, by their names, for which all conditions may hold: texts, tuples, None.

    Numbers are left out, as what is equal to one may be of another type, and so are parts of conditions.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("r: gru(x, w, r, **a) => x if a.clip is None, a.layout == 0", origin="candidate")
    >>> stated_values(rule, "a")
    {'clip': (None,)}
    """
    found: dict[str, Sequence[Any]] = {}
    for condition in rule.conditions:
        for part in conjuncts(condition.tree):
            if not (isinstance(part, ast.Compare) and len(part.ops) == 1 and _is_of(part.left, record)):
                continue
            values = _values(part.ops[0], part.comparators[0])
            if values and all(map(_is_plain, values)):
                found.setdefault(part.left.attr, values)  # type: ignore[attr-defined]
    return found


def _is_of(tree: ast.expr, record: str) -> bool:
    return isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name) and tree.value.id == record


def _values(operation: ast.cmpop, tree: ast.expr) -> tuple[Any, ...]:
    try:
        stated = ast.literal_eval(tree)
    except ValueError:
        return ()
    if isinstance(operation, ast.In):
        return tuple(dict.fromkeys(stated)) if isinstance(stated, tuple) else ()
    if isinstance(operation, ast.Eq) or (isinstance(operation, ast.Is) and stated is None):
        return (stated,)
    return ()


def _is_plain(value: Any) -> bool:
    """True of what is equal to nothing but itself."""
    return value is None or isinstance(value, str) or (isinstance(value, tuple) and all(map(_is_plain, value)))
