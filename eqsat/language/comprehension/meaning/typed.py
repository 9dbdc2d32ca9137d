"""Element types of a comprehension: those of its tensors, and of every expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.errors import ComprehensionTypeError
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.meaning.element_types import (
    NAMED,
    ElementType,
    is_float,
    is_integer,
    promoted,
    settled,
    shown,
)
from eqsat.language.comprehension.meaning.literals import check_literals
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    Name,
    Number,
    Position,
    Truth,
    Unary,
)
from eqsat.language.terms import DType

_COMPARED = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class ElementTypes:
    """The element types of the tensors of a function, those of targets as far as they are known."""

    scope: Scope
    tensors: Mapping[str, ElementType] = field(default_factory=dict)

    def of(self, expression: Expression) -> ElementType | None:
        """The type of an expression; None where it reads a tensor whose type is not known yet.

        ComprehensionTypeError where types do not go together.
        """
        match expression:
            case Number():
                return "integer" if expression.is_integer else "float"
            case Truth():
                return DType.BOOL
            case Name(name=name):
                rank = self.scope.ranks.get(name)
                return self.tensors.get(name) if rank == 0 and name not in self.scope.sizes else DType.INT32
            case Applied():
                return self._of_call(expression)
            case Unary(operator=operator, operand=operand, place=place):
                given = self.of(operand)
                if operator == "!":
                    self._check_bool(given, operand.place)
                    return DType.BOOL
                if given is DType.BOOL:
                    raise self._fault("- of bool", place, "a number", "cast it: int32(…)")
                return given
            case Binary():
                return self._of_binary(expression)
            case Conditional(condition=condition, yes=yes, no=no, place=place):
                self._check_bool(self.of(condition), condition.place)
                return self._joined(self.of(yes), self.of(no), place)
        raise AssertionError(expression)

    def _of_call(self, call: Applied) -> ElementType | None:
        given = [self.of(one) for one in call.arguments]
        if call.name in self.scope.ranks:
            for one, argument in zip(given, call.arguments, strict=True):
                if one is not None and not is_integer(one):
                    raise self._fault(
                        f"a subscript of type {shown(one)}",
                        argument.place,
                        "an integer",
                        "cast it: int32(…)",
                    )
            return self.tensors.get(call.name)
        if call.name in NAMED:
            return NAMED[call.name]
        joined = given[0]
        for one in given[1:]:
            joined = self._joined(joined, one, call.place)
        if joined is None:
            return None
        if call.name in mathematics.CHOOSING:
            if joined is DType.BOOL:
                raise self._fault(f"{call.name} of bool", call.place, "numbers", "write || or &&")
            return joined
        return joined if is_float(joined) else "float" if joined == "integer" else DType.FLOAT32

    def _of_binary(self, expression: Binary) -> ElementType | None:
        operator, place = expression.operator, expression.place
        left, right = self.of(expression.left), self.of(expression.right)
        if operator in ("&&", "||"):
            self._check_bool(left, expression.left.place)
            self._check_bool(right, expression.right.place)
            return DType.BOOL
        joined = self._joined(left, right, place)
        inner = expression.left
        if operator in _COMPARED[:4] and isinstance(inner, Binary) and inner.operator in _COMPARED:
            raise self._fault(f"{operator} of a comparison", place, "a number", f"write … && … {operator} …")
        if operator in _COMPARED:
            return DType.BOOL
        if joined is DType.BOOL:
            raise self._fault(f"{operator} of bool", place, "numbers", "cast them: int32(…), or write || or &&")
        if operator == "%" and joined is not None and is_float(joined):
            raise self._fault("% of floats", place, "integers", "write fmod(…, …)")
        return joined

    def _joined(self, a: ElementType | None, b: ElementType | None, place: Position) -> ElementType | None:
        if a is None or b is None:
            return a if b is None else b
        joined = promoted(a, b)
        if joined is None:
            raise self._fault(
                f"{shown(a)} with {shown(b)}",
                place,
                "a type that holds both",
                "cast one of them: int64(…) or uint64(…)",
            )
        return joined

    def _check_bool(self, given: ElementType | None, place: Position) -> None:
        if given is not None and given is not DType.BOOL:
            raise self._fault(f"{shown(given)} as a condition", place, "a bool", "compare it: … != 0")

    def _fault(self, what: str, place: Position, expected: str, remedy: str) -> Exception:
        return self.scope.fault(ComprehensionTypeError, what, place, expected=expected, remedy=remedy)


def typed(scope: Scope) -> Mapping[str, DType]:
    """The element type of each tensor of a function: as it is stated, or that of all that is assigned to it.

    ComprehensionTypeError where a stated type does not hold what is assigned.
    """
    stated = {one.name: NAMED[one.type] for one in scope.function.results if one.type is not None}
    types: dict[str, ElementType] = {one.name: NAMED[one.type] for one in scope.function.parameters}
    types.update(stated)
    while True:
        before = dict(types)
        for one in scope.statements:
            _take(ElementTypes(scope, types), one, stated, types)
        if types == before:
            break
    known = ElementTypes(scope, {name: settled(one) for name, one in types.items()})
    for one in scope.statements:
        _check(known, one)
    found = {name: settled(one) for name, one in types.items()}
    check_literals(scope, found)
    return found


def _take(
    known: ElementTypes, one: ResolvedEquation, stated: Mapping[str, DType], types: dict[str, ElementType]
) -> None:
    """The type of a target with one more value that is assigned to it."""
    target, given = one.statement.target, known.of(one.value)
    if given is None:
        return
    before = types.get(target, given)
    joined = promoted(before, given)
    if target in stated:
        if joined != before:
            raise known.scope.fault(
                ComprehensionTypeError,
                f"{shown(given)} assigned to {target}, which is {shown(before)}",
                one.statement.place,
                expected=f"a value that {shown(before)} holds",
                remedy=f"cast it: {shown(before)}(…)",
            )
    elif joined is None:
        raise known.scope.fault(
            ComprehensionTypeError,
            f"{target} is {shown(before)} and {shown(given)}",
            one.statement.place,
            expected="a type that holds both",
            remedy="cast one of them",
        )
    else:
        types[target] = joined


def _check(known: ElementTypes, one: ResolvedEquation) -> None:
    """Reductions are of numbers, and every expression has a type once those of all tensors are known."""
    for call in one.kept:
        known.of(call)
    given = known.of(one.value)
    if given is None:
        raise known.scope.fault(
            ComprehensionTypeError,
            f"no type of {one.statement.target} follows from what it is made of",
            one.statement.place,
            expected="a value that does not come from itself alone",
            remedy="state the type of the result: -> (float(…) …)",
        )
    reduction = one.statement.reduction
    if reduction and known.tensors[one.statement.target] is DType.BOOL:
        raise known.scope.fault(
            ComprehensionTypeError,
            f"{one.statement.assignment} of bool",
            one.statement.place,
            expected="numbers",
            remedy="cast the value: int32(…)",
        )
