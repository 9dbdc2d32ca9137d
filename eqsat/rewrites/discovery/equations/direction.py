"""The direction in which an equation becomes a rule, and the phase, name and text of that rule."""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from eqsat.language.ops import spec
from eqsat.language.terms.pattern import App, Expression, Left, Pattern, Siblings, Spread, Var, roots_of, spread_roots
from eqsat.rewrites.discovery.equations.equation import variables
from eqsat.rewrites.discovery.equations.sides import left_written, parts, written
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule, applications

#: Number of elements that a sequence is taken to have where operators are counted.
_ELEMENTS = 3


def phase_of(left: Left, right: tuple[Pattern, ...]) -> str | None:
    """The phase of a rule by its form; None where the rule only grows terms and its reverse shrinks them.

    It does where it puts the whole left side inside an operator, brings in constants along with more operators, or
    movement there and back where there was none; and where it turns constants into others, unless one operator goes.

    * simplify: fewer operators, and all that is new is at most the root, an operator that the left side has: the
      e-graph gains one node at most.
    * fuse: fewer operators, because one computing operator takes another in.
    * merge: several outputs become one computation.
    * associate: more operators that compute, which repeats work, or movement where there was none; or operators of one
      commutative kind in another order, which multiplies the graphs by the number of orders. Off unless asked for.
    * expand: the rest. Movement may be repeated: it meets other movement and cancels.
    """
    roots = roots_of(left)
    if isinstance(left, Siblings) or len(roots) > 1:
        return "merge"
    ours, theirs = _count(left), _counted(right)
    target = right[0]
    if isinstance(target, App) and _within(roots[0], target):
        return None
    if isinstance(target, Var) or _within(target, roots[0]):
        return "simplify"
    if not any(True for _ in variables(roots[0])):
        return "simplify" if sum(theirs) < sum(ours) == 1 else None
    if sum(theirs) > sum(ours) and _constants(target) - _constants(roots[0]):
        return None
    if theirs.computing == ours.computing and theirs.moving > 1 and ours.moving == 0:
        return None
    if theirs.computing > ours.computing or (theirs.computing == ours.computing and ours.moving == 0 < theirs.moving):
        return "associate"
    if sum(theirs) < sum(ours) and _only_root_is_new(target, roots[0]):
        if _computing(roots[0]) - _computing(target):
            return "fuse"
        if target.op in {a.op for a in applications(roots[0])}:
            return "simplify"
    if sum(theirs) > sum(ours) and _only_root_is_new(roots[0], target) and theirs.computing == ours.computing:
        return None
    return "associate" if _reorders(roots[0], target) else "expand"


class _Count(NamedTuple):
    """The number of operators that compute, and of those that only move elements."""

    computing: int
    moving: int


def _count(left: Left) -> _Count:
    return _counted(spread_roots(left))


def _counted(patterns: Iterable[Pattern | Spread]) -> _Count:
    """Operators that work, constants apart, equal ones once; those over sequences for each element."""
    counts: dict[tuple[bool, str], int] = {}

    def walk(pattern: Pattern | Spread, times: int) -> None:
        if isinstance(pattern, Spread):
            walk(pattern.item, _ELEMENTS if pattern.over else times)
        elif isinstance(pattern, App):
            if pattern.operands:
                counts[spec(pattern.op).movement, written(pattern)] = times
            for operand in pattern.operands:
                walk(operand, times)

    for pattern in patterns:
        walk(pattern, 1)
    return _Count(*(sum(n for (moves, _), n in counts.items() if moves is kind) for kind in (False, True)))


def _only_root_is_new(app: App, whole: App) -> bool:
    """Return whether the operands of an operator are all parts of another pattern."""
    known = {written(p) for p in parts(whole)}
    return all(written(o) in known for o in app.operands)


def _within(part: Pattern, whole: App) -> bool:
    return written(part) in {written(p) for p in parts(whole) if p is not part}


def _computing(pattern: Pattern) -> set[str]:
    return {a.op for a in applications(pattern) if a.operands and not spec(a.op).movement}


def _constants(pattern: Pattern) -> set[str]:
    return {a.op for a in applications(pattern) if not a.operands}


def _reorders(left: App, right: Pattern) -> bool:
    """Two or more operators of one commutative kind over the same variables on both sides."""
    names = [a.op for side in (left, right) for a in applications(side)]
    alone = len(set(names)) == 1 and len(names) > 2 and spec(names[0]).commutative
    return alone and Counter(variables(left)) == Counter(variables(right))


def name_of(left: Left, right: tuple[Pattern, ...]) -> str:
    """A readable name after the form: ``matmul-of-transposes``, ``convs-merge-ws``, ``add-of-muls-to-mul-of-add``."""
    if isinstance(left, Siblings):
        inner = right[0].operands[0] if isinstance(right[0], App) else right[0]
        kinds = dict.fromkeys(a.op for a in applications(inner) if a.op not in ("split", "concat"))
        joined = "-".join(_plain(op) for op in kinds if op != left.item.op)
        sequences = "-".join(s for _, s in left.over)
        return "-".join(p for p in (_many(_plain(left.item.op)), "merge", joined, sequences) if p)
    if len(left) > 1:
        return "-and-".join(_form(app) for app in left) + "-merge"
    ours, theirs = _form(left[0]), _form(right[0])
    if isinstance(right[0], Var):
        return f"{ours}-gone"
    # The way in which an operator moves through another is clear from one side; other forms need both.
    swapped = theirs.split("-of-")[::-1] == [word.removesuffix("s") for word in ours.split("-of-")]
    return ours if swapped and "-of-" in ours else f"{ours}-to-{theirs}"


def _form(pattern: Pattern | Spread) -> str:
    """An operator of its operands' operators, of several equal ones in the plural."""
    if isinstance(pattern, Spread):
        return _form(pattern.item)
    if isinstance(pattern, Var):
        return ""
    inner: list[str] = []
    for operand in pattern.operands:
        form = _form(operand)
        many = isinstance(operand, Spread)
        if form and many:
            inner.append(_many(form))
        elif form and form in inner:
            inner[inner.index(form)] = _many(form)
        elif form and _many(form) not in inner:
            inner.append(form)
    return _plain(pattern.op) + ("-of-" + "-and-".join(inner) if inner else "")


def _plain(op: str) -> str:
    return op.strip("_").replace("_", "-")


def _many(form: str) -> str:
    head, of, rest = form.partition("-of-")
    return head + ("es" if head.endswith(("s", "x", "h")) else "s") + of + rest


def write_rule(left: Left, right: tuple[Pattern, ...], conditions: Sequence[Expression]) -> Rule:
    """The rule of two sides in canonical text, with its phase and a name after its form."""
    phase = phase_of(left, right) or "associate"
    numbers = numbers_of(conditions)
    texts = [c.text for c in conditions if _number(c) is None]
    tail = " if " + ", ".join(texts) if texts else ""
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
    return dict(number for c in conditions if (number := _number(c)) is not None)


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
