"""Equations of sums and products, proved by expanding both sides."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

from eqsat.language.terms.pattern import App, Pattern, Spread, Var
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.polynomials import expanded

#: The first part of the names of such equations.
IDENTITY = "identity"


def states_identity(rule: Rule) -> bool:
    """True if both sides of a rule are the same polynomial of its variables, and so are equal for tensors of any size.

    Sums of infinities are not equal when they are regrouped: the rule has to ask that all variables are finite. Where
    it divides, it has to ask that what it divides by has finite reciprocals, and its sides have to have one shape.
    """
    sides = rule.sides
    if sides is None:
        return False
    numbers = numbers_of(rule)
    conditions = {condition.text for condition in rule.conditions}
    asked = operands_of("finite", conditions)
    inverted = {argument_of(text, "invertible") for text in conditions}
    shapes = [f"shape({written(side)})" for side in sides]
    has_shape = shapes[0] == shapes[1] or " == ".join(shapes) in {ast.unparse(c.tree) for c in rule.conditions}
    try:
        left, right = (expanded(side, numbers) for side in sides)
    except (ValueError, KeyError, ZeroDivisionError):
        return False
    divided = {name for side in (left, right) for monomial in side for name, power in monomial if power < 0}
    return left == right and rule.tensors - numbers.keys() <= asked and divided <= inverted and has_shape


def written(pattern: Pattern | Spread) -> str:
    """A pattern as conditions write it: every operator as a function."""
    match pattern:
        case Var(name):
            return name
        case App(op, operands, fields):
            stated = [f"{name}={expression.text}" for name, expression in fields.items()]
            return ast.unparse(ast.parse(f"{op}({', '.join([*map(written, operands), *stated])})", mode="eval"))
    raise ValueError(f"conditions do not write {pattern}")


def numbers_of(rule: Rule) -> Mapping[str, Fraction]:
    """The variables all of whose elements are one number by a condition of the rule."""
    return stated_numbers(condition.text for condition in rule.conditions)


def stated_numbers(conditions: Iterable[str]) -> Mapping[str, Fraction]:
    """The variables all of whose elements are one number by conditions."""
    found = (argument_of(text, "is_all") for text in conditions)
    pairs = (text.split(", ") for text in found if text)
    return {name: Fraction(ast.literal_eval(value)) for name, value in pairs}


def ranks_of(conditions: Collection[str]) -> dict[str, int]:
    """The ranks that conditions state, by variable."""
    stated = (text.removeprefix("rank(").split(") == ") for text in conditions if text.startswith("rank("))
    return {name: int(rank) for name, rank in stated if rank.isdigit()}


def argument_of(text: str, function: str) -> str:
    """The argument of a function in a condition that is nothing but its call, else nothing."""
    return text[len(function) + 1 : -1] if text.startswith(f"{function}(") and text.endswith(")") else ""


def operands_of(function: str, conditions: Iterable[str]) -> set[str]:
    """The operands of all conditions that are nothing but calls of a function.

    >>> sorted(operands_of("finite", ["finite(x, y)", "finite(z)", "rank(x) == 2"]))
    ['x', 'y', 'z']
    """
    return {name for text in conditions for name in argument_of(text, function).split(", ") if name}
