"""Statements of a gradient under construction, their names, and the ranges of their indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.errors import UsageError
from eqsat.language.comprehension.extents.expressions import extent_expression
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Clause,
    Expression,
    IndexEquation,
    Name,
    Number,
    RangeClause,
    expressions_of,
    walk,
)
from eqsat.language.terms import Dim


@dataclass
class StatementWriter:
    """Statements beside those of a function, under names that nothing has; `begun` are targets that are defined."""

    function: TensorFunction
    statements: list[IndexEquation] = field(default_factory=list, init=False)
    begun: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        scope = self.function.scope
        self.names = {*scope.ranks, *scope.sizes, *(i for one in scope.statements for i in one.every_index)}

    @property
    def inferred(self) -> Inferred:
        """The ranges and shapes of the function for all sizes; UsageError where there are none."""
        found = self.function.symbolic
        if found is None:
            raise self.refused("ranges that depend on integer scalars or quotients by sizes")
        return found

    def refused(self, what: str) -> UsageError:
        """The error that something has no gradient."""
        return UsageError(
            f"{what} has no gradient here",
            where=self.function.name,
            expected="tensors of its own, and ranges of sizes alone",
        )

    def fresh(self, stem: str) -> str:
        """A name that nothing has."""
        name, number = stem, 1
        while name in self.names:
            name, number = f"{stem}_{number}", number + 1
        self.names.add(name)
        return name

    def extents(self, name: str) -> tuple[str | int, ...]:
        """The extents of a result as a parameter states them: sizes, numbers, and names for what is neither."""
        dims = self.inferred.shapes[name]
        sizes = self.function.scope.sizes
        return tuple(d if isinstance(d, int) else str(d) if str(d) in sizes else self.fresh("L") for d in dims)

    def define(self, target: str, like: str, value: Callable[[list[Name]], Expression]) -> None:
        """Define a whole tensor of the shape of another one."""
        shape = self.inferred.shapes[like]
        at = [self.fresh("p") for _ in shape]
        clauses = self.ranges(at, dict(zip(at, ((0, dim) for dim in shape), strict=True)))
        self.add(target, at, value([Name(one) for one in at]), "", False, clauses)
        self.begun.add(target)

    def add(
        self,
        target: str,
        indices: Sequence[str],
        value: Expression,
        reduction: str,
        fresh: bool,
        clauses: tuple[Clause, ...],
    ) -> None:
        """Add a statement."""
        subscripts = tuple(Name(index) for index in indices)
        self.statements.append(IndexEquation(target, subscripts, reduction, fresh, value, clauses))

    def ranges(self, indices: Sequence[str], ranges: Mapping[str, tuple[Dim, Dim]]) -> tuple[Clause, ...]:
        """The clauses that state the ranges of indices."""
        return tuple(RangeClause(i, self.size(ranges[i][0]), self.size(ranges[i][1])) for i in indices)

    def size(self, dim: Dim) -> Expression:
        """An extent as an expression of sizes."""
        found = extent_expression(dim)
        if found is None:
            raise self.refused(f"the range {dim}")
        return found


def needed(statements: Sequence[IndexEquation], results: Iterable[str]) -> tuple[IndexEquation, ...]:
    """The statements that results follow from."""
    names, kept = set(results), []
    for one in reversed(statements):
        if one.target in names:
            kept.append(one)
            read = [one.value, *(part for clause in one.clauses for part in expressions_of(clause))]
            names |= {part.name for value in read for part in walk(value) if isinstance(part, (Applied, Name))}
    return tuple(reversed(kept))


def element_of(name: str, at: Sequence[Expression]) -> Applied | Name:
    """An element of a tensor, or a scalar."""
    return Applied(name, tuple(at)) if at else Name(name)


def moved(index: Expression, sign: str, low: Expression) -> Expression:
    """An index moved by where its range begins: itself where that is 0."""
    return index if low == Number(0) else Binary(sign, index, low)
