"""Attributes of opaque operators that a rule asks for, so that their values are looked at."""

from __future__ import annotations

import ast
from functools import cache

from eqsat.language.declaration import OpSpec
from eqsat.language.terms import Expression
from eqsat.rewrites.rules.rule import Rule, applications


def asked_attributes(rule: Rule, declared: OpSpec) -> set[str]:
    """The attributes of an operator that its index form speaks of, or a rule asks for by their names."""
    form = declared.form
    named = {"direction", "layout"} if form is None else {form.result.attribute, *form.sizes.values(), *form.linear_if}
    return (named | asked_by_name(rule)) & set(declared.attrs)


@cache
def asked_by_name(rule: Rule) -> frozenset[str]:
    """The attributes that a rule asks for by their names, of whatever operator."""
    trees = (expression.tree for expression in rule.expressions())
    return frozenset(node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute))


@cache
def computed_names(rule: Rule) -> frozenset[str]:
    """The names that expressions of a rule compute with, more than to hand them on or to ask for an attribute."""
    found: set[str] = set()
    for expression in rule.expressions():
        if not isinstance(expression.tree, ast.Name):
            asked = {id(n.value) for n in ast.walk(expression.tree) if isinstance(n, ast.Attribute)}
            # The attributes of an operator whose type is asked for are handed on to that.
            asked |= {id(n.value) for n in ast.walk(expression.tree) if isinstance(n, ast.keyword) and n.arg is None}
            found |= {n.id for n in ast.walk(expression.tree) if isinstance(n, ast.Name) and id(n) not in asked}
    return frozenset(found | _handed_elsewhere(rule))


def _handed_elsewhere(rule: Rule) -> set[str]:
    """The names that stand for several attributes, or for those of several operators."""
    uses: dict[str, set[tuple[str, str]]] = {}
    for app in (app for side in (rule.roots, rule.right) for root in side for app in applications(root)):
        for attribute, field in app.fields.items():
            if isinstance(field, Expression) and isinstance(field.tree, ast.Name):
                uses.setdefault(field.tree.id, set()).add((app.op, attribute))
    return {name for name, places in uses.items() if len(places) > 1}


def asked_of(expression: Expression, record: str) -> list[str]:
    """The attributes of a record that an expression asks for by their names."""
    nodes = [node for node in ast.walk(expression.tree) if isinstance(node, ast.Attribute)]
    return [node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == record]
