"""Left sides of rules as egglog queries."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, runtime_checkable

from eqsat.egraph.constructors import constructor_name, presence_name
from eqsat.language.terms.pattern import App, Bindings, Expression, Left, Pattern, Spread, roots_of

Row: TypeAlias = tuple[int, ...]
"""A row of a query: columns of classes, then of attributes."""


class Rewrite(Protocol):
    """A rule as the e-graph sees it."""

    @property
    def name(self) -> str:
        """The name that reports and explanations use."""

    @property
    def phase(self) -> str:
        """The phase it runs in: "simplify", "expand", "merge" or "fuse"."""

    @property
    def left(self) -> Left:
        """The left side."""

    @property
    def parts(self) -> int:
        """The number of outputs of a single root that the right side states one by one; 0 where it states each root."""

    @property
    def matched(self) -> frozenset[str]:
        """The operators of its left side."""

    @property
    def results(self) -> int:
        """The number of outputs of the right side; a split counts as one."""

    @property
    def right(self) -> tuple[Pattern, ...]:
        """The term that each matched root is equal to."""

    @property
    def conditions(self) -> tuple[Expression, ...]:
        """The conditions under which it fires."""

    def reads(self, condition: Expression) -> tuple[str, ...]:
        """The names that a condition reads, in order."""

    def refused_by(self, condition: Expression, bindings: Bindings) -> str | None:
        """Why a condition does not hold, or None."""

    def refused(self, bindings: Bindings) -> str | None:
        """Why the conditions do not hold, or None."""

    def attributes(self, app: App, bindings: Bindings) -> Mapping[str, Any]:
        """The attributes a pattern states, evaluated."""

    def window(self, spread: Spread, bindings: Bindings) -> range:
        """The elements that a right-side spread takes."""


@runtime_checkable
class RewriteSource(Protocol):
    """Rules that may be read only once an e-graph has the operators for them."""

    def applicable(self, phase: str, operators: Collection[str]) -> Sequence[Rewrite]:
        """The rules of a phase whose left sides have none but these operators."""


class ListedRewrites:
    """Rules that are read already."""

    def __init__(self, rules: Iterable[Rewrite]) -> None:
        self.rules = tuple(rules)

    def applicable(self, phase: str, operators: Collection[str]) -> Sequence[Rewrite]:
        """The rules of a phase whose left sides have none but these operators."""
        known = frozenset(operators)
        return [rule for rule in self.rules if rule.phase == phase and rule.matched <= known]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One operator of a left side: its column of attributes, its class column, and those of its operands."""

    app: App
    attrs: int
    root: int
    operands: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VariadicSite:
    """An operator of any number of operands, such as ``concat(*[relu(x) for x in xs])``, and the column of its class.

    egglog finds the classes that hold one; its operands are matched afterwards. As part of the query, each number of
    operands would be a query of its own, and an operand with several e-nodes of the form would multiply the matches,
    two to the power of the arity for sums that commute.
    """

    app: App
    column: int


@dataclass(slots=True)
class Query:
    """A left side as an egglog query whose rows are columns of classes, then of attributes.

    `facts` name columns by their position alone, so left sides of one form over operators that egglog does not tell
    apart are one query; `operators` says which operator this one wants in each column of attributes.
    """

    rule: Rewrite
    facts: list[str] = field(default_factory=list)
    width: int = 0
    operators: list[str] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)
    sites: list[VariadicSite] = field(default_factory=list)
    variables: dict[str, int] = field(default_factory=dict)
    roots: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule.name


def compile_query(rule: Rewrite, arities: Mapping[str, set[int]]) -> Query | None:
    """The query of a rule; None as long as the e-graph lacks an operator, or one with that many operands."""
    if not rule.matched <= arities.keys():
        return None
    return _Compiler(Query(rule), arities).compile(roots_of(rule.left))


class _Compiler:
    def __init__(self, query: Query, arities: Mapping[str, set[int]]) -> None:
        self.query, self.arities = query, arities
        self.records: dict[tuple[str, str], int] = {}

    def compile(self, apps: Sequence[App]) -> Query | None:
        roots = [self._app(app) for app in apps]
        if any(root is None for root in roots):
            return None
        self.query.roots = tuple(root for root in roots if root is not None)
        return self.query

    def _app(self, app: App) -> int | None:
        """Add the facts of an application; return its column, or None where no e-node has that many operands."""
        query = self.query
        if any(isinstance(operand, Spread) for operand in app.operands):
            column = self._column()
            query.facts.append(f"({presence_name(app.op)} t{column})")
            query.sites.append(VariadicSite(app, column))
            return column
        columns: list[int] = []
        for operand in app.operands:
            found = self._app(operand) if isinstance(operand, App) else self._variable(operand)
            if found is None:
                return None
            columns.append(found)
        if len(columns) not in self.arities[app.op]:
            return None
        root, number = self._column(), self._attrs(app)
        name = constructor_name(app.op, len(columns))
        query.facts.append(f"(= t{root} ({name} n{number}{''.join(f' t{c}' for c in columns)}))")
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

    def _variable(self, pattern: Any) -> int:
        known = self.query.variables
        if pattern.name not in known:
            known[pattern.name] = self._column()
        return known[pattern.name]

    def _column(self) -> int:
        self.query.width += 1
        return self.query.width - 1
