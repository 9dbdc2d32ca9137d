"""Names of a comprehension, resolved: which are sizes, tensors, indices and functions, and what each statement reads.

Tensors are always subscripted and sizes never: one name may be both, as W is in a convolution of Tensor Comprehensions.
Any other name means one thing. An index is one by being used; its scope is one statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from eqsat.errors import ComprehensionError
from eqsat.language.comprehension.text.parser import fault
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Expression,
    Function,
    IndexEquation,
    Parameter,
    Position,
    RangeClause,
)


@dataclass(frozen=True)
class ResolvedEquation:
    """A statement whose names have a meaning; `value` and ranges have what `where` names put in.

    `indices` are those of the target, in its order, `reduced` the others, in the order in which they are read.
    `reads` are the elements of tensors that the value reads, those inside subscripts included, and `kept` the ones that
    `where exists` keeps inside their tensors.
    """

    statement: IndexEquation
    indices: tuple[str, ...]
    reduced: tuple[str, ...]
    value: Expression
    ranges: Mapping[str, RangeClause]
    reads: tuple[Applied, ...]
    kept: tuple[Applied, ...]

    @property
    def every_index(self) -> tuple[str, ...]:
        """The indices of the target, then those that are reduced."""
        return self.indices + self.reduced


@dataclass(frozen=True)
class Scope:
    """A function whose names are resolved."""

    source: str
    function: Function
    sizes: tuple[str, ...]
    statements: tuple[ResolvedEquation, ...]
    ranks: Mapping[str, int]
    temporaries: tuple[str, ...]
    #: Returned tensors whose elements are read before they are defined: a caller gives them.
    updated: tuple[str, ...]
    warnings: tuple[str, ...] = field(default=())

    @cached_property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters by name."""
        return {one.name: one for one in self.function.parameters}

    @property
    def defined(self) -> tuple[str, ...]:
        """The tensors that statements define, in their order."""
        return tuple(dict.fromkeys(one.statement.target for one in self.statements))

    def fault(
        self, kind: type[ComprehensionError], what: str, place: Position, *, expected: str = "", remedy: str = ""
    ) -> ComprehensionError:
        """An error at a place of the function's source."""
        name = self.function.name
        return fault(kind, what, self.source, place, function=name, expected=expected, remedy=remedy)
