"""Functions under other names, to be put together, and the operands that a function takes, as conditions of laws."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Clause,
    ExistsClause,
    Expression,
    IndexEquation,
    LetClause,
    Name,
    Number,
    Parameter,
    RangeClause,
    Returned,
    rebuilt,
)


@dataclass(frozen=True)
class Renaming:
    """A function under other names: each with a mark before it, but for those that are given."""

    function: TensorFunction
    mark: str
    sizes: Mapping[str, Expression]
    tensors: Mapping[str, str]

    def tensor(self, name: str) -> str:
        """The other name of a tensor."""
        return self.tensors.get(name, self.mark + name)

    def extents(self, extents: tuple[str | int, ...] | None) -> tuple[str | int, ...]:
        """The extents of a tensor under the other names."""
        return tuple(self._extent(one) for one in extents or ())

    def _extent(self, extent: str | int) -> str | int:
        if isinstance(extent, int):
            return extent
        match self.sizes.get(extent):
            case Name(name=name):
                return name
            case Number(value=int() as value):
                return value
        return self.mark + extent

    def parameters(self, names: Sequence[str] | None = None) -> Iterator[Parameter]:
        """The parameters, or those of some names."""
        for one in self.function.scope.function.parameters:
            if names is None or one.name in names:
                yield replace(one, name=self.tensor(one.name), extents=self.extents(one.extents))

    def result(self, one: Returned) -> Returned:
        """A result."""
        return replace(one, name=self.tensor(one.name), extents=one.extents and self.extents(one.extents))

    def statements(self) -> Iterator[IndexEquation]:
        """The statements in their order."""
        for one in self.function.scope.function.statements:
            yield replace(
                one,
                target=self.tensor(one.target),
                subscripts=tuple(map(self.expression, one.subscripts)),
                value=self.expression(one.value),
                clauses=tuple(map(self.clause, one.clauses)),
            )

    def expression(self, expression: Expression) -> Expression:
        """An expression."""
        match expression:
            case Name(name=name):
                known = self.sizes.get(name) if name in self.function.scope.sizes else None
                return known if known is not None else Name(self.tensor(name))
            case Applied(name=name, arguments=arguments) if name in self.function.scope.ranks:
                return Applied(self.tensor(name), tuple(map(self.expression, arguments)))
        return rebuilt(expression, self.expression)

    def clause(self, clause: Clause) -> Clause:
        """A clause."""
        match clause:
            case RangeClause(index=index, low=low, high=high):
                return replace(clause, index=self.mark + index, low=self.expression(low), high=self.expression(high))
            case LetClause(name=name, value=value):
                return replace(clause, name=self.mark + name, value=self.expression(value))
            case ExistsClause(access=access):
                made = self.expression(access)
                assert isinstance(made, Applied)
                return replace(clause, access=made)


def operand_conditions(function: TensorFunction, variables: Sequence[str]) -> Iterator[str]:
    """The conditions under which operands have the shapes that a function states."""
    first: dict[str, str] = {}
    for variable, operand in zip(variables, function.operands, strict=True):
        extents = function.scope.parameters[operand].extents
        yield f"rank({variable}) == {len(extents)}"
        for axis, extent in enumerate(extents):
            here = f"dim({variable}, {axis})"
            there = str(extent) if isinstance(extent, int) else first.setdefault(extent, here)
            if there != here:
                yield f"{here} == {there}"
