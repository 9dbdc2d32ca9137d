"""Left sides of rules as egglog queries, and their rows as bindings."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from eqsat.egraph.egraph import EGraph, constructor_name
from eqsat.errors import RuleError
from eqsat.language.graph import Attrs
from eqsat.language.pattern import App, Bindings, Expression, Left, Pattern, Siblings, Spread, Var
from eqsat.language.spec import spec

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
    """One operator of a left side: its column of attributes, its class column, those of its operands, and the elements
    of sequences it stands for."""

    app: App
    attrs: int
    root: int
    operands: tuple[int, ...]
    elements: tuple[tuple[str, str, int], ...]


@dataclass(slots=True)
class Query:
    """A left side at given arities: an egglog query whose rows are columns of classes, then of attributes."""

    rule: Rewrite
    relation: str
    facts: list[str] = field(default_factory=list)
    tensors: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)
    variables: dict[str, int] = field(default_factory=dict)
    sequences: dict[str, list[int]] = field(default_factory=dict)
    roots: tuple[int, ...] = ()

    def tensor_column(self, name: str) -> int:
        """The column of a class variable, made on first use."""
        if name not in self.tensors:
            self.tensors.append(name)
        return self.tensors.index(name)


@dataclass(slots=True)
class Match:
    """One row of a query, bound: the classes of its roots and the e-nodes they were matched in."""

    rule: Rewrite
    roots: tuple[int, ...]
    enodes: tuple[int, ...]
    bindings: Bindings
    classes: dict[str, Any]


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
        relation = f"match_{rule.name}_{'_'.join(map(str, chosen))}".replace("-", "_")
        if relation in done:
            continue
        compiler = _Compiler(Query(rule, relation), arities, dict(zip(map(id, spread), chosen, strict=True)))
        query = compiler.compile(apps)
        if query is not None:
            done.add(relation)
            yield query


def _apps(patterns: Sequence[Pattern | Spread]) -> Iterator[App]:
    for pattern in patterns:
        if isinstance(pattern, Spread):
            yield from _apps([pattern.item])
        elif isinstance(pattern, App):
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
            root = self._app(app, ())
            if root is None:
                return None
            roots.append(root)
        self.query.roots = tuple(roots)
        return self.query

    def _app(self, app: App, elements: tuple[tuple[str, str, int], ...]) -> int | None:
        """Adds the facts of an application; returns its column, or None where no e-node has that many operands."""
        columns: list[int] = []
        for operand in app.operands:
            if isinstance(operand, Spread):
                count = self.chosen[id(app)] - (len(app.operands) - 1)
                for sequence in [s for _, s in operand.over] or [_name(operand.item)]:
                    if self.lengths.setdefault(sequence, count) != count:
                        return None
                for index in range(count):
                    column = self._element(operand, index, elements)
                    if column is None:
                        return None
                    columns.append(column)
            else:
                column = self._pattern(operand, elements)
                if column is None:
                    return None
                columns.append(column)
        if len(columns) not in self.arities[app.op]:
            return None
        query = self.query
        root = query.tensor_column(f"e{next(self.fresh)}")
        number = self._attrs(app, {element for element, _, _ in elements})
        operands = "".join(f" {query.tensors[c]}" for c in columns)
        name = constructor_name(app.op, len(columns))
        query.facts.append(f"(= {query.tensors[root]} ({name} {query.numbers[number]}{operands}))")
        query.occurrences.append(Occurrence(app, number, root, tuple(columns), elements))
        return root

    def _attrs(self, app: App, elements: set[str]) -> int:
        """The column of an application's attributes; a record used twice by one operator is one column to join on."""
        shared = app.record is not None and not app.fields and app.record not in elements
        key = (app.op, app.record or "")
        if shared and key in self.records:
            return self.records[key]
        numbers = self.query.numbers
        numbers.append(f"n{len(numbers)}")
        if shared:
            self.records[key] = len(numbers) - 1
        return len(numbers) - 1

    def _element(self, spread: Spread, index: int, outer: tuple[tuple[str, str, int], ...]) -> int | None:
        if not spread.over:
            return self._sequence_column(_name(spread.item), index)
        inner = (*outer, *((element, sequence, index) for element, sequence in spread.over))
        return self._pattern(spread.item, inner)

    def _pattern(self, pattern: Pattern, elements: tuple[tuple[str, str, int], ...]) -> int | None:
        if isinstance(pattern, App):
            return self._app(pattern, elements)
        for element, sequence, index in elements:
            if element == pattern.name:
                return self._sequence_column(sequence, index)
        column = self.query.tensor_column(f"v_{pattern.name}")
        self.query.variables[pattern.name] = column
        return column

    def _sequence_column(self, sequence: str, index: int) -> int:
        column = self.query.tensor_column(f"v_{sequence}_{index}")
        columns = self.query.sequences.setdefault(sequence, [])
        if index == len(columns):
            columns.append(column)
        return column


def _name(pattern: Pattern) -> str:
    if isinstance(pattern, Var):
        return pattern.name
    raise RuleError("a spread without a sequence", expected="*xs, or *[f(x) for x in xs]")


class Binder:
    """Turns rows of a query into matches; what attributes bind is worked out once for each set of them."""

    def __init__(self, egraph: EGraph, query: Query) -> None:
        self.egraph, self.query = egraph, query
        self._cache: dict[tuple[int, int], dict[str, Any] | None] = {}
        self._computed = [_computed_fields(o.app) for o in query.occurrences]

    def bind(self, row: tuple[int, ...]) -> Match | None:
        """The match of a row; None where attributes do not fit the pattern."""
        query, egraph = self.query, self.egraph
        width = len(query.tensors)
        attrs: dict[str, Any] = {}
        sequences: dict[str, list[Any]] = {}
        for position, occurrence in enumerate(query.occurrences):
            found = self._attributes(position, row[width + occurrence.attrs])
            if found is None:
                return None
            names = {element: (sequence, index) for element, sequence, index in occurrence.elements}
            for name, value in found.items():
                if name in names:
                    sequence, index = names[name]
                    if not _place(sequences.setdefault(sequence, []), index, value):
                        return None
                elif name in attrs:
                    if attrs[name] != value:
                        return None
                else:
                    attrs[name] = value
        attrs.update((name, tuple(values)) for name, values in sequences.items())
        classes: dict[str, Any] = {name: row[column] for name, column in query.variables.items()}
        classes |= {name: tuple(row[c] for c in columns) for name, columns in query.sequences.items()}
        bindings = Bindings({n: _views(egraph, c) for n, c in classes.items()}, attrs)
        for position in range(len(query.occurrences)):
            if self._computed[position] and not self._computed_agree(position, row, bindings):
                return None
        enodes = tuple(self._enode(o, row) for o in query.occurrences if o.root in query.roots)
        return Match(query.rule, tuple(row[c] for c in query.roots), enodes, bindings, classes)

    def _enode(self, occurrence: Occurrence, row: tuple[int, ...]) -> int:
        attr_id = row[len(self.query.tensors) + occurrence.attrs]
        found = self.egraph.lookup(occurrence.app.op, attr_id, [row[c] for c in occurrence.operands])
        return row[occurrence.root] if found is None else found

    def _attributes(self, position: int, attr_id: int) -> dict[str, Any] | None:
        key = (position, attr_id)
        if key not in self._cache:
            self._cache[key] = _bound_attributes(self.query.occurrences[position].app, self.egraph.attrs(attr_id))
        return self._cache[key]

    def _computed_agree(self, position: int, row: tuple[int, ...], bindings: Bindings) -> bool:
        """Whether fields given by expressions have the values these evaluate to."""
        occurrence = self.query.occurrences[position]
        attrs = self.egraph.attrs(row[len(self.query.tensors) + occurrence.attrs])
        local = Bindings(dict(bindings.tensors), dict(bindings.attrs))
        for element, sequence, index in occurrence.elements:
            for table in (local.tensors, local.attrs):
                values: Any = table.get(sequence)
                if isinstance(values, tuple) and index < len(values):
                    table[element] = values[index]
        stated = self.query.rule.attributes(occurrence.app, local)
        return all(Attrs(v=stated[name]) == Attrs(v=attrs[name]) for name in self._computed[position])


def _views(egraph: EGraph, classes: Any) -> Any:
    return tuple(egraph.view(c) for c in classes) if isinstance(classes, tuple) else egraph.view(classes)


def _place(values: list[Any], index: int, value: Any) -> bool:
    if index < len(values):
        return bool(values[index] == value)
    values.append(value)
    return True


def _bare_name(expression: Expression) -> str | None:
    return expression.tree.id if isinstance(expression.tree, ast.Name) else None


def _literal(expression: Expression) -> tuple[bool, Any]:
    try:
        value = ast.literal_eval(expression.tree)
    except ValueError:
        return False, None
    return True, tuple(value) if isinstance(value, list) else value


def _computed_fields(app: App) -> tuple[str, ...]:
    """The fields whose expressions depend on other bindings."""
    return tuple(n for n, e in app.fields.items() if _bare_name(e) is None and not _literal(e)[0])


def _bound_attributes(app: App, attrs: Attrs) -> dict[str, Any] | None:
    """What the attributes of an e-node bind in a pattern; None where they do not fit."""
    bound: dict[str, Any] = {}
    for name, expression in app.fields.items():
        bare = _bare_name(expression)
        if bare is not None:
            if bare in bound and bound[bare] != attrs[name]:
                return None
            bound[bare] = attrs[name]
            continue
        is_literal, value = _literal(expression)
        if is_literal and Attrs(v=value) != Attrs(v=attrs[name]):
            return None
    if app.record is not None:
        bound[app.record] = attrs
        return bound
    defaults = spec(app.op).attrs
    unmentioned = [n for n in defaults if n not in app.fields]
    return bound if all(Attrs(v=defaults[n]) == Attrs(v=attrs[n]) for n in unmentioned) else None
