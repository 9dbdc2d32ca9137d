"""Ranks that suffice where all elements are one number."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from eqsat.language.ops import spec
from eqsat.language.terms import Expression
from eqsat.language.terms.pattern import ABSENT, App, Pattern, Spread, Var
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.rules.rule import SPLICE, Rule, applications

#: Operators whose elements are all elements of their operands.
_MOVEMENTS = frozenset({"transpose", "reshape", "expand", "slice", "tile", "concat"})
#: Axes of a matrix, at which types of results are looked at.
_MATRIX = 2
_ZERO = "0.0"
#: Conditions on elements, and on their types, whatever the rank is.
_ON_ELEMENTS = frozenset({"finite", "static", "wide", "floating", "numeric", "constant", "is_zero"})
#: Functions of sizes and ranks alone.
_OF_SIZES = frozenset({"rank", "dim", "shape", "size", "len"})


def bound_of_fill(rule: Rule) -> int | None:
    """The rank that suffices for a rule whose right side fills the very shape of its left side with one number.

    The shapes are equal at every rank then. So are the elements, as all that the left side moves, or is linear in, has
    this number, or is zero. None for any other rule.
    """
    if rule.sides is None or rule.attr_groups:
        return None
    left, right = rule.sides
    if not isinstance(left, App) or not isinstance(right, App) or right.op != "fill" or right.record:
        return None
    shape, value = right.fields.get("shape"), right.fields.get("value")
    if not isinstance(shape, Expression) or not isinstance(value, Expression) or SPLICE in right.fields:
        return None
    tree = shape.tree
    is_same = isinstance(tree, ast.Call) and ast.unparse(tree.func) == "shape" and len(tree.args) == 1
    if not is_same or not _is_pattern(tree.args[0], left):  # type: ignore[attr-defined]
        return None
    parts = [part for condition in rule.conditions for part in conjuncts(condition.tree)]
    dtype = right.fields.get("dtype")
    types = frozenset(name for app in applications(left) for name in _types_in(app))
    if not (
        isinstance(dtype, Expression)
        and _is_of_no_rank(dtype.tree)
        and all(_leaves_types(part, types) for part in parts)
    ):
        return None
    zeros = {ast.unparse(part.args[0]) for part in parts if isinstance(part, ast.Call) and _called(part) == "is_zero"}
    return _MATRIX if _number(left, zeros) == ast.unparse(value.tree) else None


def _number(pattern: Pattern | Spread, zeros: set[str]) -> str | None:
    """The number that all elements of a pattern are, as it is written; None where that is not known."""
    if isinstance(pattern, Spread):
        return None if pattern.over else _number(pattern.item, zeros)
    if isinstance(pattern, Var):
        return _ZERO if pattern.name in zeros else None
    if pattern == ABSENT:
        return None
    if pattern.op == "fill":
        value = pattern.fields.get("value")
        return ast.unparse(value.tree) if isinstance(value, Expression) else None
    numbers = [_number(operand, zeros) for operand in pattern.operands]
    if pattern.op in _MOVEMENTS:
        return numbers[0] if len(set(numbers)) == 1 else None
    declared = spec(pattern.op)
    if not declared.is_shipped or len(numbers) != declared.min_operands:
        return None
    is_zero = any(numbers[place] == _ZERO for place in declared.multilinear if place < len(numbers))
    return _ZERO if is_zero else None


def _is_of_no_rank(tree: ast.expr) -> bool:
    """True of an element type that is bound, written, or that of an operand."""
    if isinstance(tree, ast.Call):
        return _called(tree) == "dtype" and len(tree.args) == 1 and isinstance(tree.args[0], ast.Name)
    return isinstance(tree, ast.Name | ast.Constant)


def _leaves_types(tree: ast.expr, types: frozenset[str]) -> bool:
    """True of a condition that asks for no other element types at other ranks: it compares no names of `types`."""
    if isinstance(tree, ast.Call):
        # Of sizes alone that are known, whatever it is asked of.
        is_of_names = all(isinstance(one, ast.Name | ast.Constant) for one in tree.args)
        return _called(tree) == "static" or (_called(tree) in _ON_ELEMENTS and is_of_names)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    called = {_called(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return isinstance(tree, ast.Compare) and not names & types and called <= _OF_SIZES


def _types_in(app: App) -> Iterator[str]:
    """The names that attributes of element types, and records, are bound to."""
    fields = [app.fields.get(name) for name in ("dtype", "to")]
    yield from (field.tree.id for field in fields if isinstance(field, Expression) and isinstance(field.tree, ast.Name))
    if app.record is not None and not {"dtype", "to"}.isdisjoint(spec(app.op).attrs):
        yield app.record


def _called(tree: ast.Call) -> str:
    return tree.func.id if isinstance(tree.func, ast.Name) else ""


def _is_pattern(tree: ast.expr, pattern: Pattern | Spread) -> bool:
    """True if an expression builds just what a pattern matches."""
    if isinstance(pattern, Var):
        return isinstance(tree, ast.Name) and tree.id == pattern.name
    if not isinstance(pattern, App) or not isinstance(tree, ast.Call) or _called(tree) != pattern.op:
        return False
    if len(tree.args) != len(pattern.operands) or not all(map(_is_pattern, tree.args, pattern.operands)):
        return False
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in tree.keywords}
    wanted: dict[str | None, str] = {}
    for name, field in pattern.fields.items():
        if not isinstance(field, Expression):
            return False
        wanted[name] = ast.unparse(field.tree)
    if pattern.record is not None:
        wanted[None] = pattern.record
    return given == wanted
