"""Comprehensions computed with the arithmetic of an interpretation: floats, residues or terms.

It is the reference of the operators that comprehensions enter graphs as; `evaluation` computes calls by NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.errors import BoundsError, GraphError, ShapeError
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.products import einsum_of
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.meaning.constants import constant
from eqsat.language.comprehension.meaning.element_types import NAMED, ElementType, is_integer, promoted, settled
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.meaning.typed import ElementTypes
from eqsat.language.comprehension.text.printer import print_expression
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    Name,
    Number,
    Truth,
    Unary,
)
from eqsat.language.terms import Array, DType
from eqsat.language.terms.dims import evaluate as size_of

#: Functions by the names that interpretations have for them.
_NAMES = MappingProxyType(
    {
        "acos": "arccos",
        "acosh": "arccosh",
        "asin": "arcsin",
        "asinh": "arcsinh",
        "atan": "arctan",
        "atanh": "arctanh",
        "fabs": "abs",
        **{
            one: one
            for one in ("ceil", "cos", "cosh", "erf", "exp", "floor", "log", "sin", "sinh", "sqrt", "tan", "tanh")
        },
    }
)
#: The arithmetic of integers and truth values, which are themselves in every interpretation.
_WHOLE = FloatNamespace()
_JOINED = {"+": "add", "*": "multiply", "min": "minimum", "max": "maximum"}
_FOLDED = {"+": "sum", "*": "prod", "min": "min", "max": "max"}


def check_given(xp: Any, function: TensorFunction, given: Mapping[str, Any]) -> None:
    """ShapeError for arguments in the reference of an operator that are not what the text states.

    Where a reference is computed in floats, those of any width stand for floats of the text; whole numbers and truth
    values are those of the text. Elsewhere residues and terms stand for all.
    """
    for name, value in given.items():
        dtype = function.types[name]
        if isinstance(value, bool | int | float):
            function.argument(name, dtype, value)
            if name in function.scope.updated:
                raise ShapeError(f"{value!r}", where=f"{function.name}, {name}", expected="a tensor")
        elif not hasattr(value, "dtype") or not hasattr(value, "shape"):
            kind = f"{function.name}, {name}"
            raise ShapeError(f"a {type(value).__name__}", where=kind, expected="a tensor or a number")
        elif isinstance(xp, FloatNamespace) and not (dtype.is_float and _is_float(value)):
            function.checked(name, dtype, value)
    shapes = {one: np.shape(given[one]) for one in function.operands} | dict.fromkeys(function.needs, ())
    inferred = function.inferred(shapes, {one: int(given[one]) for one in function.needs})
    for name in function.scope.updated:
        if name in given and np.shape(given[name]) != tuple(inferred.shapes[name]):
            expected = f"shape {list(inferred.shapes[name])}"
            raise ShapeError(
                f"shape {list(np.shape(given[name]))}", where=f"{function.name}, {name}", expected=expected
            )


def _is_float(value: Any) -> bool:
    try:
        return DType.of(value.dtype).is_float
    except (KeyError, TypeError, ValueError, GraphError):
        return False


def applied(xp: Any, function: TensorFunction, given: Mapping[str, Any]) -> Any:
    """The results of a function, one or a tuple, for tensors and numbers by name, with the arithmetic of `xp`."""
    scope, types = function.scope, function.types
    values = {one: int(given[one]) for one in function.needs}
    shapes = {one: np.shape(given[one]) for one in function.operands} | dict.fromkeys(function.needs, ())
    inferred = function.inferred(shapes, values)
    tensors = {one: array for one, array in given.items() if one not in values}
    like = _float_of(types, {one: array for one, array in tensors.items() if not isinstance(array, bool | int | float)})
    for one, array in tensors.items():
        if isinstance(array, bool | int | float):
            tensors[one] = xp.number(array, like) if types[one].is_float else np.asarray(array, types[one].numpy)
    numbers = {one: np.asarray(value, types[one].numpy) for one, value in values.items()}
    for one in scope.updated:
        if one not in tensors:
            tensors[one] = zeros(xp, types, inferred, one, tensors)
    made = compute(xp, scope, types, inferred, {**tensors, **numbers})
    results = tuple(made[one] for one in function.results)
    return results[0] if len(results) == 1 else results


def compute(
    xp: Any, scope: Scope, types: Mapping[str, DType], inferred: Inferred, tensors: Mapping[str, Any]
) -> dict[str, Any]:
    """The tensors that a function defines, with the arithmetic of `xp`; integers that subscript stay integers."""
    held, like = dict(tensors), _float_of(types, tensors)
    for one, ranges in zip(scope.statements, inferred.ranges, strict=True):
        sizes = {name: (size_of(low, {}), size_of(high, {})) for name, (low, high) in ranges.items()}
        target, shape = one.statement.target, tuple(size_of(dim, {}) for dim in inferred.shapes[one.statement.target])
        made = _Interpreted(xp, scope, ElementTypes(scope, types), inferred, held, one, sizes, like).reduced()
        window = tuple(slice(*sizes[index]) for index in one.indices)
        if not one.statement.is_definition and target in held:
            joined = arithmetic(xp, types[target], made, held[target])
            made = getattr(joined, _JOINED[one.statement.reduction])(held[target][window], made)
        whole = all(sizes[index] == (0, dim) for index, dim in zip(one.indices, shape, strict=True))
        if not whole:
            # Parts may define a target together, of which no statement is the first to define it whole.
            changed = np.array(held[target]) if target in held else np.zeros(shape, np.asarray(made).dtype)
            changed[window] = made
            made = changed
        held[target] = made
    return held


def zeros(xp: Any, types: Mapping[str, DType], inferred: Inferred, name: str, tensors: Mapping[str, Any]) -> Any:
    """The elements that a tensor to be updated holds where no caller passes it."""
    shape = tuple(size_of(dim, {}) for dim in inferred.shapes[name])
    if not types[name].is_float:
        return np.zeros(shape, types[name].numpy)
    made = np.broadcast_to(xp.number(0.0, _float_of(types, tensors)), shape)
    floats = {dtype for dtype in types.values() if dtype.is_float}
    # Of one type of floats, operands may be of any.
    alone = len(floats) == 1 and any(types[one].is_float for one in tensors)
    return made if alone else xp.cast(made, types[name])


def _float_of(types: Mapping[str, DType], tensors: Mapping[str, Any]) -> Any:
    """A tensor of floats, of whose kind numbers are made."""
    return next((array for name, array in tensors.items() if types[name].is_float), np.zeros((), np.float32))


@dataclass
class _Interpreted:
    """A statement in the arithmetic of an interpretation."""

    xp: Any
    scope: Scope
    element_types: ElementTypes
    inferred: Inferred
    held: Mapping[str, Any]
    one: ResolvedEquation
    ranges: Mapping[str, tuple[int, int]]
    like: Any
    #: Integers of subscripts do not wrap.
    is_subscript: bool = False

    def reduced(self) -> Any:
        """The value over the indices of the target."""
        one, rank = self.one, len(self.one.indices)
        shape = tuple(high - low for low, high in (self.ranges[index] for index in one.every_index))
        types = {name: settled(given) for name, given in self.element_types.tensors.items()}
        product = einsum_of(self.scope, one, self.ranges, self.inferred.shapes, types)
        if product is not None and one.statement.reduction == "+":
            return self.xp.einsum(product.equation, *(self.held[name] for name in product.tensors))
        dtype = self.element_types.tensors[one.statement.target]
        value = np.broadcast_to(self.cast(one.value, dtype, None), shape)
        axes = tuple(range(rank, len(shape)))
        reduction = one.statement.reduction
        if not (reduction and axes):
            return value
        return getattr(arithmetic(self.xp, settled(dtype), value), _FOLDED[reduction])(value, axis=axes)

    def cast(self, expression: Expression, wanted: ElementType, mask: Array | None) -> Any:
        """The value of an expression in an element type."""
        given = self.type(expression)
        if isinstance(given, str):
            number = constant(expression)
            value = self.value(expression, mask) if number is None else number
            dtype = settled(wanted)
            if np.asarray(value).dtype == object:
                return value
            if np.ndim(value):
                return self.xp.cast(value, dtype)
            value = np.asarray(value).item()
            floats = {one for one in self.element_types.tensors.values() if not isinstance(one, str) and one.is_float}
            if dtype.is_float and len(floats) > 1:
                value = float(np.asarray(value).astype(dtype.numpy))  # a literal is rounded to what it meets
            return self.xp.number(value, self.like) if dtype.is_float else np.asarray(value).astype(dtype.numpy)
        value = self.value(expression, mask)
        if given == wanted or isinstance(wanted, str):
            return value
        return (
            arithmetic(self.xp, wanted, value).cast(value, wanted)
            if not given.is_float
            else self.xp.cast(value, wanted)
        )

    def value(self, expression: Expression, mask: Array | None) -> Any:
        """The value of an expression at each point where the mask holds."""
        match expression:
            case Number(value=number):
                return number
            case Truth(value=truth):
                return np.bool_(truth)
            case Name(name=name):
                return self._named(name)
            case Applied():
                return self._applied(expression, mask)
            case Unary(operator="!", operand=operand):
                return self._choice(self.value(operand, mask), False, True)
            case Unary(operand=operand):
                inner = self.value(operand, mask)
                if isinstance(inner, int | float):
                    return -inner
                return arithmetic(self.xp, settled(self.type(operand)), inner).negative(inner)
            case Conditional(condition=condition, yes=yes, no=no):
                chosen = self.value(condition, mask)
                joined = settled(self.type(expression))
                a = self.cast(yes, joined, _both(mask, chosen, True))
                return self._choice(chosen, a, self.cast(no, joined, _both(mask, chosen, False)))
            case Binary(operator=("&&" | "||") as operator, left=left, right=right):
                first = self.value(left, mask)
                second = self.value(right, _both(mask, first, operator == "&&"))
                return self._choice(first, second, False) if operator == "&&" else self._choice(first, True, second)
            case Binary():
                return self._binary(expression, mask)
        raise AssertionError(expression)

    def type(self, expression: Expression) -> ElementType:
        """The element type of an expression."""
        found = self.element_types.of(expression)
        assert found is not None
        read_as_it_is = isinstance(expression, Applied) and expression.name in (*self.scope.ranks, *NAMED)
        return DType.INT64 if self.is_subscript and is_integer(found) and not read_as_it_is else found

    def _choice(self, condition: Any, yes: Any, no: Any) -> Any:
        """One of two values by a condition, which is a term where terms decide it."""
        return arithmetic(self.xp, DType.BOOL, condition, yes, no).where(condition, yes, no)

    def _named(self, name: str) -> Any:
        if name in self.ranges:
            low, high = self.ranges[name]
            shape = [1] * len(self.one.every_index)
            shape[self.one.every_index.index(name)] = high - low
            return np.arange(low, high).reshape(shape).astype(np.int64 if self.is_subscript else np.int32)
        return size_of(self.inferred.known[name], {}) if name in self.inferred.known else self.held[name]

    def _applied(self, call: Applied, mask: Array | None) -> Any:
        if call.name in self.scope.ranks:
            return self._element(call, mask)
        if call.name in NAMED:
            return self.cast(call.arguments[0], NAMED[call.name], mask)
        joined = settled(self.type(call))
        given = [self.cast(one, joined, mask) for one in call.arguments]
        if call.name in mathematics.CHOOSING:
            return getattr(arithmetic(self.xp, joined, *given), f"{call.name}imum")(*given)
        known = mathematics.function(call.name)
        assert known is not None
        if known.name == "pow":
            return self.xp.power(*given)
        if known.name == "rsqrt":
            return self.xp.divide(self.xp.number(1, self.like), self.xp.apply("sqrt", given[0]))
        if known.name in ("fmax", "fmin"):
            # Floats have NaN, which these pass over.
            floats = isinstance(self.xp, FloatNamespace)
            return known.compute(*given) if floats else getattr(self.xp, f"{known.name[1:]}imum")(*given)
        if known.name not in _NAMES:
            raise GraphError(
                f"{call.name} in a graph",
                where=self.scope.function.name,
                expected="min, max, pow, rsqrt or one of " + ", ".join(_NAMES),
                remedy="call the comprehension with arrays",
            )
        return self.xp.apply(_NAMES[known.name], given[0])

    def _binary(self, expression: Binary, mask: Array | None) -> Any:
        operator, left, right = expression.operator, expression.left, expression.right
        joined = settled(promoted(self.type(left), self.type(right)) or DType.INT64)
        joined = DType.INT64 if self.is_subscript and is_integer(joined) else joined
        a, b = self.cast(left, joined, mask), self.cast(right, joined, mask)
        xp = arithmetic(self.xp, joined, a, b)
        match operator:
            case "+":
                return xp.add(a, b)
            case "-":
                return xp.subtract(a, b)
            case "*":
                return xp.multiply(a, b)
            case "/":
                return xp.divide(a, b)
            case "%":
                return np.fmod(a, b)
            case "<" | ">":
                return xp.less(a, b) if operator == "<" else xp.less(b, a)
            case "<=" | ">=":
                return xp.less_equal(a, b) if operator == "<=" else xp.less_equal(b, a)
        equal = xp.equal(a, b)
        return equal if operator == "==" else self._choice(equal, False, True)

    def _element(self, call: Applied, mask: Array | None) -> Any:
        array = self.held[call.name]
        places: list[Any] = []
        whole = replace(self, is_subscript=True)
        for axis, (subscript, extent) in enumerate(zip(call.arguments, np.shape(array), strict=True)):
            place = np.asarray(whole.cast(subscript, DType.INT64, mask)).astype(np.int64)
            outside = np.logical_or(place < 0, place >= extent)
            if np.any(outside if mask is None else np.logical_and(outside, mask)):
                raise self.scope.fault(
                    BoundsError,
                    f"{print_expression(call)} passes the bounds of {call.name} on axis {axis}",
                    subscript.place,
                    expected=f"a subscript of 0 to {extent - 1}",
                )
            places.append(np.clip(place, 0, max(extent - 1, 0)))
        return array[tuple(places)] if places else array


def arithmetic(xp: Any, dtype: DType, *arrays: Any) -> Any:
    """The arithmetic of some values: that of integers where they are such, and known."""
    known = all(np.asarray(one).dtype != object for one in arrays)
    return _WHOLE if known and not dtype.is_float else xp


def _both(mask: Array | None, condition: Any, holds: bool) -> Array:
    """Where a mask holds and a condition does, or does not; nowhere where terms decide it, so that nothing is asked."""
    truth = np.asarray(condition)
    if truth.dtype == object:
        return np.asarray(False)
    truth = truth if holds else np.logical_not(truth)
    return truth if mask is None else np.logical_and(mask, truth)
