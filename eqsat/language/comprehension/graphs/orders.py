"""Functions that keep an order: the results of larger elements are larger, so that maxima and minima go through.

An element of a parameter keeps both. A monotone function, a sum with what does not depend on the parameter, and a
product with a positive number keep what their operand does; a maximum over an index keeps maxima, and a minimum minima.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TypeAlias

from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.meaning.constants import constant
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    Name,
    Unary,
    walk,
)
from eqsat.language.terms import DType

#: The extremes that go through a value, "max" and "min"; None of a value that does not depend on the parameter.
Kept: TypeAlias = "frozenset[str] | None"

_BOTH, _NEITHER = frozenset({"max", "min"}), frozenset[str]()
#: Functions of every number that grow with it.
_MONOTONE = frozenset("asinh atan ceil erf exp floor sinh tanh".split())  # noqa: SIM905
_OPERATORS = MappingProxyType({"max": "maximum", "min": "minimum"})


def kept_extremes(scope: Scope, types: Mapping[str, DType], parameter: str) -> frozenset[str]:
    """The extremes that go through a function from one of its parameters, a tensor of floats, to its results.

    >>> from eqsat.language.comprehension.engine import comprehension
    >>> f = comprehension("def f(float(N,M) x, float(N) y) -> (z) { z(i) max=! exp(x(i,k) - 1) + y(i) }").f
    >>> sorted(kept_extremes(f.scope, f.types, "x")), sorted(kept_extremes(f.scope, f.types, "y"))
    (['max'], ['max'])
    """
    if not types[parameter].is_float or scope.updated or not scope.ranks[parameter]:
        return _NEITHER
    known: dict[str, Kept] = {one.name: None for one in scope.function.parameters} | {parameter: _BOTH}
    for one in scope.statements:
        target = one.statement.target
        made = _stated(scope, one, known)
        if made is not None and not types[target].is_float:
            made = _NEITHER
        if not one.statement.is_definition:
            made = _joined(one.statement.reduction, known[target], made)
        elif one.ranges and target in known:
            made = _together(known[target], made)
        known[target] = made
    results = [known[one.name] for one in scope.function.results]
    return _BOTH.intersection(*(one or _NEITHER for one in results))


def order_laws(name: str, function: TensorFunction) -> Iterator[str]:
    """The laws of a function with one result that say through which operands maxima and minima go."""
    if len(function.results) != 1:
        return
    variables = [f"x{place}" for place in range(len(function.operands))]
    scalars = [f"{scalar}=n{place}" for place, scalar in enumerate(function.needs)]
    for place, operand in enumerate(function.operands):
        for extreme in sorted(kept_extremes(function.scope, function.types, operand)):
            joined, x = _OPERATORS[extreme], variables[place]
            given = [
                ", ".join([*variables[:place], one, *variables[place + 1 :], *scalars])
                for one in (f"{joined}({x}, y)", x, "y")
            ]
            inside, first, second = (f"{name}({one})" for one in given)
            yield f"{inside} <=> {joined}({first}, {second}) if same_shape({x}, y)"


def _stated(scope: Scope, one: ResolvedEquation, known: Mapping[str, Kept]) -> Kept:
    """The extremes that go through what a statement computes."""
    made, reduction = _of(one.value, scope, known), one.statement.reduction
    if made is None or not reduction:
        return made
    return made & {reduction} if reduction in _OPERATORS else made if not one.reduced and reduction == "+" else _NEITHER


def _together(a: Kept, b: Kept) -> Kept:
    """The extremes that go through elements of which some are of one value and some of another."""
    return b if a is None else a if b is None else a & b


def _joined(operator: str, a: Kept, b: Kept) -> Kept:
    """The extremes that go through a sum, or an extreme, of two values."""
    if a is None or b is None:
        kept = operator in ("+", "max", "min")
        return None if a is None and b is None else (b if a is None else a) if kept else _NEITHER
    return a & b & {operator}


def _of(value: Expression, scope: Scope, known: Mapping[str, Kept]) -> Kept:
    match value:
        case Name(name=name):
            return known.get(name) if scope.ranks.get(name) == 0 else None
        case Conditional(condition=condition, yes=yes, no=no) if _of(condition, scope, known) is None:
            return _together(_of(yes, scope, known), _of(no, scope, known))
        case Applied(name=name, arguments=arguments) if name in scope.ranks:
            free = all(_of(one, scope, known) is None for one in arguments)
            return known[name] if free else _NEITHER
        case Applied(name=name, arguments=arguments):
            return _called(name, [_of(one, scope, known) for one in arguments])
        case Binary(operator="+", left=left, right=right):
            return _joined("+", _of(left, scope, known), _of(right, scope, known))
        case Binary(operator="-", left=left, right=right) if _of(right, scope, known) is None:
            return _of(left, scope, known)
        case Binary(operator=("*" | "/") as operator, left=left, right=right):
            a, b = _of(left, scope, known), _of(right, scope, known)
            for one, other in ((a, right), (b, left)) if operator == "*" else ((a, right),):
                number = constant(other)
                if one is not None and number is not None and number > 0:
                    return one
            return None if a is None and b is None else _NEITHER
        case Unary(operand=operand):
            return None if _of(operand, scope, known) is None else _NEITHER
    reads = [part for part in walk(value) if isinstance(part, Applied | Name)]
    return None if all(_is_free(part, scope, known) for part in reads) else _NEITHER


def _is_free(part: Expression, scope: Scope, known: Mapping[str, Kept]) -> bool:
    assert isinstance(part, Applied | Name)
    return part.name not in scope.ranks or known.get(part.name) is None


def _called(name: str, given: list[Kept]) -> Kept:
    """The extremes that go through a call of a function."""
    if all(one is None for one in given):
        return None
    function = mathematics.function(name)
    if name in mathematics.CHOOSING or (function is not None and function.name in ("fmax", "fmin")):
        return _joined(name.removeprefix("f").removesuffix("f"), *given)
    return given[0] if function is not None and function.name in _MONOTONE else _NEITHER
