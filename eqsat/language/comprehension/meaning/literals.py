"""Integer literals held against the types that they take: one that its type does not hold would wrap in silence."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from eqsat.errors import ComprehensionTypeError
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.meaning.element_types import NAMED, ElementType, is_float, is_integer, promoted, shown
from eqsat.language.comprehension.meaning.scopes import Scope
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    Number,
    Position,
    Unary,
    children,
)
from eqsat.language.terms import DType

#: Literals that have met no type yet, with their places.
_Open: TypeAlias = "list[tuple[int, Position]]"


def check_literals(scope: Scope, tensors: dict[str, DType]) -> None:
    """Refuse integer literals that the integer type of what they meet does not hold: ComprehensionTypeError.

    Types go together already. Subscripts are looked at as numbers of 64 bits, and casts wrap as they are asked to.
    """
    for one in scope.statements:
        target = tensors[one.statement.target]
        _meet(scope, target, _literals(scope, tensors, one.value)[1])


def _literals(scope: Scope, tensors: dict[str, DType], expression: Expression) -> tuple[ElementType, _Open]:
    """The type of an expression, and the literals in it that take the type of what it meets."""
    match expression:
        case Number(value=int() as value, place=place):
            return "integer", [(value, place)]
        case Unary(operator="-", operand=Number(value=int() as value), place=place):
            return "integer", [(-value, place)]
        case Number():
            return "float", []
        case Applied(name=name) if name in scope.ranks:
            return tensors[name], []
    parts = [_literals(scope, tensors, child) for child in children(expression)]
    match expression:
        case Unary(operator="-"):
            return parts[0]
        case Conditional():
            return _joined(scope, parts[1:])
        case Binary(operator=operator) if operator in ("+", "-", "*", "/", "%"):
            return _joined(scope, parts)
        case Binary(operator=operator) if operator not in ("&&", "||"):
            _joined(scope, parts)
        case Applied(name=name) if name in NAMED:
            return NAMED[name], []
        case Applied(name=name) if name in mathematics.CHOOSING:
            return _joined(scope, parts)
        case Applied():
            joined, _ = _joined(scope, parts)
            return joined if is_float(joined) else "float" if joined == "integer" else DType.FLOAT32, []
    named = getattr(expression, "name", "")
    if named and scope.ranks.get(named) == 0 and named not in scope.sizes:
        return tensors[named], []
    return DType.INT32 if named else DType.BOOL, []


def _joined(scope: Scope, parts: list[tuple[ElementType, _Open]]) -> tuple[ElementType, _Open]:
    joined = parts[0][0]
    for given, _ in parts[1:]:
        found = promoted(joined, given)
        assert found is not None
        joined = found
    left = [literal for _, literals in parts for literal in literals]
    _meet(scope, joined, left)
    return joined, left if isinstance(joined, str) else []


def _meet(scope: Scope, given: ElementType, literals: _Open) -> None:
    if isinstance(given, str) or not is_integer(given):
        return
    bounds = np.iinfo(given.numpy)
    for value, place in literals:
        if not bounds.min <= value <= bounds.max:
            raise scope.fault(
                ComprehensionTypeError,
                f"{value} as {shown(given)}",
                place,
                expected=f"a literal of {bounds.min} to {bounds.max}",
                remedy=f"cast what it meets to a wider type, or the literal: {shown(given)}(…)",
            )
