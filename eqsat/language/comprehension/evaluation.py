"""Comprehensions computed by NumPy: the reference that every other form of them is held against.

A statement is computed as a whole before its target changes. Arithmetic is that of C on the element types: integers
wrap, quotients are rounded to zero, and what `?:`, && and || do not reach is not read. Sums of float16 and bfloat16 are
formed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.errors import BoundsError, ComprehensionError, RangeError
from eqsat.language.comprehension.extents.affine import Affine, affine
from eqsat.language.comprehension.extents.bounds import FARTHEST, is_inside
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.meaning.element_types import (
    NAMED,
    ElementType,
    is_float,
    is_integer,
    promoted,
    settled,
)
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.text.printer import shown
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

#: The most points of a statement that are computed at once.
MOST_POINTS = 1 << 22
#: The types whose sums and functions are formed in float32.
_NARROW = (DType.FLOAT16, DType.BFLOAT16)
#: Operations of two numbers that are those of NumPy.
COMPUTED: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_REDUCE: Mapping[str, np.ufunc] = {"+": np.add, "*": np.multiply, "min": np.minimum, "max": np.maximum}

#: A value and its type.
Typed = tuple[Any, ElementType]


def evaluate(
    scope: Scope, types: Mapping[str, DType], inferred: Inferred, tensors: Mapping[str, Array]
) -> dict[str, Array]:
    """The tensors that a function defines, given its parameters and the tensors that it updates, by name.

    BoundsError where a subscript passes the bounds of its tensor.
    """
    held = dict(tensors)
    for name in scope.defined:
        start = held.get(name)
        held[name] = _zeros(scope, types, inferred, name) if start is None else start.astype(types[name].numpy)
    for one, ranges in zip(scope.statements, inferred.ranges, strict=True):
        sizes = {name: (size_of(low, {}), size_of(high, {})) for name, (low, high) in ranges.items()}
        target = one.statement.target
        window = tuple(slice(*sizes[index]) for index in one.indices)
        made = _Box(scope, types, inferred, held, one, sizes).reduced()
        changed = held[target].copy()
        with np.errstate(all="ignore"):
            if not one.statement.is_definition:
                made = _REDUCE[one.statement.reduction](changed[window].astype(made.dtype), made)
            changed[window] = made
        held[target] = changed
    return {name: held[name] for name in scope.defined}


def _zeros(scope: Scope, types: Mapping[str, DType], inferred: Inferred, name: str) -> Array:
    shape = tuple(size_of(dim, {}) for dim in inferred.shapes[name])
    try:
        return np.zeros(shape, types[name].numpy)
    except (MemoryError, ValueError):
        place = next(one.statement.place for one in scope.statements if one.statement.target == name)
        raise scope.fault(
            RangeError, f"{name} of {list(shape)} does not fit into memory", place, expected="a smaller tensor"
        ) from None


def neutral(reduction: str, dtype: DType) -> Any:
    """The element with which a reduction begins.

    >>> neutral("max", DType.FLOAT32), neutral("min", DType.UINT8), neutral("*", DType.INT32)
    (-inf, 255, 1)
    """
    if reduction in ("+", "*"):
        return int(reduction == "*")
    if dtype.is_float:
        return -np.inf if reduction == "max" else np.inf
    bounds = np.iinfo(dtype.numpy)
    return int(bounds.min if reduction == "max" else bounds.max)


@dataclass
class _Box:
    """A statement over a box of its indices."""

    scope: Scope
    types: Mapping[str, DType]
    inferred: Inferred
    held: Mapping[str, Array]
    one: ResolvedEquation
    ranges: Mapping[str, tuple[int, int]]

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the box: those of the target, then those that are reduced."""
        return tuple(high - low for low, high in (self.ranges[index] for index in self.one.every_index))

    def reduced(self) -> Array:
        """The value over the indices of the target, in its type; sums and products of narrow floats in float32."""
        dtype, reduction = self.types[self.one.statement.target], self.one.statement.reduction
        shape, rank = self.shape, len(self.one.indices)
        wide = DType.FLOAT32 if reduction in ("+", "*") and dtype in _NARROW else dtype
        if 0 in shape:
            fill = neutral(reduction, dtype) if reduction else 0
            return np.full(shape[:rank], fill, wide.numpy)
        if np.prod(shape, dtype=float) > MOST_POINTS and max(shape) > 1:
            return self._in_halves(shape.index(max(shape)))
        value, given = self.value(self.one.value, None)
        with np.errstate(all="ignore"):
            array = np.broadcast_to(_cast(value, given, wide), shape)
            axes = tuple(range(rank, len(shape)))
            if reduction and axes:
                array = _REDUCE[reduction].reduce(array, axis=axes, dtype=wide.numpy)
            return np.asarray(array)

    def _in_halves(self, axis: int) -> Array:
        index = self.one.every_index[axis]
        low, high = self.ranges[index]
        middle = (low + high) // 2
        parts = [
            _Box(self.scope, self.types, self.inferred, self.held, self.one, {**self.ranges, index: part}).reduced()
            for part in ((low, middle), (middle, high))
        ]
        if axis < len(self.one.indices):
            return np.concatenate(parts, axis=axis)
        with np.errstate(all="ignore"):
            joined: Array = _REDUCE[self.one.statement.reduction](*parts)
        return joined

    def value(self, expression: Expression, mask: Array | None, whole: bool = False) -> Typed:
        """An expression at each point where the mask holds, and its type; `whole` ones are subscripts.

        Sums of indices are exact in subscripts, as where ranges are inferred: narrow scalars do not wrap there.
        """
        form = affine(expression, self.inferred.known) if whole else None
        if form is not None:
            return self._exact(form), DType.INT64
        match expression:
            case Number(value=number):
                return number, "integer" if expression.is_integer else "float"
            case Truth(value=truth):
                return np.bool_(truth), DType.BOOL
            case Name(name=name):
                return self._named(name)
            case Applied():
                return self._called(expression, mask, whole)
            case Unary(operator=operator, operand=operand):
                inner, given = self.value(operand, mask, whole)
                with np.errstate(all="ignore"):
                    return (np.logical_not(inner), DType.BOOL) if operator == "!" else (np.negative(inner), given)
            case Binary(operator=("&&" | "||") as operator, left=left, right=right):
                first, _ = self.value(left, mask, whole)
                reached = first if operator == "&&" else np.logical_not(first)
                second, _ = self.value(right, _both(mask, reached), whole)
                join = np.logical_and if operator == "&&" else np.logical_or
                return join(first, second), DType.BOOL
            case Binary():
                return self._binary(expression, mask, whole)
            case Conditional(condition=condition, yes=yes, no=no):
                chosen, _ = self.value(condition, mask, whole)
                a, type_a = self.value(yes, _both(mask, chosen), whole)
                b, type_b = self.value(no, _both(mask, np.logical_not(chosen)), whole)
                joined = _joined(type_a, type_b)
                return np.where(chosen, _cast(a, type_a, joined), _cast(b, type_b, joined)), joined
        raise AssertionError(expression)

    def _named(self, name: str) -> Typed:
        if name not in self.ranges and name not in self.scope.sizes:
            return self.held[name][()], self.types[name]
        if name in self.ranges:
            points, (low, high) = self._points(name), self.ranges[name]
        else:
            low = size_of(self.inferred.known[name], {})
            points, high = np.asarray(low), low + 1
        if low < -(2**31) or high > 2**31:
            raise self.scope.fault(
                RangeError,
                f"{name} reaches {high - 1 if high > 2**31 else low}, which int32 does not hold",
                self.one.statement.place,
                expected="indices and sizes of 32 bits where they are numbers, not subscripts",
            )
        return points.astype(np.int32), DType.INT32

    def _points(self, index: str) -> Array:
        """The values of an index, along its axis of the box."""
        axis, (low, high) = self.one.every_index.index(index), self.ranges[index]
        shape = [1] * len(self.one.every_index)
        shape[axis] = high - low
        kept = np.int64 if max(abs(low), abs(high)) < FARTHEST else object
        return np.arange(low, high, dtype=kept).reshape(shape)

    def _exact(self, form: Affine) -> Array:
        """A sum of indices; what int64 does not hold is cut to what passes the bounds of every tensor."""
        ends = (size_of(form.least(self.ranges), {}), size_of(form.most(self.ranges), {}))
        reach = sum(abs(factor * end) for name, factor in form.factors.items() for end in self.ranges[name])
        fits = max(*map(abs, ends), reach) < FARTHEST
        total = np.asarray(form.constant, np.int64 if fits else object)
        for name, factor in form.factors.items():
            total = np.asarray(total + factor * self._points(name).astype(total.dtype), total.dtype)
        return total if fits else np.asarray(np.clip(total, -FARTHEST, FARTHEST)).astype(np.int64)

    def _called(self, call: Applied, mask: Array | None, whole: bool) -> Typed:
        if call.name in self.scope.ranks:
            element = self._element(call, mask)
            return _whole(element, self.types[call.name]) if whole else (element, self.types[call.name])
        given = [self.value(one, mask, whole) for one in call.arguments]
        if call.name in NAMED:
            made = _cast(*given[0], NAMED[call.name])
            return _whole(made, NAMED[call.name]) if whole else (made, NAMED[call.name])
        joined = given[0][1]
        for _, other in given[1:]:
            joined = _joined(joined, other)
        if call.name in mathematics.CHOOSING:
            choose = np.minimum if call.name == "min" else np.maximum
            return choose(*(_cast(one, own, joined) for one, own in given)), joined
        known = mathematics.function(call.name)
        assert known is not None
        result = joined if is_float(joined) else "float" if joined == "integer" else DType.FLOAT32
        wide = DType.FLOAT32 if result in _NARROW else settled(result) if result != "float" else DType.FLOAT64
        with np.errstate(all="ignore"):
            made = known.compute(*(_cast(one, own, wide) for one, own in given))
            return (np.float64(made) if result == "float" else _cast(made, wide, result)), result

    def _binary(self, expression: Binary, mask: Array | None, whole: bool) -> Typed:
        (a, type_a), (b, type_b) = (self.value(one, mask, whole) for one in (expression.left, expression.right))
        operator, joined = expression.operator, _joined(type_a, type_b)
        a, b = _cast(a, type_a, joined), _cast(b, type_b, joined)
        with np.errstate(all="ignore"):
            if operator in COMPUTED:
                made = COMPUTED[operator](a, b)
                compared = operator not in ("+", "-", "*")
                return made, DType.BOOL if compared else joined
            if is_float(joined):
                return np.divide(a, b), joined
            zero = np.equal(b, 0) if mask is None else np.logical_and(np.equal(b, 0), mask)
            if np.any(zero):
                raise self.scope.fault(
                    ComprehensionError,
                    f"{shown(expression)} divides an integer by 0",
                    expression.place,
                    expected="divisors that are not 0",
                    remedy="read it under a condition: b != 0 ? a / b : 0",
                )
            divisor = np.where(np.equal(b, 0), np.ones_like(b), b)
            if operator == "%":
                return np.fmod(a, divisor), joined
            quotient = np.floor_divide(a, divisor)
            up = np.logical_and(np.fmod(a, divisor) != 0, np.less(a, 0) != np.less(divisor, 0))
            return np.asarray(quotient + up, np.asarray(quotient).dtype), joined

    def _element(self, call: Applied, mask: Array | None) -> Any:
        array = self.held[call.name]
        places = []
        for axis, (subscript, extent) in enumerate(zip(call.arguments, array.shape, strict=True)):
            place, _ = self.value(subscript, mask, whole=True)
            place = np.asarray(place)
            if not is_inside(subscript, extent, self.ranges, self.inferred.known):
                place = self._checked(call, axis, place, extent, mask)
            places.append(place)
        if 0 in array.shape:  # nothing is read where a condition keeps every point out
            return np.zeros(np.broadcast_shapes(*(place.shape for place in places)), array.dtype)
        return array[tuple(places)] if places else array[()]

    def _checked(self, call: Applied, axis: int, place: Array, extent: int, mask: Array | None) -> Array:
        outside = np.logical_or(place < 0, place >= extent)
        if mask is not None:
            outside = np.logical_and(outside, mask)
        if np.any(outside):
            at = tuple(int(one[0]) for one in np.nonzero(np.atleast_1d(outside)))
            reached = int(np.broadcast_to(np.atleast_1d(place), np.atleast_1d(outside).shape)[at])
            lows = [self.ranges[index][0] for index in self.one.every_index]
            names = zip(self.one.every_index, at, lows, strict=False)
            where = ", ".join(f"{name} = {low + k}" for name, k, low in names)
            raise self.scope.fault(
                BoundsError,
                f"{shown(call)} passes the bounds of {call.name} on axis {axis}",
                call.arguments[axis].place,
                expected=f"a subscript of 0 to {extent - 1}; it is {reached} at {where or 'the only point'}",
                remedy="keep it inside: max(min(…, …), 0), or read it under a condition",
            )
        return np.clip(place, 0, max(extent - 1, 0))


def _whole(value: Any, given: ElementType) -> Typed:
    """A value inside a subscript: integers do not wrap there, as bounds are proved of whole numbers."""
    return (_cast(value, given, DType.INT64), DType.INT64) if is_integer(given) else (value, given)


def _joined(a: ElementType, b: ElementType) -> ElementType:
    """The type of a sum; of uint64 with the int64 that sums of indices are in subscripts, int64."""
    return promoted(a, b) or DType.INT64


def _both(mask: Array | None, more: Any) -> Array:
    return np.asarray(more if mask is None else np.logical_and(mask, more))


def _cast(value: Any, given: ElementType, wanted: ElementType) -> Any:
    """A value in another type; literals stay numbers until they meet one."""
    if isinstance(wanted, str):
        return value
    if given == wanted:
        return value
    with np.errstate(all="ignore"):
        if wanted is DType.BOOL:
            return np.not_equal(value, 0)
        return np.asarray(value).astype(wanted.numpy)
