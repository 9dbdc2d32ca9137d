"""Rows of queries as matches, with the bindings of each."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.conditions import ConditionAnswers
from eqsat.egraph.matching.query import Occurrence, Query, Rewrite, Row, VariadicSite
from eqsat.errors import ShapeError
from eqsat.language.ops import spec
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.pattern import ABSENT, App, Bindings, Expression, Siblings, Spread, Var, roots_of

#: Largest number of bindings of one row that are followed, and of forms of one operand of a spread.
MOST_BINDINGS, MOST_FORMS = 16, 64


@dataclass(slots=True)
class Match:
    """One row of a query, bound: the classes of its roots, the e-nodes they were matched in, and all that it `uses`.

    `conditions` has what the rule's conditions said of other matches, and `asked` stands for the attributes; without
    it, the rule is asked anew.
    """

    egraph: EGraph
    rule: Rewrite
    roots: tuple[int, ...]
    enodes: tuple[int, ...]
    classes: dict[str, Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    uses: tuple[int, ...] = ()
    asked: Row = ()
    conditions: ConditionAnswers | None = None
    _bindings: Bindings | None = None

    @property
    def bindings(self) -> Bindings:
        """The classes and attributes as rules see them."""
        if self._bindings is None:
            self._bindings = bindings_of(self.egraph, self.classes, self.attrs)
        return self._bindings

    @property
    def right_attrs(self) -> dict[int, Attrs]:
        """The attributes of the right side that matches of the same facts have made already."""
        return {} if self.conditions is None else self.conditions.right(self.asked, tuple(self.classes.values()))

    @property
    def identity(self) -> tuple[object, ...]:
        """A key that distinguishes matches of one rule."""
        classes, attrs = sorted(self.classes.items()), sorted(self.attrs.items())
        return (self.roots, *[bound for _, bound in classes], *[value for _, value in attrs])

    def steps(self) -> int:
        """The number of firings that led to the e-node among those it uses that is farthest from where they count."""
        steps = self.egraph.steps
        return max([steps[n] for n in self.uses], default=0)

    def refused(self) -> str | None:
        """Why the rule does not fire here; None where all conditions hold."""
        if self.conditions is None:
            return self.rule.refused(self.bindings)
        seen = self.conditions.seen(tuple(self.classes.values()))
        refused = self.conditions.refused(self.asked, seen)
        if refused is None:
            refused = self.conditions.refused(self.asked, seen, self.bindings)
        return refused or None


@dataclass(slots=True)
class _Form:
    """A way a pattern matches: classes and attributes it binds, attributes still to be compared, the e-nodes that it
    uses, and the one matched at the top."""

    classes: dict[str, Any] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    checks: tuple[tuple[App, Attrs], ...] = ()
    uses: tuple[int, ...] = ()
    number: int = -1

    def joined(self, other: _Form) -> _Form | None:
        """Both forms together; None where they bind a name differently."""
        for mine, theirs in ((self.classes, other.classes), (self.attrs, other.attrs)):
            if any(name in mine and mine[name] != value for name, value in theirs.items()):
                return None
        uses, checks = self.uses + other.uses, self.checks + other.checks
        return _Form(self.classes | other.classes, self.attrs | other.attrs, checks, uses, self.number)


class Binder:
    """Turns rows of a query into matches; bindings by attributes are computed once for each set of attributes."""

    def __init__(self, egraph: EGraph, query: Query) -> None:
        self.egraph, self.query = egraph, query
        self._cache: dict[tuple[int, int], dict[str, Any] | None] = {}
        self._computed: dict[int, tuple[str, ...]] = {}
        self._stated: dict[Row, _Form | None] = {}
        self._conditions = ConditionAnswers(egraph, query)
        #: When the matches of a row were looked for last, and the classes whose e-nodes were looked at.
        self._read: dict[Row, tuple[int, ...]] = {}
        self._reading: dict[int, None] = {}
        #: Where the operators of the roots stand among those of the query; variadic ones are found for each match.
        places = {o.root: place for place, o in enumerate(query.occurrences)}
        self._roots = tuple(places[root] for root in query.roots) if not query.sites else ()
        self._variables = tuple(query.variables.items())
        self._columns = tuple(query.variables.values())

    def bind(self, row: Row, known: dict[Row, tuple[int, ...]]) -> Match | str | None:
        """The match of a row of a query without variadic operators, or why its rule is refused; None where it fits not.

        `known` has the e-nodes of rows, for all queries that read the same columns, and takes those of this one.
        """
        attributes, conditions = row[self.query.width :], self._conditions
        stated = self._stated_by(attributes)
        classes = [row[column] for column in self._columns]
        if stated is None or self.egraph.nothing in classes:
            return None  # a variable stands for a tensor
        seen = conditions.seen(classes)
        refused = None if stated.checks else conditions.refused(attributes, seen)
        if refused:
            return refused
        match = self._plain(row, known)
        if match is not None and refused is None:
            refused = conditions.refused(attributes, seen, match.bindings)
        return refused or match

    def bind_each(self, row: Row, known: dict[Row, tuple[int, ...]]) -> list[Match]:
        """The matches of a row, whatever conditions say; none where attributes do not fit the pattern."""
        query, egraph = self.query, self.egraph
        if not query.sites:
            match = self._plain(row, known)
            return [] if match is None else [match]
        stated = self._stated_by(row[query.width :])
        if stated is None:
            return []
        classes = {name: row[column] for name, column in self._variables}
        if egraph.nothing in classes.values():
            return []  # a variable stands for a tensor
        uses = self._uses(row, known)
        roots = tuple([row[c] for c in query.roots])
        numbers = {o.root: number for o, number in zip(query.occurrences, uses, strict=True)}
        self._reading = {}
        forms = [(_Form(classes, stated.attrs, stated.checks, uses), numbers)]
        for site in query.sites:
            forms = list(self._sited(site, row[site.column], forms))[:MOST_BINDINGS]
        matches = []
        for form, enodes in forms:
            matched = tuple([enodes[r] for r in query.roots])
            match = Match(egraph, query.rule, roots, matched, form.classes, form.attrs, form.uses)
            if not form.checks or all(self._agrees(app, attrs, match.bindings) for app, attrs in form.checks):
                matches.append(match)
        if not any(self._computed.values()):  # else it depends on facts too
            self._read[row] = (egraph.table.age, *self._reading)
        return matches

    def is_unchanged(self, row: Row) -> bool:
        """True if all that a row's matches were found in is as it was when they were looked for last."""
        age, *leaders = self._read.get(row, (-1,))
        is_older = self.egraph.table.is_older
        return age >= 0 and all(is_older(leader, age) for leader in leaders)

    def _plain(self, row: Row, known: dict[Row, tuple[int, ...]]) -> Match | None:
        """The match of a row of a query without variadic operators."""
        query, attributes = self.query, row[self.query.width :]
        stated = self._stated_by(attributes)
        if stated is None:
            return None
        classes = {name: row[column] for name, column in self._variables}
        if self.egraph.nothing in classes.values():
            return None  # a variable stands for a tensor
        uses = self._uses(row, known)
        roots, enodes = tuple([row[c] for c in query.roots]), tuple([uses[place] for place in self._roots])
        kept = None if isinstance(query.rule.left, Siblings) else self._conditions
        match = Match(self.egraph, query.rule, roots, enodes, classes, stated.attrs, uses, attributes, kept)
        if stated.checks and not all(self._agrees(app, attrs, match.bindings) for app, attrs in stated.checks):
            return None
        return match

    def _uses(self, row: Row, known: dict[Row, tuple[int, ...]]) -> tuple[int, ...]:
        """The e-nodes of a row's operators."""
        uses = known.get(row)
        if uses is None:
            uses = known[row] = tuple([self._enode(o, row) for o in self.query.occurrences])
        return uses

    def _stated_by(self, attributes: Row) -> _Form | None:
        """The bindings by the attributes of all operators of a row; None where they do not fit."""
        if attributes not in self._stated:
            self._stated[attributes] = self._all_stated(attributes)
        return self._stated[attributes]

    def _all_stated(self, attributes: Row) -> _Form | None:
        """The bindings by the attributes of all operators of a row; None where they do not fit."""
        base = _Form()
        for occurrence in self.query.occurrences:
            stated = self._attributes(occurrence.app, attributes[occurrence.attrs])
            joined = None if stated is None else base.joined(stated)
            if joined is None:
                return None
            base = joined
        return base

    def at(self, leader: int) -> Iterator[Match]:
        """The matches of a rule with one root in a class, among its e-nodes as of when they were last brought in."""
        (root,) = roots_of(self.query.rule.left)
        egraph = self.egraph
        for form in self._forms(root, leader, _Form()):
            if egraph.nothing in form.classes.values():
                continue
            match = Match(egraph, self.query.rule, (leader,), (form.number,), form.classes, form.attrs, form.uses)
            if all(self._agrees(app, attrs, match.bindings) for app, attrs in form.checks):
                yield match

    def _sited(
        self, site: VariadicSite, leader: int, forms: list[tuple[_Form, dict[int, int]]]
    ) -> Iterator[tuple[_Form, dict[int, int]]]:
        """The forms so far with each way that a variadic operator matches a class."""
        for form, numbers in forms:
            for match in self._forms(site.app, leader, form):
                joined = form.joined(match)
                if joined is not None:
                    yield joined, {**numbers, site.column: match.number}

    def _enode(self, occurrence: Occurrence, row: Row) -> int:
        attr_id = row[self.query.width + occurrence.attrs]
        number = self.egraph.lookup(occurrence.app.op, attr_id, [row[c] for c in occurrence.operands])
        return row[occurrence.root] if number is None else number

    def _attributes(self, app: App, attr_id: int) -> _Form | None:
        key = (id(app), attr_id)
        if key not in self._cache:
            self._cache[key] = _bound_attributes(app, self.egraph.attrs(attr_id))
        bound = self._cache[key]
        if bound is None:
            return None
        if id(app) not in self._computed:
            self._computed[id(app)] = _computed_fields(app)
        checks = ((app, self.egraph.attrs(attr_id)),) if self._computed[id(app)] else ()
        return _Form({}, bound, checks)

    def _agrees(self, app: App, attrs: Attrs, bindings: Bindings) -> bool:
        """Return whether fields given by expressions have the values of these; False if one has no value."""
        try:
            stated = self.query.rule.attributes(app, bindings)
        except ShapeError:  # of a rank that is not known, for one
            return False
        return all(Attrs(v=stated[name]) == Attrs(v=attrs[name]) for name in self._computed[id(app)])

    def _forms(self, app: App, leader: int, known: _Form) -> list[_Form]:
        """The matches of an operator of patterns with a class, given the bindings so far."""
        forms: list[_Form] = []
        self._reading[leader] = None
        for attr_id, operands, number in self.egraph.table.members(leader, app.op):
            start = self._attributes(app, attr_id)
            if start is None:
                continue
            begun = _Form({}, start.attrs, start.checks, (number,), number)
            leaders = [self.egraph.find(k) for k in operands]
            if len(app.operands) == 1 and isinstance(app.operands[0], Spread):
                forms += self._spread(app.operands[0], leaders, begun, known)
            elif len(leaders) == len(app.operands):
                forms += self._operands(app, leaders, begun, known)
            if len(forms) >= MOST_FORMS:
                break
        return forms

    def _operands(self, app: App, leaders: list[int], begun: _Form, known: _Form) -> list[_Form]:
        partial = [begun]
        for pattern, leader in zip(app.operands, leaders, strict=True):
            if isinstance(pattern, App):
                below = self._forms(pattern, leader, known)
            else:
                below = [_Form({pattern.name: leader})] if isinstance(pattern, Var) else []
            partial = [j for p in partial for b in below if (j := p.joined(b)) is not None]
        return partial

    def _spread(self, spread: Spread, leaders: list[int], begun: _Form, known: _Form) -> Iterator[_Form]:
        """The ways a spread matches all operands.

        Bindings that the elements share must be equal in all of them; else the first form of each operand is taken.
        """
        item, over = spread.item, dict(spread.over)
        if isinstance(item, Var):
            joined = begun.joined(_Form({item.name: tuple(leaders)})) if not over else None
            if joined is not None:
                yield joined
            return
        choices: list[dict[Any, _Form]] = []
        for index, leader in enumerate(leaders):
            fitting: dict[Any, _Form] = {}
            for match in self._forms(item, leader, known):
                shared = _without(match, over)
                if known.joined(shared) is not None and _continues(known, match, over, index, len(leaders)):
                    key = (tuple(sorted(shared.classes.items())), tuple(sorted(shared.attrs.items(), key=_first)))
                    fitting.setdefault(key, match)
            if not fitting or (choices and not any(key in choices[0] for key in fitting)):
                return
            choices.append(fitting)
        for key, first in choices[0].items():
            if all(key in c for c in choices):
                wider = begun.joined(_without(first, over))
                if wider is not None:
                    yield _with_sequences(wider, [c[key] for c in choices], over)


def _first(item: tuple[str, Any]) -> str:
    return item[0]


def _without(form: _Form, names: dict[str, str]) -> _Form:
    return _Form(
        {n: v for n, v in form.classes.items() if n not in names},
        {n: v for n, v in form.attrs.items() if n not in names},
    )


def _continues(form: _Form, new_form: _Form, over: dict[str, str], index: int, length: int) -> bool:
    """Return whether an element is the one that a sequence bound before has at this place, with equal lengths."""
    for known, new in ((form.classes, new_form.classes), (form.attrs, new_form.attrs)):
        for element, sequence in over.items():
            if element in new and sequence in known:
                values = known[sequence]
                if len(values) != length or values[index] != new[element]:
                    return False
    return True


def _with_sequences(form: _Form, elements: list[_Form], over: dict[str, str]) -> _Form:
    classes, attrs = dict(form.classes), dict(form.attrs)
    for element, sequence in over.items():
        table, kind = (classes, "classes") if element in elements[0].classes else (attrs, "attrs")
        table[sequence] = tuple(getattr(e, kind)[element] for e in elements)
    uses = (*form.uses, *(n for e in elements for n in e.uses))
    return _Form(classes, attrs, form.checks, uses, form.number)


def bindings_of(egraph: EGraph, classes: Mapping[str, Any], attrs: Mapping[str, Any]) -> Bindings:
    """E-classes by variable, or sequences of them, as rules see them, with attributes."""
    return Bindings({name: _views(egraph, bound) for name, bound in classes.items()}, dict(attrs))


def _views(egraph: EGraph, classes: Any) -> Any:
    return tuple(egraph.view(c) for c in classes) if isinstance(classes, tuple) else egraph.view(classes)


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
    """The bindings of a pattern by the attributes of an e-node; None where they do not fit."""
    bound: dict[str, Any] = {}
    if app == ABSENT:
        return bound
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
