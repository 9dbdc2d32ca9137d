"""Comprehensions computed one point and one number at a time, from the rules of the language alone.

It shares the syntax tree with eqsat and nothing else: types, arithmetic and ranges are worked out anew, the ranges by
trying every value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    ExistsClause,
    Expression,
    Function,
    IndexEquation,
    LetClause,
    Name,
    Number,
    RangeClause,
    Truth,
    Unary,
    rebuilt,
    walk,
)
from tests.support.comprehensions.comprehension_cases import DTYPES
from tests.support.comprehensions.function_values import VALUES
from tests.support.comprehensions.promotion_table import PROMOTED
from tests.support.comprehensions.range_trials import Trials, is_affine

FLOATS = {
    "bfloat16": ml_dtypes.bfloat16,
    "float16": np.float16,
    "float": np.float32,
    "double": np.float64,
    "w": np.float64,
}
SPANS = {
    name: (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)) for name, dtype in DTYPES.items() if dtype.kind in "iu"
}
#: Literals are weak: an integer that met nothing is "i", a float "w".
SPANS["i"] = SPANS["int64"]
PLAIN = {"int": "int32", "half": "float16", "float32": "float", "float64": "double"}

#: A number and its type.
Typed = tuple[str, Any]


class FaultError(Exception):
    """A subscript outside, or an integer divided by 0: the language has an error for it."""


class UndefinedError(Exception):
    """A value that C leaves open, or that a function does not have: nothing can be compared."""


def joined(a: str, b: str) -> str:
    """The type of two numbers together."""
    if a == b:
        return a
    if {a, b} == {"i", "w"}:
        return "w"
    if "i" in (a, b) or "w" in (a, b):
        weak, other = (a, b) if a in "iw" else (b, a)
        if other == "bool":
            return weak
        return "float" if weak == "w" and other not in FLOATS else other
    found = PROMOTED[a, b]
    assert found is not None, (a, b)
    return found


def cast(value: Any, wanted: str) -> Any:
    """A number in a type."""
    if wanted == "bool":
        return bool(value != 0)
    if wanted in FLOATS:
        return FLOATS[wanted](int(value) if isinstance(value, bool | int) else value)
    low, high = SPANS[wanted]
    if not isinstance(value, bool | int):
        if not math.isfinite(value) or not low <= math.trunc(float(value)) <= high:
            raise UndefinedError(f"{value} as {wanted}")
        value = math.trunc(float(value))
    return (int(value) - low) % (high - low + 1) + low


class Interpreter:
    """The statements of a function, with its tensors and the values of its sizes and integer scalars."""

    def __init__(self, function: Function, tensors: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.function, self.shapes = function, dict(shapes)
        self.types = {one.name: PLAIN.get(one.type, one.type) for one in function.parameters}
        self.types |= {one.name: PLAIN.get(one.type, one.type) for one in function.results if one.type is not None}
        self.stated = set(self.types)
        self.sizes: dict[str, int] = {}
        self.scalars: set[str] = set()
        for one in function.parameters:
            self.sizes |= {e: n for e, n in zip(one.extents, shapes[one.name], strict=True) if isinstance(e, str)}
        self.constants = dict(self.sizes)
        for one in function.parameters:
            if not one.extents and self.types[one.name] in SPANS:
                self.constants[one.name] = int(tensors[one.name])
        self.held = {name: np.asarray(array) for name, array in tensors.items()}
        self.ranges: list[dict[str, tuple[int, int]]] = []
        while True:
            before = dict(self.types)
            for statement in function.statements:
                self._take_type(statement)
            if before == self.types:
                break

    def _take_type(self, statement: IndexEquation) -> None:
        if statement.target in self.stated:
            return
        given = self.type_of(self._plain(statement, statement.value))
        if given is not None:
            self.types[statement.target] = joined(self.types.get(statement.target, given), given)

    def run(self) -> dict[str, Any]:
        """The tensors that are defined, by name."""
        settled = {"i": "int32", "w": "float"}
        self.types = {name: settled.get(one, one) for name, one in self.types.items()}
        for statement in self.function.statements:
            name = statement.target
            if name not in self.held:
                self.held[name] = np.zeros(self.shapes[name], DTYPES[self.types[name]])
        for statement in self.function.statements:
            self._run(statement)
        return {statement.target: self.held[statement.target] for statement in self.function.statements}

    def _plain(self, statement: IndexEquation, expression: Expression) -> Expression:
        """An expression with what `where` names put in."""
        lets: dict[str, Expression] = {}

        def put(one: Expression) -> Expression:
            return lets[one.name] if isinstance(one, Name) and one.name in lets else rebuilt(one, put)

        for clause in statement.clauses:
            if isinstance(clause, LetClause):
                lets[clause.name] = put(clause.value)
        return put(expression)

    def _indices(self, statement: IndexEquation, parts: list[Expression]) -> list[str]:
        names = [one.name for one in statement.subscripts if isinstance(one, Name)]
        for part in parts:
            for one in walk(part):
                if isinstance(one, Name) and one.name not in self.sizes and self.shapes.get(one.name) != ():
                    names.append(one.name)
        return list(dict.fromkeys(names))

    def _run(self, statement: IndexEquation) -> None:
        value = self._plain(statement, statement.value)
        kept = [self._plain(statement, one.access) for one in statement.clauses if isinstance(one, ExistsClause)]
        names = self._indices(statement, [value, *kept])
        target = [one.name for one in statement.subscripts if isinstance(one, Name)]
        written = {}
        for clause in statement.clauses:
            if isinstance(clause, RangeClause):
                low, high = (self._whole(self._plain(statement, one)) for one in (clause.low, clause.high))
                written[clause.index] = (low, max(low, high))
        trials = Trials(self.shapes, self.constants)
        accesses = [
            (subscript, extent)
            for part in (value, *kept)
            for one in walk(part)
            if isinstance(one, Applied) and one.name in self.shapes
            for subscript, extent in zip(one.arguments, self.shapes[one.name], strict=True)
            if is_affine(subscript, self.constants, set(names))
        ]
        ends = dict(zip(target, self.shapes[statement.target], strict=True))
        ranges = trials.ranges(names, accesses, written, ends, not statement.fresh and bool(statement.reduction))
        self.ranges.append(ranges)
        type_, sign = self.types[statement.target], statement.reduction
        wide = "float" if sign in ("+", "*") and type_ in ("bfloat16", "float16") else type_
        old = self.held[statement.target]
        new = np.array(old, copy=True)
        others = [name for name in names if name not in target]
        for point in itertools.product(*(range(*ranges[name]) for name in target)):
            total: Any = None
            if sign and statement.fresh:
                total = self._neutral(sign, wide)
            elif sign:
                total = cast(old[point].item() if type_ not in FLOATS else old[point], wide)
            for more in itertools.product(*(range(*ranges[name]) for name in others)):
                at = dict(zip((*target, *others), (*point, *more), strict=True))
                given, number = self.value(value, at, False)
                number = cast(number, wide) if given != wide else number
                total = number if not sign else self._combined(sign, wide, total, number)
            new[point] = cast(total, type_)
        self.held[statement.target] = new

    @staticmethod
    def _neutral(sign: str, type_: str) -> Any:
        if sign in ("+", "*"):
            return cast(int(sign == "*"), type_)
        if type_ in FLOATS:
            return FLOATS[type_](-math.inf if sign == "max" else math.inf)
        return SPANS[type_][0 if sign == "max" else 1]

    def _combined(self, operator: str, type_: str, a: Any, b: Any) -> Any:
        """Two numbers of a type, by + - * / % min or max."""
        if operator in ("min", "max"):
            if a != a or b != b:
                return a if a != a else b
            return (min if operator == "min" else max)(a, b)
        if type_ in FLOATS:
            with np.errstate(all="ignore"):
                return {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[operator](a, b)
        a, b = int(a), int(b)
        if operator in ("/", "%"):
            if b == 0:
                raise FaultError("division by 0")
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            return cast(quotient if operator == "/" else a - b * quotient, type_)
        return cast({"+": a + b, "-": a - b, "*": a * b}[operator], type_)

    def _whole(self, expression: Expression) -> int:
        return int(self.value(expression, {}, True)[1])

    def value(self, part: Expression, at: Mapping[str, int], whole: bool) -> Typed:
        """A number and its type at a point; inside subscripts integers are whole numbers."""
        match part:
            case Number(value=number):
                return ("i", number) if isinstance(number, int) else ("w", np.float64(number))
            case Truth(value=truth):
                return "bool", truth
            case Name(name=name):
                if name in at or name in self.sizes:
                    return ("int64" if whole else "int32"), at[name] if name in at else self.sizes[name]
                return self._element(name, (), at, whole)
            case Unary(operator="!", operand=operand):
                return "bool", not self.value(operand, at, whole)[1]
            case Unary(operand=operand):
                type_, number = self.value(operand, at, whole)
                return type_, -number if type_ in FLOATS else cast(-number, type_)
            case Conditional(condition=condition, yes=yes, no=no):
                taken = yes if self.value(condition, at, whole)[1] else no
                type_, number = self.value(taken, at, whole)
                other = self.type_of(no if taken is yes else yes, whole)
                assert other is not None
                both = joined(type_, other)
                return both, cast(number, both) if both != type_ else number
            case Binary(operator=("&&" | "||") as operator, left=left, right=right):
                first = bool(self.value(left, at, whole)[1])
                if first == (operator == "||"):
                    return "bool", first
                return "bool", bool(self.value(right, at, whole)[1])
            case Binary(operator=operator, left=left, right=right):
                return self._binary(operator, self.value(left, at, whole), self.value(right, at, whole))
            case Applied(name=name, arguments=arguments):
                return self._called(name, arguments, at, whole)
        raise AssertionError(part)

    def _binary(self, operator: str, left: Typed, right: Typed) -> Typed:
        type_ = joined(left[0], right[0])
        a, b = (number if given == type_ else cast(number, type_) for given, number in (left, right))
        if operator in ("+", "-", "*", "/", "%"):
            return type_, self._combined(operator, type_, a, b)
        compare = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}
        return "bool", bool(compare[operator])

    def _called(self, name: str, arguments: tuple[Expression, ...], at: Mapping[str, int], whole: bool) -> Typed:
        if name in self.shapes:
            return self._element(name, arguments, at, whole)
        given = [self.value(one, at, whole) for one in arguments]
        if name in DTYPES:
            plain = PLAIN.get(name, name)
            made = cast(given[0][1], plain)
            return ("int64" if whole and plain in SPANS else plain), made
        type_ = given[0][0]
        for other, _ in given[1:]:
            type_ = joined(type_, other)
        numbers = [number if own == type_ else cast(number, type_) for own, number in given]
        if name in ("min", "max"):
            return type_, self._combined(name, type_, *numbers)
        result = type_ if type_ in FLOATS else "w" if type_ == "i" else "float"
        numbers = [float(cast(number, "float") if result == "float" else number) for number in numbers]
        try:
            exact = VALUES[name if name in VALUES else name[:-1]][0](*numbers)
            return result, FLOATS[result](float(exact))
        except (ValueError, ArithmeticError, TypeError) as error:
            raise UndefinedError(f"{name}{numbers}") from error

    def _element(self, name: str, arguments: tuple[Expression, ...], at: Mapping[str, int], whole: bool) -> Typed:
        array, type_ = self.held[name], self.types[name]
        point = tuple(int(self.value(one, at, True)[1]) for one in arguments)
        if any(not 0 <= place < extent for place, extent in zip(point, array.shape, strict=True)):
            raise FaultError(f"{name}{point} is outside")
        number = array[point] if type_ in FLOATS else array[point].item()
        return ("int64" if whole and type_ in SPANS else type_), number

    def type_of(self, part: Expression, whole: bool = False) -> str | None:
        """The type of an expression wherever it is taken; None while it reads what has no type yet."""
        match part:
            case Number(value=number):
                return "i" if isinstance(number, int) else "w"
            case Truth() | Unary(operator="!") | Binary(operator="&&" | "||" | "<" | "<=" | ">" | ">=" | "==" | "!="):
                return "bool"
            case Name(name=name):
                found = self.types.get(name) if name not in self.sizes and self.shapes.get(name) == () else "int32"
                return "int64" if whole and found in SPANS else found
            case Unary(operand=operand):
                return self.type_of(operand, whole)
            case Conditional(yes=yes, no=no):
                return self._joined_types((yes, no), whole)
            case Binary(left=left, right=right):
                return self._joined_types((left, right), whole)
            case Applied(name=name, arguments=arguments):
                if name in self.shapes or name in DTYPES:
                    found = self.types.get(name) if name in self.shapes else PLAIN.get(name, name)
                    return "int64" if whole and found in SPANS else found
                type_ = self._joined_types(arguments, whole)
                if type_ is None or name in ("min", "max") or type_ in FLOATS:
                    return type_
                return "w" if type_ == "i" else "float"
        raise AssertionError(part)

    def _joined_types(self, parts: tuple[Expression, ...], whole: bool) -> str | None:
        known = [one for one in (self.type_of(part, whole) for part in parts) if one is not None]
        type_ = known[0] if known else None
        for other in known[1:]:
            assert type_ is not None
            type_ = joined(type_, other)
        return type_
