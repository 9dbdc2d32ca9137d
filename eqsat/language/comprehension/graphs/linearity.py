"""Linearity of functions in their parameters, read off their text.

A sum is linear where all its terms are, a product where one factor is and the others do not read the parameter. Casts
and quotients of integers round, and functions, conditions and subscripts that read it are not linear in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from eqsat.language.comprehension.meaning.element_types import NAMED
from eqsat.language.comprehension.meaning.scopes import Scope
from eqsat.language.comprehension.text.syntax import Applied, Binary, Conditional, Expression, Name, Number, Unary
from eqsat.language.terms import DType


class Dependence(Enum):
    """The way in which a value depends on a parameter: `ZERO` is the number 0, which is linear and free of it."""

    ZERO = "zero"
    FREE = "free"
    LINEAR = "linear"
    OTHER = "other"


def is_linear(scope: Scope, types: Mapping[str, DType], parameter: str) -> bool:
    """True where every result is linear in a parameter of floats, the others being held.

    >>> from eqsat.language.comprehension.engine import comprehension
    >>> f = comprehension("def f(float(N) x, float(N) y) -> (z) { z(i) = x(i) * y(i) + y(i) }").f
    >>> is_linear(f.scope, f.types, "x"), is_linear(f.scope, f.types, "y")
    (False, True)
    """
    if not types[parameter].is_float or scope.updated:
        return False
    known = {one.name: Dependence.FREE for one in scope.function.parameters} | {parameter: Dependence.LINEAR}
    for one in scope.statements:
        made, target = _of(one.value, scope, known), one.statement.target
        if one.statement.reduction in ("*", "min", "max") and made is not Dependence.FREE:
            made = Dependence.OTHER
        if not types[target].is_float and made is Dependence.LINEAR:
            made = Dependence.OTHER
        if not one.statement.is_definition:
            before = known[target]
            sums = one.statement.reduction == "+"
            free = before is Dependence.FREE and made is Dependence.FREE
            made = _sum(before, made) if sums else Dependence.FREE if free else Dependence.OTHER
        elif one.ranges and target in known:
            # Where a part is defined anew, the rest stays as it was.
            made = _sum(known[target], made)
        known[target] = made
    return all(known[one.name] in (Dependence.LINEAR, Dependence.ZERO) for one in scope.function.results)


def _sum(a: Dependence, b: Dependence) -> Dependence:
    if Dependence.ZERO in (a, b):
        return b if a is Dependence.ZERO else a
    return a if a is b else Dependence.OTHER


def _of(value: Expression, scope: Scope, known: Mapping[str, Dependence]) -> Dependence:
    match value:
        case Number(value=number):
            return Dependence.FREE if number else Dependence.ZERO
        case Name(name=name):
            is_read = name not in scope.sizes and scope.ranks.get(name) == 0
            return known[name] if is_read else Dependence.FREE
        case Unary(operator="-", operand=operand):
            return _of(operand, scope, known)
        case Conditional(condition=condition, yes=yes, no=no):
            if _of(condition, scope, known) not in (Dependence.FREE, Dependence.ZERO):
                return Dependence.OTHER
            return _sum(_of(yes, scope, known), _of(no, scope, known))
        case Binary(operator=operator, left=left, right=right):
            return _combined(operator, _of(left, scope, known), _of(right, scope, known))
        case Applied(name=name, arguments=arguments):
            free = all(_of(one, scope, known) in (Dependence.FREE, Dependence.ZERO) for one in arguments)
            if name in scope.ranks:
                return known[name] if free else Dependence.OTHER
            zero = name in NAMED and _of(arguments[0], scope, known) is Dependence.ZERO
            return Dependence.ZERO if zero else Dependence.FREE if free else Dependence.OTHER
        case Unary(operand=operand):
            inner = _of(operand, scope, known)
            return Dependence.FREE if inner in (Dependence.FREE, Dependence.ZERO) else Dependence.OTHER
    return Dependence.FREE


def _combined(operator: str, a: Dependence, b: Dependence) -> Dependence:
    if operator in ("+", "-"):
        return _sum(a, b)
    free = (Dependence.FREE, Dependence.ZERO)
    if a in free and b in free:
        return Dependence.FREE
    if operator == "*":
        if Dependence.ZERO in (a, b):
            return Dependence.ZERO
        return Dependence.LINEAR if {a, b} == {Dependence.FREE, Dependence.LINEAR} else Dependence.OTHER
    if operator == "/" and a is Dependence.LINEAR and b is Dependence.FREE:
        return Dependence.LINEAR
    return Dependence.OTHER
