"""Equations of choices and sums, proved case by case: each condition is true or false of an element."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from eqsat.language.terms.pattern import App, Pattern, Spread, Var
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.identities import argument_of, operands_of, stated_numbers, written
from eqsat.rewrites.theories.polynomials import Polynomial, added, number, variable

#: The first part of the names of such equations.
CHOICE = "choice"
#: The most conditions whose cases are looked at.
_MOST_CONDITIONS = 6
#: An element: a polynomial of finite numbers, an infinity, or NaN.
_Element: TypeAlias = Polynomial | float


def states_choice(rule: Rule) -> bool:
    """True if both sides of a rule are the same whatever its conditions choose, element by element.

    All operands are finite, or minus infinity everywhere, by conditions, and both sides have one shape.
    """
    sides = rule.sides
    if sides is None:
        return False
    conditions = {condition.text for condition in rule.conditions}
    finite = operands_of("finite", conditions)
    values: dict[str, _Element] = {name: number(value) for name, value in stated_numbers(conditions).items()}
    values |= {name: -math.inf for text in conditions if (name := argument_of(text, "is_minus_infinity"))}
    values |= {name: variable(name) for name in rule.tensors & finite - values.keys()}
    asked = sorted(rule.tensors - values.keys())
    shapes = [f"shape({written(side)})" for side in sides]
    has_shape = " == ".join(shapes) in {ast.unparse(condition.tree) for condition in rule.conditions}
    if not has_shape or len(asked) > _MOST_CONDITIONS:
        return False
    try:
        for case in itertools.product((True, False), repeat=len(asked)):
            truths = dict(zip(asked, case, strict=True))
            left, right = (_element(side, values, truths) for side in sides)
            if left != right:  # so is NaN to itself: its place would be that of any number
                return False
    except (ValueError, KeyError, OverflowError):
        return False
    return True


def _element(pattern: Pattern | Spread, values: Mapping[str, _Element], truths: Mapping[str, bool]) -> _Element:
    """An element of a term; KeyError or ValueError where it is not told."""
    match pattern:
        case Var(name):
            return values[name]
        case App("fill", ()):
            return number(Fraction(ast.literal_eval(pattern.fields["value"].text)))
        case App("where", (Var(asked), x, y)):
            return _element(x if truths[asked] else y, values, truths)
        case App("where", (App("not_", (Var(asked),)), x, y)):
            return _element(y if truths[asked] else x, values, truths)
        case App("neg", (x,)):
            return _negative(_element(x, values, truths))
        case App("add" | "sub" as op, (x, y)):
            one, other = _element(x, values, truths), _element(y, values, truths)
            return _sum(one, _negative(other) if op == "sub" else other)
    raise ValueError(f"no choice and no sum: {pattern}")


def _negative(one: _Element) -> _Element:
    return -one if isinstance(one, float) else added({}, one, Fraction(-1))


def _sum(one: _Element, other: _Element) -> _Element:
    """A sum, in which an infinity outweighs what is finite."""
    if isinstance(one, float):
        return one + other if isinstance(other, float) else one
    return other if isinstance(other, float) else added(one, other)
