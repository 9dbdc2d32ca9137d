"""Congruence closure that remembers why things are equal.

The proof forest is that of Nieuwenhuis and Oliveras, Proof-producing congruence closure (2005): each union adds one
edge, and the only path between two items uses edges that were there when they became equal.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edge:
    """One step from an item to an equal one: by an equation, or by congruence where that is None.

    `backwards` says that the equation is used right to left, `time` in which order unions were made.
    """

    source: int
    target: int
    equation: int | None
    backwards: bool
    time: int


class Forest:
    """Items numbered from 0, each a symbol over other items; equalities that are stated, and those that follow.

    An item takes part in congruence once it is revived.
    """

    def __init__(self) -> None:
        self._symbols: list[Hashable] = []
        self._children: list[tuple[int, ...]] = []
        self._rep: list[int] = []
        self._members: dict[int, list[int]] = {}
        self._users: dict[int, list[int]] = {}
        self._table: dict[tuple[Hashable, tuple[int, ...]], int] = {}
        self._edges: list[Edge | None] = []
        #: The union that ended an item's time as representative: which one took its place, and when.
        self._ended: dict[int, tuple[int, int]] = {}
        self._live: set[int] = set()
        self._time = 0

    def __len__(self) -> int:
        return len(self._symbols)

    def intern(self, symbol: Hashable, children: tuple[int, ...]) -> int:
        """A new item, which is only written down."""
        number = len(self._symbols)
        self._symbols.append(symbol)
        self._children.append(children)
        self._rep.append(number)
        self._members[number] = [number]
        self._edges.append(None)
        return number

    def revive(self, number: int) -> None:
        """Let an item take part in congruence from now on."""
        if number in self._live:
            return
        self._live.add(number)
        for child in set(self._children[number]):
            self._users.setdefault(self.find(child), []).append(number)
        known = self._table.setdefault(self._signature(number), number)
        if known != number:
            self.equate(number, known, None)

    def find(self, number: int) -> int:
        """The item that stands for all that are equal to one."""
        return self._rep[number]

    def lookup(self, symbol: Hashable, children: tuple[int, ...]) -> int | None:
        """An item with this symbol over equal items, if there is one."""
        return self._table.get((symbol, tuple(self.find(c) for c in children)))

    def children(self, number: int) -> tuple[int, ...]:
        """The items that one is made of."""
        return self._children[number]

    def members(self, number: int) -> list[int]:
        """The items that are equal to one."""
        return self._members[self.find(number)]

    def equate(self, left: int, right: int, equation: int | None) -> None:
        """State an equation, and draw its consequences."""
        pending: list[tuple[int, int, int | None]] = [(left, right, equation)]
        while pending:
            a, b, why = pending.pop()
            x, y = self.find(a), self.find(b)
            if x == y:
                continue
            self._time += 1
            self._link(a, b, why)
            if len(self._members[x]) > len(self._members[y]):
                x, y = y, x
            self._ended[x] = (y, self._time)
            users = self._users.pop(x, [])
            for member in self._members[x]:
                self._rep[member] = y
            self._members[y] += self._members.pop(x)
            for user in users:
                known = self._table.setdefault(self._signature(user), user)
                if self.find(known) != self.find(user):
                    pending.append((user, known, None))
            self._users.setdefault(y, []).extend(users)

    def equal_before(self, left: int, right: int, time: int) -> bool:
        """Return whether two items were equal before the union made at a time."""
        return self._find_before(left, time) == self._find_before(right, time)

    def path(self, left: int, right: int) -> list[Edge]:
        """The edges between two equal items; ValueError where they are not equal."""
        if self.find(left) != self.find(right):
            raise ValueError(f"items {left} and {right} are not equal")
        ups: list[list[Edge]] = []
        depth: dict[int, int] = {}
        for start in (left, right):
            walk: list[Edge] = []
            node = start
            while (edge := self._edges[node]) is not None and not (start == right and node in depth):
                if start == left:
                    depth[node] = len(walk)
                walk.append(edge)
                node = edge.target
            if start == left:
                depth[node] = len(walk)
            ups.append(walk)
        meeting = ups[1][-1].target if ups[1] else right
        return ups[0][: depth[meeting]] + [_turned(e) for e in reversed(ups[1])]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _signature(self, number: int) -> tuple[Hashable, tuple[int, ...]]:
        return self._symbols[number], tuple(self.find(c) for c in self._children[number])

    def _find_before(self, number: int, time: int) -> int:
        while (end := self._ended.get(number)) is not None and end[1] < time:
            number = end[0]
        return number

    def _link(self, a: int, b: int, why: int | None) -> None:
        """Make a the root of its tree by turning the edges above it, then hang it under b."""
        edge = self._edges[a]
        self._edges[a] = Edge(a, b, why, False, self._time)
        while edge is not None:
            above = self._edges[edge.target]
            self._edges[edge.target] = _turned(edge)
            edge = above


def _turned(edge: Edge) -> Edge:
    return Edge(edge.target, edge.source, edge.equation, not edge.backwards, edge.time)
