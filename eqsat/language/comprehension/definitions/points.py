"""Numbers that depend on indices alone, at each point of the box of a trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.comprehension.definitions.parts import AxedTerm
from eqsat.language.comprehension.definitions.statement import StatementContext
from eqsat.language.comprehension.evaluation import COMPUTED
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

#: The arithmetic of integers.
_INTEGERS = FloatNamespace()
_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        **COMPUTED,
        "/": lambda a, b: _INTEGERS.divide(a, np.where(np.equal(b, 0), 1, b)),
        "%": lambda a, b: np.fmod(a, np.where(np.equal(b, 0), 1, b)),
        "&&": np.logical_and,
        "||": np.logical_or,
        "min": np.minimum,
        "max": np.maximum,
    }
)


@dataclass(frozen=True)
class ReadGuard:
    """The conditions that an expression is read under: where they hold in each trial, as far as indices say.

    `term` is what they all are; there is none where nothing is asked. `reads` says that elements decide some of them.
    """

    truths: tuple[Any, ...]
    term: AxedTerm | None = None
    reads: bool = False

    @property
    def is_free(self) -> bool:
        """True where nothing is asked."""
        return self.term is None

    @classmethod
    def none(cls, statement: StatementContext) -> ReadGuard:
        """The guard of what is always read."""
        return cls(tuple(np.bool_(True) for _ in statement.trials))

    def and_(self, statement: StatementContext, condition: Expression, term: AxedTerm, holds: bool) -> ReadGuard:
        """The guard of what is read where a condition, which is a term, holds, or does not, too."""
        truths, reads = [], self.reads
        for number, truth in enumerate(self.truths):
            found = points_of(statement, condition, number)
            reads = reads or found is None
            more = np.bool_(True) if found is None else found if holds else np.logical_not(found)
            truths.append(np.logical_and(truth, more))
        own = term if holds else AxedTerm(f"not_({term.text})", term.axes)
        both = own if self.term is None else statement.together("and_({}, {})", [self.term, own])
        return ReadGuard(tuple(truths), both, reads)


def points_of(statement: StatementContext, expression: Expression, number: int) -> Any:
    """An expression of indices and sizes at each point of the box of a trial; None where it reads a tensor."""
    match expression:
        case Number(value=int() as value):
            return np.asarray(value)
        case Truth(value=truth):
            return np.bool_(truth)
        case Name(name=name):
            return _named(statement, name, number)
        case Unary(operator=operator, operand=operand):
            inner = points_of(statement, operand, number)
            return None if inner is None else np.logical_not(inner) if operator == "!" else -inner
        case Binary(operator=operator, left=left, right=right):
            return _joined(statement, operator, left, right, number)
        case Applied(name=("min" | "max") as name, arguments=(left, right)):
            return _joined(statement, name, left, right, number)
        case Conditional(condition=condition, yes=yes, no=no):
            parts = [points_of(statement, one, number) for one in (condition, yes, no)]
            return None if any(one is None for one in parts) else np.where(*parts)
    return None


def _joined(statement: StatementContext, operator: str, left: Expression, right: Expression, number: int) -> Any:
    a, b = points_of(statement, left, number), points_of(statement, right, number)
    return None if a is None or b is None else _OPERATIONS[operator](a, b)


def _named(statement: StatementContext, name: str, number: int) -> Any:
    indices = statement.one.every_index
    if name in indices:
        low, high = statement.ranges(name)[number]
        shape = [1] * len(indices)
        shape[indices.index(name)] = high - low
        return np.arange(low, high).reshape(shape)
    size = statement.trials[number].inferred.known.get(name)
    return np.asarray(size) if isinstance(size, int) else None
