"""Groups of values that share a property, joined pair by pair."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

Value = TypeVar("Value", bound=Hashable)


class Groups(Generic[Value]):
    """A partition of values, each in a group of its own until it is joined with others.

    >>> groups = Groups[str]()
    >>> groups.join("a", "b")
    >>> groups.join("c", "d")
    >>> sorted(groups.beside(["a", "e"]))
    ['a', 'b', 'e']
    """

    def __init__(self) -> None:
        self._parents: dict[Value, Value] = {}

    def join(self, one: Value, other: Value) -> None:
        """Make the groups of two values one."""
        self._parents[self._root(other)] = self._root(one)

    def beside(self, seeds: Iterable[Value]) -> frozenset[Value]:
        """The values in the groups of some values, these included."""
        marked = {self._root(value) for value in seeds}
        return frozenset(value for value in self._parents if self._root(value) in marked)

    def _root(self, value: Value) -> Value:
        parents = self._parents
        while parents.setdefault(value, value) != value:
            parents[value] = parents[parents[value]]
            value = parents[value]
        return value
