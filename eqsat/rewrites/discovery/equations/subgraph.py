"""Common subgraphs of the two sides of an equation, which a more general equation leaves out.

A subterm that holds all occurrences of its variables may be any tensor, and an operator that both sides end in says
nothing of what it is applied to. The equation without them is stronger, and not always true: it counts only once it is
verified again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from eqsat.errors import RuleError
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import App, Expression, Pattern, Siblings, Spread, Var
from eqsat.rewrites.conditions.expression import compiled
from eqsat.rewrites.conditions.syntax import with_name
from eqsat.rewrites.discovery.equations.canonical import canonical
from eqsat.rewrites.discovery.equations.sides import (
    Part,
    RuleStatement,
    Substitution,
    as_expression,
    is_commutative,
    names_of,
    parts,
    read_with,
    replaced,
    settings,
)
from eqsat.rewrites.rules.rule import Rule

#: Conditions that hold of an operator's result where they hold of an operand, but for finiteness, which is checked.
_INHERITED = frozenset({"wide", "floating", "dtype", "finite"})


def lifted(equation: RuleStatement) -> Iterator[RuleStatement]:
    """The equations that leave out one common subgraph, each once, those with fewer conditions first."""
    seen = {canonical(equation)}
    for stronger in (*common_outputs(equation), *common_inputs(equation)):
        key = canonical(stronger)
        if key not in seen:
            seen.add(key)
            yield stronger


def common_inputs(equation: RuleStatement) -> Iterator[RuleStatement]:
    """The equation with a fresh variable for a subterm outside of which none of its variables occurs.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("r: relu(x) @ y + relu(x) @ z => relu(x) @ (y + z)", origin="candidate")
    >>> [e.text for e in common_inputs(RuleStatement.of(rule))]
    ['t @ y + t @ z => t @ (y + z)']
    """
    sides = (*equation.roots, *equation.right)
    tried: list[Part] = []
    for root in equation.roots:
        for part in parts(root):
            if not isinstance(part, App) or part == root or part in tried:
                continue
            tried.append(part)
            if any(isinstance(p, Var) for p in parts(part)):
                yield from _without(equation, part, sides)


def _without(equation: RuleStatement, part: App, sides: tuple[Pattern, ...]) -> Iterator[RuleStatement]:
    taken = {n for p in sides for n in names_of(p)}
    fresh = Var(next(n for n in _fresh() if n not in taken))
    inner = names_of(part)
    left = tuple(p for q in equation.roots if isinstance(p := replaced(q, part, fresh), App))
    right = tuple(p for q in equation.right if not isinstance(p := replaced(q, part, fresh), Spread))
    if any(inner & names_of(p) for p in (*left, *right)):
        return
    for conditions in _conditions(equation, part, inner, fresh):
        stronger = _made(equation, left, right, conditions)
        if stronger is not None:
            yield stronger


def _conditions(equation: RuleStatement, part: App, inner: set[str], fresh: Var) -> Iterator[tuple[Expression, ...]]:
    """The conditions that read the subterm's variables: left out, or asked of the fresh one."""
    by: Substitution = dict.fromkeys(inner, fresh)
    untouched: list[Expression] = []
    asked: list[Expression] = []
    declared = OPS.get(part.op)
    keeps_shape = declared is not None and declared.pointwise and [type(o) for o in part.operands] == [Var]
    for condition in equation.conditions:
        outer = _put(condition, part, fresh)
        if not inner & set(compiled(outer).names):
            untouched.append(outer)
            asked.append(outer)
        elif keeps_shape or set(compiled(outer).called) <= _INHERITED:
            asked.append(read_with(outer, by))
    yield tuple(dict.fromkeys(untouched))
    if len(asked) > len(untouched):
        yield tuple(dict.fromkeys(asked))


def _put(condition: Expression, part: App, fresh: Var) -> Expression:
    """The condition with the fresh variable for the subterm itself, as in ``shape(matmul(x, w))``."""
    if any(isinstance(p, Spread) for p in parts(part)):
        return condition
    wanted = ast.unparse(as_expression(part).tree)

    if wanted not in condition.text:
        return condition
    tree = with_name(ast.parse(condition.text, mode="eval").body, wanted, fresh.name)
    return Expression(ast.unparse(tree), tree)


def common_outputs(equation: RuleStatement) -> Iterator[RuleStatement]:
    """The equation without an output that both sides have, or without the operator that one ends in on both sides.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("r: relu(x + y) @ w => relu(y + x) @ w")
    >>> [e.text for e in common_outputs(RuleStatement.of(rule))]
    ['relu(x + y) => relu(y + x)']
    """
    if isinstance(equation.left, Siblings) or len(equation.left) != len(equation.right):
        return
    for index, (left, right) in enumerate(zip(equation.left, equation.right, strict=True)):
        others = equation.left[:index] + equation.left[index + 1 :]
        rest = equation.right[:index] + equation.right[index + 1 :]
        if left == right:
            if others:
                yield from _stripped(equation, others, rest)
            continue
        for inner, outer in _operand_pairs(left, right):
            if not isinstance(inner, App) and isinstance(outer, App) and not others:
                inner, outer = outer, inner
            if isinstance(inner, App):
                place = (*others[:index], inner, *others[index:])
                yield from _stripped(equation, place, (*rest[:index], outer, *rest[index:]))


def _stripped(equation: RuleStatement, left: tuple[App, ...], right: tuple[Pattern, ...]) -> Iterator[RuleStatement]:
    """The equation of these sides, with the conditions on the variables left in them."""
    bound = {n for p in left for n in names_of(p)}
    conditions = tuple(c for c in equation.conditions if set(compiled(c).names) <= bound)
    for asked in dict.fromkeys(((), conditions)):
        stronger = _made(equation, left, right, asked)
        if stronger is not None:
            yield stronger


def _operand_pairs(left: Pattern, right: Pattern) -> Iterator[tuple[Pattern, Pattern]]:
    """The operands in which two applications of one operator differ, where it is one."""
    if not isinstance(left, App) or not isinstance(right, App):
        return
    same = (left.op, left.record, settings(left)) == (right.op, right.record, settings(right))
    if not same or len(left.operands) != len(right.operands):
        return
    orders = [right.operands, right.operands[::-1]] if is_commutative(left) else [right.operands]
    for operands in orders:
        differ = [(a, b) for a, b in zip(left.operands, operands, strict=True) if a != b]
        if len(differ) == 1:
            a, b = differ[0]
            if isinstance(a, Spread) and isinstance(b, Spread) and a.over == b.over and a.window == b.window is None:
                a, b = a.item, b.item
            if not isinstance(a, Spread) and not isinstance(b, Spread):
                yield a, b


def _made(
    equation: RuleStatement, left: tuple[App, ...], right: tuple[Pattern, ...], conditions: tuple[Expression, ...]
) -> RuleStatement | None:
    """The equation of these sides, None where it is not well formed as a rule."""
    side = replace(equation.left, item=left[0]) if isinstance(equation.left, Siblings) else left
    statement = RuleStatement(side, right, conditions)
    try:
        Rule("made", "simplify", side, right, conditions, origin="candidate")
    except RuleError:
        return None
    return statement


def _fresh() -> Iterator[str]:
    yield "t"
    yield from (f"t{i}" for i in count(2))
