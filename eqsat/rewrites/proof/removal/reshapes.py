"""Ranks that suffice for an operator along some axes beside a reshape that keeps these."""

from __future__ import annotations

import ast

from eqsat.language.ops import spec
from eqsat.language.terms import Expression
from eqsat.language.terms.pattern import App, Var
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.rules.rule import Rule

#: Conditions of elements and types, which hold of parts of a tensor where they hold of the whole.
_OF_PARTS = ("wide", "finite", "floating", "constant", "static")
#: The axes that stay: the one that is named, or one of those before and behind another in which the sides may differ.
_OF_ONE, _OF_SEVERAL = 2, 3


def bound_beside_reshape(rule: Rule) -> int | None:
    """The rank that suffices for a rule that an operator along axes and a reshape that keeps these change places.

    All other axes come in blocks of as many elements in both shapes, which a reshape takes each by itself: one place is
    taken of a block, or all its axes are taken for one. Axes that are summed over are taken for one where nothing is
    left between them. None for any other rule.
    """
    if rule.sides is None or rule.tensors != {"x"} or rule.tensor_groups or rule.attr_groups:
        return None
    left, right = rule.sides
    if not isinstance(left, App) or not isinstance(right, App):
        return None
    is_outside = right.op == "reshape"
    outer, inner = (left, right) if is_outside else (right, left)
    # One side has the operator around the reshape, the other the reshape around the operator.
    if inner.op != "reshape" or len(inner.operands) != 1 or len(outer.operands) != 1:
        return None
    reshaped, applied = outer.operands[0], inner.operands[0]
    if not isinstance(reshaped, App) or not isinstance(applied, App) or reshaped.op != "reshape":
        return None
    if reshaped.operands != (Var("x"),) or applied.operands != (Var("x"),) or applied.op != outer.op:
        return None
    shape, axes = _text(reshaped, "shape"), _named(outer)
    if axes is None or reshaped.record or inner.record or not shape.isidentifier():
        return None
    of_reshaped, of_x = _text(outer, axes), _text(applied, axes)
    given, asked = (of_reshaped, of_x) if is_outside else (of_x, of_reshaped)
    shapes = ("shape(x)", shape) if is_outside else (shape, "shape(x)")
    parts = [part for condition in rule.conditions for part in conjuncts(condition.tree)]
    said = {ast.unparse(part) for part in parts if not (isinstance(part, ast.Call) and _called(part) in _OF_PARTS)}
    result = shape if axes == "axis" else f"ones_at({shape}, {of_reshaped})"
    if not given.isidentifier() or _text(inner, "shape") != result or _others(outer, axes) != _others(applied, axes):
        return None
    if axes == "axes":
        is_kept = asked == f"kept_axes({shapes[0]}, {shapes[1]}, {given})" and not said
        return _OF_SEVERAL if is_kept and is_outside and _text(outer, "keepdims") == "True" else None
    is_kept = asked == f"kept_axes({shapes[0]}, {shapes[1]}, ({given},))[0]" and not said
    is_last = is_outside and asked == "rank(x) - 1"
    is_last &= said == {f"{given} == len({shape}) - 1", f"keeps_last(x, {shape})"}
    return _OF_ONE if is_kept or is_last else None


def _called(tree: ast.Call) -> str:
    return tree.func.id if isinstance(tree.func, ast.Name) else ""


def _named(app: App) -> str | None:
    """The attribute that names the axes along which an operator of one operand works, all others by themselves."""
    declared = spec(app.op)
    form = declared.form
    if form is None or declared.pointwise or not declared.is_shipped or len(form.terms) != 1:
        return None
    term = form.terms[0]
    if not term.broadcasts or form.result.tail or len(term.indices) != 1:
        return None
    is_sum = not form.result.attribute and term.attribute == "axes"
    return term.attribute if is_sum or (term.attribute == form.result.attribute == "axis") else None


def _text(app: App, name: str) -> str:
    """The expression of a field, without redundant brackets; "" where there is none."""
    field = app.fields.get(name)
    return ast.unparse(field.tree) if isinstance(field, Expression) else ""


def _others(app: App, axes: str) -> tuple[str | None, frozenset[tuple[str, str]]]:
    """The record and the fields of an operator, but for the one that names axes."""
    return app.record, frozenset((name, _text(app, name)) for name in app.fields if name != axes)
