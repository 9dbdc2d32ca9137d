"""Rules that say of each axis by itself what they say, so that their proof for vectors is one for every rank.

Both sides then take, at an index, the elements whose places along each axis depend on that axis alone, or the one
number that fills in where some axis says so. Which it is depends on sizes and attributes, not on elements: where the
sides are equal for vectors of whatever elements, they take the same place along each axis, and so the same element.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from eqsat.language.ops import spec
from eqsat.language.terms.pattern import App, Expression, Pattern, Siblings, Spread, Var
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.proof.axes.claims import FILLER, works_along_axes
from eqsat.rewrites.rules.rule import SPLICE, Rule, applications

#: Functions of records, pads and shapes whose values along an axis are those of what they are given along that axis,
#: and conditions that hold of each axis where they hold of all. That is tested on samples.
AXIS_WISE = frozenset({"after", "inside", "added"})
OF_EACH_AXIS = frozenset({"forward", "static", "floating", "wide", "numeric"})
#: What is written for one number, text or name.
_SINGLE = (ast.Constant, ast.Name)
#: What is made of nothing but a shape and a number.
_FILL = "fill"


def works_axis_by_axis(rule: Rule) -> bool:
    """True if a rule says of each axis by itself what it says, so that a proof for vectors suffices."""
    if isinstance(rule.left, Siblings) or len(rule.roots) != 1 or rule.tensor_groups or rule.attr_groups:
        return False
    if len(rule.right) != 1 or not all(_is_chain(root) for root in (*rule.roots, *rule.right)):
        return False
    apps = [*applications(rule.roots[0]), *applications(rule.right[0])]
    if not any(app.op != _FILL for app in apps) or not all(_binds_by_axis(app) for app in applications(rule.roots[0])):
        return False
    if len(set(_fillers(apps))) > 1 or len(set(_leaves(rule))) > 1:
        return False
    names = set(_names_by_axis(rule))
    return all(_is_by_axis(app, names) for app in applications(rule.right[0])) and all(
        _holds_of_each_axis(part, names) for condition in rule.conditions for part in conjuncts(condition.tree)
    )


def _is_chain(pattern: Pattern | Spread) -> bool:
    """True of operators along axes, one of the other's result, down to an operand or a fill."""
    while isinstance(pattern, App):
        if pattern.op == _FILL and not pattern.operands:
            return True
        if len(pattern.operands) != 1 or not works_along_axes(spec(pattern.op)):
            return False
        (pattern,) = pattern.operands
    return isinstance(pattern, Var)


def _leaves(rule: Rule) -> Iterator[tuple[str, ...]]:
    """The operand that each side is made of, or the number and the element type that it is filled with."""
    for pattern in (*rule.roots, *rule.right):
        while isinstance(pattern, App) and pattern.operands:
            pattern = pattern.operands[0]  # type: ignore[assignment]
        if isinstance(pattern, App):
            yield tuple(_written(pattern, name) for name in (FILLER, "dtype"))
        elif isinstance(pattern, Var):
            yield (pattern.name,)


def _fillers(apps: list[App]) -> Iterator[str]:
    """The numbers that operators of a rule fill in, as they are written."""
    return (_written(app, FILLER) for app in apps if app.op != _FILL and FILLER in spec(app.op).attrs)


def _written(app: App, name: str) -> str:
    """An attribute as a rule writes it; that of a record by the record's name."""
    if name in app.fields:
        field: Any = app.fields[name]
        return str(field.text if isinstance(field, Expression) else field)
    return f"{name} of {app.record}" if app.record is not None else repr(spec(app.op).attrs[name])


def _binds_by_axis(app: App) -> bool:
    """True if each attribute of a left side is bound by one name, or is a number or a text that is written."""
    fields: list[Any] = list(app.fields.values())
    is_named = all(isinstance(e, Expression) and isinstance(e.tree, _SINGLE) for e in fields)
    return is_named and not ("axes" in spec(app.op).attrs and fields)


def _names_by_axis(rule: Rule) -> Iterator[str]:
    """The names of operands, records, and attributes with values for each axis."""
    yield from rule.tensors
    for app in applications(rule.roots[0]):
        if app.record is not None:
            yield app.record
        for name, field in app.fields.items():
            if isinstance(spec(app.op).attrs.get(name), tuple) or name in ("pads", "shape"):
                yield from (n.id for n in ast.walk(field.tree) if isinstance(n, ast.Name))


def _is_by_axis(app: App, names: set[str]) -> bool:
    """True if the attributes of the right side are, along each axis, made of what the left side has along that axis."""
    for name, field in app.fields.items():
        is_number = name not in (SPLICE, "pads", "shape")
        trees = isinstance(field.tree, _SINGLE) if is_number else _is_axis_wise(field.tree, names)
        if not trees or (is_number and "axes" in spec(app.op).attrs):
            return False
    return True


def _is_axis_wise(tree: ast.expr, names: set[str]) -> bool:
    """True of an expression whose value along an axis is made of what names have along that axis."""
    if isinstance(tree, ast.Name):
        return tree.id in names
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        return False
    called = tree.func.id
    if called == "shape":
        return len(tree.args) == 1 and not tree.keywords and _is_made_along_axes(tree.args[0], names)
    return called in AXIS_WISE and not tree.keywords and all(_is_axis_wise(one, names) for one in tree.args)


def _is_made_along_axes(tree: ast.expr, names: set[str]) -> bool:
    """True of an operand, and of what operators along axes make of one."""
    if isinstance(tree, ast.Name):
        return tree.id in names
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or len(tree.args) > 1:
        return False
    made_of_shape = tree.func.id == _FILL and not tree.args
    if not made_of_shape and not (tree.args and works_along_axes(spec(tree.func.id))):
        return False
    return all(_is_made_along_axes(one, names) for one in tree.args) and all(
        _is_axis_wise(one.value, names) if one.arg in (None, "pads", "shape") else isinstance(one.value, _SINGLE)
        for one in tree.keywords
    )


def _holds_of_each_axis(tree: ast.expr, names: set[str]) -> bool:
    """True of a condition that holds along each axis by itself where it holds along all."""
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return tree.func.id in OF_EACH_AXIS and not tree.keywords and all(_is_axis_wise(a, names) for a in tree.args)
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        return False
    left, operation, right = tree.left, tree.ops[0], tree.comparators[0]
    if isinstance(operation, ast.Eq):
        return _is_axis_wise(left, names) and _is_axis_wise(right, names)
    bounds = {"min": ast.Gt | ast.GtE, "max": ast.Lt | ast.LtE}
    return (
        isinstance(right, ast.Constant)
        and isinstance(left, ast.Call)
        and isinstance(left.func, ast.Name)
        and left.func.id in bounds
        and isinstance(operation, bounds[left.func.id])
        and len(left.args) == 1
        and not left.keywords
        and _is_axis_wise(left.args[0], names)
    )
