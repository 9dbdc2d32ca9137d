"""Values of statements as terms of standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from eqsat.language.comprehension.definitions.elements import element
from eqsat.language.comprehension.definitions.parts import AxedTerm
from eqsat.language.comprehension.definitions.points import ReadGuard
from eqsat.language.comprehension.definitions.sources import TensorRead, padded_source, read, source_of
from eqsat.language.comprehension.definitions.statement import NoDefinition, StatementContext
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.meaning.constants import constant
from eqsat.language.comprehension.meaning.element_types import (
    NAMED,
    UNSIGNED,
    ElementType,
    is_integer,
    promoted,
    settled,
)
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    Name,
    Truth,
    Unary,
)
from eqsat.language.terms import DType

#: Functions of one number by the operators that compute them.
_UNARY = MappingProxyType(
    {
        "fabs": "abs",
        **{
            name: name
            for name in [
                "acos",
                "acosh",
                "asin",
                "asinh",
                "atan",
                "atanh",
                "ceil",
                "cos",
                "cosh",
                "erf",
                "exp",
                "floor",
                "log",
                "sin",
                "sinh",
                "sqrt",
                "tan",
                "tanh",
            ]
        },
    }
)
_BINARY = MappingProxyType(
    {
        "+": "add({}, {})",
        "-": "sub({}, {})",
        "*": "mul({}, {})",
        "/": "div({}, {})",
        "%": "mod({}, {}, fmod=True)",
        "<": "less({}, {})",
        "<=": "less_equal({}, {})",
        ">": "greater({}, {})",
        ">=": "greater_equal({}, {})",
        "==": "equal({}, {})",
        "!=": "not_(equal({}, {}))",
        "&&": "and_({}, {})",
        "||": "or_({}, {})",
    }
)


@dataclass(frozen=True)
class ValueTerms:
    """The values of the expressions of one statement.

    `exact` ones do with infinities and NaN what the function does; others are those of finite elements. Integers of
    subscripts do not wrap.
    """

    statement: StatementContext
    exact: bool
    is_subscript: bool = False

    def of(self, expression: Expression, dtype: DType, guard: ReadGuard | None = None) -> AxedTerm:
        """An expression in an element type, read under a guard."""
        guard = ReadGuard.none(self.statement) if guard is None else guard
        statement, number = self.statement, constant(expression)
        if number is not None:
            return self.number(number, dtype)
        match expression:
            case Name(name=name) if name in statement.sizes and name not in statement.one.every_index:
                statement.require(f"{statement.sizes[name]} >= -{2**31}")  # known: a name is no number
                return AxedTerm(f"fill(shape=(), value={statement.sizes[name]}, dtype={statement.dtype(dtype)})")
            case Name(name=name) if name in statement.one.every_index and not dtype.is_float:
                return self._index(name, dtype)
        given = self.type(expression)
        if isinstance(given, str) and isinstance(expression, Conditional):
            return self._conditional(expression, guard, dtype)
        if isinstance(given, str):
            raise NoDefinition("a number that a condition between numbers decides")
        part = self._of(expression, guard)
        return part if given is dtype else AxedTerm(f"cast({part.text}, to={statement.dtype(dtype)})", part.axes)

    def number(self, number: Any, dtype: DType) -> AxedTerm:
        """A number of an element type."""
        value = float(number) if dtype.is_float else bool(number) if dtype is DType.BOOL else int(number)
        return AxedTerm(f"fill(shape=(), value={value!r}, dtype={self.statement.dtype(dtype)})")

    def type(self, expression: Expression) -> ElementType:
        """The element type of an expression."""
        found = self.statement.types.of(expression)
        assert found is not None
        read_as_it_is = isinstance(expression, Applied) and expression.name in (*self.statement.scope.ranks, *NAMED)
        return DType.INT64 if self.is_subscript and is_integer(found) and not read_as_it_is else found

    def source(self, expression: Expression) -> TensorRead | None:
        """The tensor that an expression reads by sums of indices, one with a border of a number included."""
        tensors = self.statement.scope.ranks
        try:
            match expression:
                case Applied(name=name) if name in tensors and expression.arguments:
                    return source_of(self.statement, expression)
                case Conditional(condition=condition, yes=Applied(name=name) as call, no=no) if name in tensors:
                    border = constant(no)
                    return None if border is None else padded_source(self.statement, call, condition, float(border))
        except NoDefinition:
            pass
        return None

    def _of(self, expression: Expression, guard: ReadGuard) -> AxedTerm:
        match expression:
            case Truth(value=truth):
                return self.number(truth, DType.BOOL)
            case Name(name=name):
                held = name not in self.statement.one.every_index
                return (
                    AxedTerm(self.statement.held(name).text)
                    if held
                    else self._index(name, settled(self.type(expression)))
                )
            case Applied(name=name) if name in self.statement.scope.ranks:
                return element(self.statement, expression, guard, self._place)
            case Applied(name=name) if name in NAMED:
                return self.of(expression.arguments[0], NAMED[name], guard)
            case Applied():
                return self._called(expression, guard)
            case Unary(operator="-", operand=operand) if settled(self.type(operand)) in UNSIGNED:
                dtype = settled(self.type(operand))
                return self.statement.together(_BINARY["-"], [self.number(0, dtype), self.of(operand, dtype, guard)])
            case Unary(operator=operator, operand=operand):
                inner = self.of(operand, settled(self.type(operand)), guard)
                return AxedTerm(f"{'not_' if operator == '!' else 'neg'}({inner.text})", inner.axes)
            case Conditional():
                return self._conditional(expression, guard, settled(self.type(expression)))
            case Binary(operator=operator, left=left, right=right):
                joined = promoted(self.type(left), self.type(right)) or DType.INT64
                joined = DType.INT64 if self.is_subscript and is_integer(joined) else joined
                late = operator in ("&&", "||")
                first = self.of(left, settled(joined), guard)
                second = guard.and_(self.statement, left, first, operator == "&&") if late else guard
                pair = [first, self.of(right, settled(joined), second)]
                if operator in ("/", "%") and not settled(joined).is_float and not guard.is_free:
                    pair[1] = self._divisor(pair[1], right, settled(joined))
                return self.statement.together(_BINARY[operator], pair)
        raise AssertionError(expression)

    def _divisor(self, divisor: AxedTerm, expression: Expression, dtype: DType) -> AxedTerm:
        """An integer that is divided by under a condition, and 1 where it is 0: there nothing asks what is left."""
        if constant(expression):
            return divisor
        zero, one = self.number(0, dtype), self.number(1, dtype)
        is_zero = self.statement.together(_BINARY["=="], [divisor, zero])
        return self.statement.together("where({}, {}, {})", [is_zero, one, divisor])

    def _place(self, expression: Expression, guard: ReadGuard, wide: bool) -> AxedTerm:
        """A subscript as integers that do not wrap."""
        read_as_it_is = isinstance(expression, Applied) and self.statement.types.of(expression) is DType.INT32
        dtype = DType.INT32 if read_as_it_is and not wide else DType.INT64
        return replace(self, is_subscript=True).of(expression, dtype, guard)

    def _conditional(self, expression: Conditional, guard: ReadGuard, dtype: DType) -> AxedTerm:
        padded = self.source(expression)
        if padded is not None and all(len(one.names) < 2 for one in padded.subscripts.values()):
            return read(self.statement, padded)
        condition = self.of(expression.condition, DType.BOOL, guard)
        yes = self.of(expression.yes, dtype, guard.and_(self.statement, expression.condition, condition, True))
        no = self.of(expression.no, dtype, guard.and_(self.statement, expression.condition, condition, False))
        known = self.statement.names.known(condition.text)
        condition = condition if known is None else AxedTerm(known, condition.axes)
        return self.statement.together("where({}, {}, {})", [condition, yes, no])

    def _index(self, name: str, dtype: DType) -> AxedTerm:
        """The values of an index."""
        low = self.statement.symbolic_range(name)
        start = self.statement.text_of([a for a, _ in self.statement.ranges(name)], None if low is None else low[0])
        count = self.statement.count_text(name)
        begin = f", start={start}" if start != "0" else ""
        return AxedTerm(f"iota(size={count}{begin}, dtype={self.statement.dtype(dtype)})", (name,))

    def _called(self, call: Applied, guard: ReadGuard) -> AxedTerm:
        dtype = settled(self.type(call))
        given = [self.of(one, dtype, guard) for one in call.arguments]
        if call.name in mathematics.CHOOSING:
            return self.statement.together(f"{call.name}imum({{}}, {{}})", given)
        known = mathematics.function(call.name)
        assert known is not None
        if known.name in _UNARY:
            return AxedTerm(f"{_UNARY[known.name]}({given[0].text})", given[0].axes)
        if known.name == "rsqrt":
            return AxedTerm(f"div({self.number(1, dtype).text}, sqrt({given[0].text}))", given[0].axes)
        if known.name == "pow":
            return self.statement.together("pow({}, {})", given)
        if known.name in ("fmax", "fmin"):
            return self._extreme(known.name, call, given)
        raise NoDefinition(f"{call.name}, which no operator computes")

    def _extreme(self, name: str, call: Applied, given: Sequence[AxedTerm]) -> AxedTerm:
        """The larger or the smaller of two numbers, the other one beside NaN."""
        made = self.statement.together(f"{name[1:]}imum({{}}, {{}})", given)
        if not self.exact:
            return made
        for one, other, expression in zip(given, reversed(given), call.arguments, strict=True):
            if constant(expression) is None:
                made = self.statement.together("where(isnan({}), {}, {})", [one, other, made])
        return made
