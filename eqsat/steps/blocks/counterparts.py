"""Values of one block and those that play the same part in the next, as far as an e-graph knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from eqsat.extract.tensors.assembly import Assembled
from eqsat.language.graphs.repeats import Repeat
from eqsat.system.deadline import check


class Counterparts:
    """For each value of a choice, the one that plays its part a block later: of the same term over the next block.

    Values of the model say of each other where they stand in their blocks; what rules made of those of one block has a
    counterpart where they made the same of those of the next.
    """

    def __init__(self, assembled: Assembled, repeat: Repeat) -> None:
        self.snapshot, self.repeat = assembled.snapshot, repeat
        self.eclass = {n: assembled.origins.get(k, k) for k, n in assembled.decoded.names.items()}
        self.holders: dict[int, list[str]] = {}
        for name, eclass in self.eclass.items():
            self.holders.setdefault(eclass, []).append(name)

    def next(self, name: str) -> list[str]:
        """The values of the choice that are what a value is, one block later."""
        return self.holders.get(self._next.get(self.eclass.get(name, -1), -1), [])

    @cached_property
    def _next(self) -> dict[int, int]:
        """The e-class one block later of each: those of the model first, then those of equal terms over known ones."""
        holder = {value: k for k, facts in self.snapshot.classes.items() for value in facts.values}
        later = dict(self._stated(holder))
        keys = {(n.op, n.attrs, n.operands): n.eclass for n in self.snapshot.nodes}
        left = [n for n in self.snapshot.nodes if n.operands and n.eclass not in later]
        while left:
            known = len(later)
            waiting = []
            for node in left:
                check()
                if node.eclass in later:
                    continue
                if not all(k in later for k in node.operands):
                    waiting.append(node)
                    continue
                key: Any = (node.op, node.attrs, tuple(later[k] for k in node.operands))
                if key in keys:
                    later[node.eclass] = keys[key]
            if len(later) == known:
                break
            left = waiting
        return later

    def _stated(self, holder: dict[str, int]) -> Iterator[tuple[int, int]]:
        """The e-classes of values of the model with those a block later; what blocks share stays as it is."""
        repeat = self.repeat
        first, second, last = (repeat.values(index) for index in (0, 1, repeat.count - 1))
        owned = {holder[v] for values in (first, second, last) for v in values if v in holder}
        for node in self.snapshot.nodes:
            if not node.operands and node.eclass not in owned:
                yield node.eclass, node.eclass
        for eclass in holder.values():
            if eclass not in owned:
                yield eclass, eclass
        for values, following in ((second, last), (first, second)):
            for one, other in zip(values, following, strict=True):
                if one in holder and other in holder:
                    yield holder[one], holder[other]
