"""The work of matching: queries of egglog, and what is left to do with their matches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from eqsat.egraph.matching.match import Binder, Match
from eqsat.egraph.matching.query import Query


@dataclass
class Relation:
    """One egglog query and the left sides that it serves, by the operators they want."""

    name: str
    width: int
    served: dict[tuple[str, ...], list[tuple[Query, Binder]]] = field(default_factory=dict)


@dataclass(slots=True)
class QueryWork:
    """The work of a query in a step: rows to bind, then matches to apply; `done` counts those finished."""

    query: Query
    binder: Binder
    rows: list[tuple[int, ...]]
    revisit: bool
    stage: Literal["new", "bind", "apply"] = "new"
    matches: list[Match] = field(default_factory=list)
    done: int = 0
