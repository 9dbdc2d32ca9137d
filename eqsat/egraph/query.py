"""Left sides of rules as egglog queries."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eqsat.egraph.egraph import constructor_name
from eqsat.errors import RuleError
from eqsat.language.pattern import App, Bindings, Left, Pattern, Siblings, Spread, Var

#: Rules over variadic operators are compiled for each arity in the e-graph, up to this many operands.
MAX_ARITY = 256


class Rewrite(Protocol):
    """What the e-graph needs of a rule."""

    @property
    def name(self) -> str:
        """The name that reports and explanations use."""

    @property
    def phase(self) -> str:
        """When it runs: "simplify", "expand", "merge" or "fuse"."""

    @property
    def left(self) -> Left:
        """What it matches."""

    @property
    def right(self) -> tuple[Pattern, ...]:
        """What each matched root is equal to."""

    def refused(self, bindings: Bindings) -> str | None:
        """Why the conditions do not hold, or None."""

    def attributes(self, app: App, bindings: Bindings) -> dict[str, Any]:
        """The attributes a pattern states, evaluated."""

    def window(self, spread: Spread, bindings: Bindings) -> range:
        """The elements that a right-side spread takes."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One operator of a left side: its column of attributes, its class column, and those of its operands."""

    app: App
    attrs: int
    root: int
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A spread of a pattern, ``*[relu(x) for x in xs]``, and the columns of the operands it stands for.

    egglog finds the operands; the pattern is matched in each of them afterwards. As part of the query, an operand with
    several e-nodes of the form would multiply the matches, two to the power of the arity for a commuted sum.
    """

    spread: Spread
    columns: tuple[int, ...]


@dataclass(slots=True)
class Query:
    """A left side at given arities: an egglog query whose rows are columns of classes, then of attributes.

    `facts` name columns by their position alone, so left sides of one form over operators that egglog does not tell
    apart are one query; `operators` says which operator this one wants in each column of attributes.
    """

    rule: Rewrite
    name: str
    facts: list[str] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    variables: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, list[int]] = field(default_factory=dict)
    roots: tuple[int, ...] = ()

    def tensor_column(self, name: str) -> int:
        """The column of a class variable, made on first use."""
        if name not in self.tensors:
            self.tensors.append(name)
        return self.tensors.index(name)


def operators(left: Left) -> set[str]:
    """The operators a left side needs to be in the e-graph at all."""
    found: set[str] = set()

    def visit(pattern: Pattern | Spread) -> None:
        if isinstance(pattern, Spread):
            visit(pattern.item)
        elif isinstance(pattern, App):
            found.add(pattern.op)
            for operand in pattern.operands:
                visit(operand)

    for app in (left.item,) if isinstance(left, Siblings) else left:
        visit(app)
    return found


def compile_queries(rule: Rewrite, arities: Mapping[str, set[int]], done: set[str]) -> Iterator[Query]:
    """The queries of a rule for each combination of arities in the e-graph that is not in `done`, which is extended."""
    if not operators(rule.left) <= arities.keys():
        return
    apps: tuple[App, ...] = (rule.left.item,) if isinstance(rule.left, Siblings) else rule.left
    spread = [a for a in _apps(apps) if any(isinstance(o, Spread) for o in a.operands)]
    options = [
        [n for n in sorted(arities[a.op]) if len(a.operands) - 1 <= n <= MAX_ARITY and n >= len(a.operands)]
        for a in spread
    ]
    for chosen in itertools.product(*options):
        name = " ".join([rule.name, *map(str, chosen)])
        if name in done:
            continue
        compiler = _Compiler(Query(rule, name), arities, dict(zip(map(id, spread), chosen, strict=True)))
        query = compiler.compile(apps)
        if query is not None:
            done.add(name)
            yield query


def _apps(patterns: Sequence[Pattern | Spread]) -> Iterator[App]:
    """The operators of a query; what a spread repeats is no part of it."""
    for pattern in patterns:
        if isinstance(pattern, App):
            yield pattern
            yield from _apps(pattern.operands)


class _Compiler:
    def __init__(self, query: Query, arities: Mapping[str, set[int]], chosen: Mapping[int, int]) -> None:
        self.query, self.arities, self.chosen = query, arities, chosen
        self.fresh = itertools.count()
        self.lengths: dict[str, int] = {}
        self.records: dict[tuple[str, str], int] = {}

    def compile(self, apps: Sequence[App]) -> Query | None:
        roots = []
        for app in apps:
            root = self._app(app)
            if root is None:
                return None
            roots.append(root)
        self.query.roots = tuple(roots)
        return self.query

    def _app(self, app: App) -> int | None:
        """Adds the facts of an application; returns its column, or None where no e-node has that many operands."""
        columns: list[int] = []
        for operand in app.operands:
            found = self._spread(app, operand) if isinstance(operand, Spread) else self._pattern(operand)
            if found is None:
                return None
            columns += found
        if len(columns) not in self.arities[app.op]:
            return None
        query = self.query
        root = query.tensor_column(f"root {next(self.fresh)}")
        number = self._attrs(app)
        operands = "".join(f" t{c}" for c in columns)
        name = constructor_name(app.op, len(columns))
        query.facts.append(f"(= t{root} ({name} n{number}{operands}))")
        query.occurrences.append(Occurrence(app, number, root, tuple(columns)))
        return root

    def _attrs(self, app: App) -> int:
        """The column of an application's attributes; a record used twice by one operator is one column to join on."""
        key = (app.op, app.record or "")
        if app.record is not None and not app.fields and key in self.records:
            return self.records[key]
        wanted = self.query.operators
        wanted.append(app.op)
        if app.record is not None and not app.fields:
            self.records[key] = len(wanted) - 1
        return len(wanted) - 1

    def _pattern(self, pattern: Pattern) -> list[int] | None:
        if isinstance(pattern, App):
            root = self._app(pattern)
            return None if root is None else [root]
        column = self.query.tensor_column(pattern.name)
        self.query.variables[pattern.name] = column
        return [column]

    def _spread(self, app: App, spread: Spread) -> list[int] | None:
        count = self.chosen[id(app)] - (len(app.operands) - 1)
        for sequence in [s for _, s in spread.over] or [_name(spread.item)]:
            if self.lengths.setdefault(sequence, count) != count:
                return None
        if not spread.over:
            name = _name(spread.item)
            columns = [self.query.tensor_column(f"{name} {index}") for index in range(count)]
            self.query.sequences[name] = columns
            return columns
        columns = [self.query.tensor_column(f"spread {next(self.fresh)}") for _ in range(count)]
        self.query.sites.append(Site(spread, tuple(columns)))
        return columns


def _name(pattern: Pattern) -> str:
    if isinstance(pattern, Var):
        return pattern.name
    raise RuleError("a spread without a sequence", expected="*xs, or *[f(x) for x in xs]")
