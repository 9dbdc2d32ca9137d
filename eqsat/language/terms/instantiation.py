"""Patterns instantiated: the one walk over a pattern, whatever is made of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from eqsat.language.terms.pattern import ABSENT, App, Pattern, Spread, Var

Scope = TypeVar("Scope")
Value = TypeVar("Value")


class Target(Protocol[Scope, Value]):
    """A maker of values of patterns: terms, e-nodes, arrays, formulas, text. A scope says what names stand for."""

    def variable(self, name: str, scope: Scope) -> Value:
        """The value of a variable."""

    def members(self, spread: Spread, scope: Scope) -> Iterable[Value]:
        """The values of the elements of a sequence that a spread takes, as *xs and *xs[i:j] do."""

    def elements(self, spread: Spread, scope: Scope) -> Iterator[Scope]:
        """The scope of each element that a spread runs over, as *[relu(x) for x in xs] does, one after the other.

        The next one is asked for once the value of the one before is made.
        """

    def absent(self) -> Value:
        """The value of an operand that is left out."""

    def apply(self, app: App, operands: Sequence[Value], scope: Scope) -> Value:
        """The value of an operator applied to operands."""


def instantiate(pattern: Pattern, scope: Scope, target: Target[Scope, Value]) -> Value:
    """The value that a target makes of a pattern, operands before the operators that read them."""
    if isinstance(pattern, Var):
        return target.variable(pattern.name, scope)
    if pattern.op == ABSENT.op:
        return target.absent()
    return target.apply(pattern, instantiate_all(pattern.operands, scope, target), scope)


def instantiate_all(patterns: Iterable[Pattern | Spread], scope: Scope, target: Target[Scope, Value]) -> list[Value]:
    """The values that a target makes of patterns in order, of a spread one for each element."""
    values: list[Value] = []
    for pattern in patterns:
        if isinstance(pattern, Var):
            values.append(target.variable(pattern.name, scope))
        elif isinstance(pattern, App):
            values.append(instantiate(pattern, scope, target))
        elif pattern.over:
            values += [instantiate(pattern.item, inner, target) for inner in target.elements(pattern, scope)]
        else:
            values += target.members(pattern, scope)
    return values
