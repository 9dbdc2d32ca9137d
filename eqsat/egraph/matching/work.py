"""The work of matching: queries of egglog, and what is left to do with their matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Binder, Match
from eqsat.egraph.matching.query import Query, Row


@dataclass
class Relation:
    """One egglog query and the left sides that it serves, by the operators they want; `seen` are the rows it had.

    Rows are kept by their hashes, which take a fourth of the memory. Of a million rows, two have one hash by a chance
    of one in 10**7 or so; a row taken for another is a match lost, and no fault.
    """

    name: str
    width: int
    served: dict[tuple[str, ...], list[tuple[Query, Binder]]] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)
    _operators: dict[Row, tuple[str, ...]] = field(default_factory=dict)

    def work(self, egraph: EGraph, rows: Iterable[Row], revisit: bool) -> Iterator[QueryWork]:
        """The work of each query served with rows; a query that egglog answers in full gets only those that are new."""
        every: dict[tuple[str, ...], list[Row]] = {}
        new: dict[tuple[str, ...], list[Row]] = {}
        for row in rows:
            wanted = self._wanted(egraph, row[self.width :])
            every.setdefault(wanted, []).append(row)
            known = hash(row)
            if known not in self.seen:
                self.seen.add(known)
                new.setdefault(wanted, []).append(row)
        for wanted, served in self.served.items():
            enodes: dict[Row, tuple[int, ...]] = {}
            for query, binder in served:
                chosen = every if query.sites else new
                yield QueryWork(query, binder, chosen.get(wanted, []), revisit, enodes=enodes)

    def _wanted(self, egraph: EGraph, attributes: Row) -> tuple[str, ...]:
        """The operators of columns of attributes."""
        known = self._operators.get(attributes)
        if known is None:
            known = self._operators[attributes] = tuple(map(egraph.operator, attributes))
        return known


@dataclass(slots=True)
class QueryWork:
    """The work of a query in a step: rows to bind, then matches to apply; `done` counts those finished.

    `enodes` has the e-nodes of rows, which queries of one relation share.
    """

    query: Query
    binder: Binder
    rows: list[Row]
    revisit: bool
    stage: Literal["new", "bind", "apply"] = "new"
    matches: list[Match] = field(default_factory=list)
    done: int = 0
    enodes: dict[Row, tuple[int, ...]] = field(default_factory=dict)
