"""Syntax trees of tensor comprehensions, after the grammar of Vasilache et al. (arXiv 1802.04730).

Trees are equal where they say the same: the places that their parts were read at do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias


@dataclass(frozen=True)
class Position:
    """A line and a column of a source, both counted from 1."""

    line: int
    column: int


#: The place of parts that were not read from a source.
NOWHERE = Position(0, 0)


@dataclass(frozen=True)
class Number:
    """A literal: an int or a float."""

    value: int | float
    place: Position = field(default=NOWHERE, compare=False)

    @property
    def is_integer(self) -> bool:
        """True of a literal that was written without a point or an exponent."""
        return isinstance(self.value, int)


@dataclass(frozen=True)
class Truth:
    """The literal true or false."""

    value: bool
    place: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Name:
    """A name on its own: an index, a size, a scalar, or a name that `where` gives a value to."""

    name: str
    place: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Applied:
    """A name with arguments: an element of a tensor, a function of numbers, or a cast."""

    name: str
    arguments: tuple[Expression, ...]
    place: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Unary:
    """An operator of one operand: - or !."""

    operator: str
    operand: Expression
    place: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Binary:
    """An operator between two operands."""

    operator: str
    left: Expression
    right: Expression
    place: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Conditional:
    """condition ? yes : no."""

    condition: Expression
    yes: Expression
    no: Expression
    place: Position = field(default=NOWHERE, compare=False)


Expression: TypeAlias = "Number | Truth | Name | Applied | Unary | Binary | Conditional"


@dataclass(frozen=True)
class Parameter:
    """A parameter, of no extents where it is a scalar; extents are names of sizes or numbers."""

    type: str
    name: str
    extents: tuple[str | int, ...] = ()
    place: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class Returned:
    """A tensor that a function returns, with the element type and the extents that it states, if any."""

    name: str
    type: str | None = None
    extents: tuple[str | int, ...] | None = None
    place: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class RangeClause:
    """where index in low:high, half-open."""

    index: str
    low: Expression
    high: Expression
    place: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class LetClause:
    """where name = value."""

    name: str
    value: Expression
    place: Position = field(default=NOWHERE, compare=False)


@dataclass(frozen=True)
class ExistsClause:
    """where exists T(…): ranges keep the access inside T, which is not read."""

    access: Applied
    place: Position = field(default=NOWHERE, compare=False)


Clause: TypeAlias = RangeClause | LetClause | ExistsClause


@dataclass(frozen=True)
class IndexEquation:
    """The definition or the update of all elements of a tensor.

    `reduction` is "", "+", "*", "min" or "max"; `fresh` says that a reduction begins at its neutral element.
    """

    target: str
    subscripts: tuple[Expression, ...]
    reduction: str
    fresh: bool
    value: Expression
    clauses: tuple[Clause, ...] = ()
    place: Position = field(default=NOWHERE, compare=False)

    @property
    def is_definition(self) -> bool:
        """True where nothing that the tensor held before goes into its new elements."""
        return not self.reduction or self.fresh

    @property
    def element(self) -> str:
        """The element of the target that the equation is of, as text."""
        names = [one.name for one in self.subscripts if isinstance(one, Name)]
        return f"{self.target}({', '.join(names)})" if names else self.target

    @property
    def assignment(self) -> str:
        """The sign between target and value."""
        return f"{self.reduction}={'!' if self.fresh else ''}"


@dataclass(frozen=True)
class Function:
    """A function on tensors."""

    name: str
    parameters: tuple[Parameter, ...]
    results: tuple[Returned, ...]
    statements: tuple[IndexEquation, ...]
    place: Position = field(default=NOWHERE, compare=False)


def expressions_of(clause: Clause) -> tuple[Expression, ...]:
    """The expressions of a clause, from left to right."""
    match clause:
        case RangeClause(low=low, high=high):
            return low, high
        case LetClause(value=value):
            return (value,)
        case ExistsClause(access=access):
            return (access,)


def children(expression: Expression) -> tuple[Expression, ...]:
    """The expressions right below an expression, from left to right."""
    match expression:
        case Applied(arguments=arguments):
            return arguments
        case Unary(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return left, right
        case Conditional(condition=condition, yes=yes, no=no):
            return condition, yes, no
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """An expression and all below it, each before its children."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def measure(expression: Expression, measured: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """The number of parts of an expression, and the depth to which they are nested; shared ones are looked at once.

    Measures are kept by identity: expressions have to outlive them.
    """
    found = measured.get(id(expression))
    if found is None:
        below = [measure(child, measured) for child in children(expression)]
        found = (1 + sum(parts for parts, _ in below), 1 + max((depth for _, depth in below), default=0))
        measured[id(expression)] = found
    return found


def rebuilt(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """An expression whose children are changed.

    >>> print(rebuilt(Unary("-", Name("x")), lambda _: Number(1)))
    Unary(operator='-', operand=Number(value=1, place=Position(line=0, column=0)), place=Position(line=0, column=0))
    """
    match expression:
        case Applied(arguments=arguments):
            return replace(expression, arguments=tuple(map(change, arguments)))
        case Unary(operand=operand):
            return replace(expression, operand=change(operand))
        case Binary(left=left, right=right):
            return replace(expression, left=change(left), right=change(right))
        case Conditional(condition=condition, yes=yes, no=no):
            return replace(expression, condition=change(condition), yes=change(yes), no=change(no))
    return expression
