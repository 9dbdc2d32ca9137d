"""Bounds proved for every size, by Z3.

A subscript is looked at where it is read: its indices in their ranges, whatever the sizes are, under the conditions of
?:, && and ||. Elements of tensors and what else is not arithmetic of integers may be any number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eqsat.language.comprehension.extents.bounds import guarded_reads
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.meaning.scopes import Scope
from eqsat.language.comprehension.text.printer import print_expression
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
from eqsat.language.terms import Dim
from eqsat.language.terms.dims import Sym

#: The steps of Z3 for one subscript.
STEPS = 4_000_000
_COMPARED = ("<", "<=", ">", ">=", "==", "!=")


@dataclass(frozen=True)
class OpenBound:
    """A subscript that is not proved to stay inside its tensor: `sizes` are some with which it does not, if known."""

    element: str
    tensor: str
    axis: int
    place: Position
    sizes: Mapping[str, int] | None


def open_bounds(scope: Scope, inferred: Inferred) -> Iterator[OpenBound]:
    """The subscripts of a function that pass their bounds for some sizes, or that Z3 does not decide."""
    import z3

    for one, ranges in zip(scope.statements, inferred.ranges, strict=True):
        for read in guarded_reads(one.value, scope.ranks):
            terms = _SizeTerms(scope, inferred.known)
            solver = z3.SolverFor("QF_NIA", ctx=terms.context)
            solver.set("rlimit", STEPS)
            for name, (low, high) in ranges.items():
                index = terms.unknown(name)
                solver.add(terms.dim(low) <= index, index < terms.dim(high))
            for condition, holds in read.conditions:
                known = terms.truth(condition)
                solver.add(known if holds else z3.Not(known))
            for agreement in inferred.agreements:
                solver.add(terms.dim(agreement.first) == terms.dim(agreement.second))
            for axis, subscript in enumerate(read.call.arguments):
                place = terms.number(subscript)
                extent = terms.dim(inferred.shapes[read.call.name][axis])
                solver.push()
                solver.add(*terms.sizes_are_some(), z3.Or(place < 0, place >= extent))
                answer = solver.check()
                sizes = terms.sizes_of(solver.model()) if answer == z3.sat else None
                solver.pop()
                if answer != z3.unsat:
                    name = read.call.name
                    yield OpenBound(print_expression(read.call), name, axis, subscript.place, sizes)


class _SizeTerms:
    """Expressions of integers as terms of Z3."""

    def __init__(self, scope: Scope, known: Mapping[str, Dim]) -> None:
        import z3

        self.z3, self.context = z3, z3.Context()
        self.scope, self.known = scope, known
        self._unknown: dict[str, Any] = {}

    def unknown(self, name: str) -> Any:
        """An integer by its name."""
        return self._unknown.setdefault(name, self.z3.Int(name, self.context))

    def sizes_are_some(self) -> list[Any]:
        """No size is negative."""
        return [self.unknown(size) >= 0 for size in self.scope.sizes]

    def sizes_of(self, model: Any) -> dict[str, int]:
        """The sizes of a model."""
        return {
            name: model.eval(self.unknown(name), model_completion=True).as_long()
            for name in (*self.scope.sizes, *(name for name in self.known if name not in self.scope.sizes))
        }

    def dim(self, dim: Dim) -> Any:
        """A dim as a term."""
        if not isinstance(dim, Sym):
            return self.z3.IntVal(int(dim), self.context)
        total = self.z3.IntVal(0, self.context)
        for monomial, coefficient in dim.terms:
            product = self.z3.IntVal(coefficient, self.context)
            for atom, power in monomial:
                factor = self.unknown(atom) if isinstance(atom, str) else self._function(*atom)
                for _ in range(power):
                    product = product * factor
            total = total + product
        return total

    def _function(self, name: str, a: Dim, b: Dim) -> Any:
        x, y = self.dim(a), self.dim(b)
        match name:
            case "floordiv" if isinstance(b, int) and b > 0:
                return x / y
            case "mod" if isinstance(b, int) and b > 0:
                return x % y
            case "min":
                return self.z3.If(x <= y, x, y)
            case "max":
                return self.z3.If(x >= y, x, y)
        return self.unknown(f"{name}({a}, {b})")

    def number(self, expression: Expression) -> Any:
        """An expression of integers as a term."""
        match expression:
            case Number(value=value) if isinstance(value, int):
                return self.z3.IntVal(value, self.context)
            case Name(name=name):
                return self.dim(self.known[name]) if name in self.known else self.unknown(name)
            case Unary(operator="-", operand=operand) if self._is_whole(operand):
                return -self.number(operand)
            case Conditional(condition=condition, yes=yes, no=no):
                return self.z3.If(self.truth(condition), self.number(yes), self.number(no))
            case Applied(name=("min" | "max") as name, arguments=(left, right)) if name not in self.scope.ranks:
                a, b = self.number(left), self.number(right)
                return self.z3.If(a <= b, a, b) if name == "min" else self.z3.If(a >= b, a, b)
            case Binary(operator=operator, left=left, right=right) if self._is_whole(expression):
                return self._combined(operator, self.number(left), self.number(right))
        # Elements may wrap where they are added up.
        return self.unknown(print_expression(expression))

    def _combined(self, operator: str, a: Any, b: Any) -> Any:
        """A sum, product, quotient or remainder, the last two rounded to zero."""
        match operator:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
        magnitude = self.z3.If(a >= 0, a, -a) / self.z3.If(b >= 0, b, -b)
        quotient = self.z3.If((a >= 0) == (b >= 0), magnitude, -magnitude)
        return quotient if operator == "/" else a - b * quotient

    def truth(self, expression: Expression) -> Any:
        """A condition as a term: any truth where it compares what is not known."""
        match expression:
            case Truth(value=value):
                return self.z3.BoolVal(value, self.context)
            case Unary(operator="!", operand=operand):
                return self.z3.Not(self.truth(operand))
            case Binary(operator=("&&" | "||") as operator, left=left, right=right):
                join = self.z3.And if operator == "&&" else self.z3.Or
                return join(self.truth(left), self.truth(right))
            case Binary(operator=operator, left=left, right=right) if operator in _COMPARED:
                if self._is_whole(left) and self._is_whole(right):
                    return _compared(operator, self.number(left), self.number(right))
        return self.z3.Bool(f"? {print_expression(expression)}", self.context)

    def _is_whole(self, expression: Expression) -> bool:
        """True of arithmetic of indices, sizes and integers, which no type wraps."""
        match expression:
            case Number(value=value):
                return isinstance(value, int)
            case Name(name=name):
                return name in self.known or self.scope.ranks.get(name) is None
            case Unary(operator="-", operand=operand):
                return self._is_whole(operand)
            case Binary(operator=operator, left=left, right=right):
                return operator in ("+", "-", "*", "/", "%") and self._is_whole(left) and self._is_whole(right)
            case Applied(name=name, arguments=arguments):
                return name in ("min", "max") and name not in self.scope.ranks and all(map(self._is_whole, arguments))
        return False


def _compared(operator: str, a: Any, b: Any) -> Any:
    match operator:
        case "<":
            return a < b
        case "<=":
            return a <= b
        case ">":
            return a > b
        case ">=":
            return a >= b
        case "==":
            return a == b
    return a != b
