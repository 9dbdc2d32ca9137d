"""A run as plain data: two graphs, e-classes with their forms, changes, growth and rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node of a drawn graph.

    `key` tells it from the others of its graph; `label` is its operator or, for inputs, constants and outputs, its
    name; `detail` its attributes and type; `names` the values it makes, for search; `block` the path of the block it is
    folded into. `seconds` is its cost, None where it costs nothing by itself. `change` is the number of the change it
    belongs to, `eclass` the e-class that holds it.
    """

    key: str
    kind: str
    label: str
    detail: str = ""
    names: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    seconds: float | None = None
    estimated: bool = False
    change: int | None = None
    eclass: int | None = None


@dataclass(frozen=True, slots=True)
class GraphView:
    """A drawn graph: `edges` are pairs of keys, from producer to reader, with the type of the value that flows."""

    name: str
    nodes: tuple[NodeView, ...]
    edges: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class FormView:
    """One e-node of an e-class: an operator over other e-classes.

    `seconds` is its own cost, None where it has none (inputs, constants); `total` that of the cheapest tree below it
    with it, shared parts counted each time. `rule` is the rule whose right side it was first, "" for what the graph
    held; `original` and `chosen` say whether the original graph and the result compute the class by it.
    """

    enode: int
    op: str
    attrs: str
    operands: tuple[int, ...]
    seconds: float | None
    total: float | None
    estimated: bool
    chosen: bool
    original: bool
    rule: str = ""


@dataclass(frozen=True, slots=True)
class ClassView:
    """An e-class: its type, whether it is known before the program runs, the original values it holds, its forms."""

    eclass: int
    type: str
    constant: bool
    values: tuple[str, ...]
    block: tuple[str, ...]
    forms: tuple[FormView, ...]


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule that fired: its text, how often it fired, its origin, and how it was checked."""

    name: str
    text: str
    fired: int
    origin: str
    evidence: str


@dataclass(frozen=True, slots=True)
class ChangeView:
    """One change of the result: a description, the rules behind it in order, the steps as text, and its saving."""

    number: int
    what: str
    values: tuple[str, ...]
    rules: tuple[str, ...]
    steps: tuple[str, ...]
    predicted: float | None = None
    measured: float | None = None
    gaps: int = 0


@dataclass(frozen=True, slots=True)
class GrowthView:
    """The e-graph after one step: phase, e-nodes, e-classes, seconds since the start, and firings by rule in it."""

    phase: str
    nodes: int
    classes: int
    seconds: float
    fired: Mapping[str, int] = field(default_factory=dict)
    matched: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunView:
    """All that a page shows; `report` is the text of the report, and parts that a run does not have are empty."""

    title: str
    report: str = ""
    original: GraphView | None = None
    result: GraphView | None = None
    classes: tuple[ClassView, ...] = ()
    changes: tuple[ChangeView, ...] = ()
    rules: tuple[RuleView, ...] = ()
    growth: tuple[GrowthView, ...] = ()
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The view as JSON has it."""
        return asdict(self)
