"""Equations with symbolic attributes: left sides from the most general to the most special, right sides over them."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.language.ops import spec
from eqsat.language.terms import App, Attrs, Bindings, Expression, Left, Pattern, Siblings, Spread, Var
from eqsat.rewrites.discovery.equations.equation import LiteralEquation, constant_fields, literal, variables
from eqsat.rewrites.discovery.equations.sides import expression, left_written, names_of
from eqsat.rewrites.discovery.generalise.attribute_expressions import (
    BindingScope,
    choices,
    kind_of,
    products,
    same,
    small,
    splices,
)
from eqsat.rewrites.rules.rule import SPLICE

#: Names for variables of each kind, in the order in which they are taken.
_POOLS = {
    "axis": "kjil",
    "perm": "pqro",
    "axes": "abce",
    "record": "abcdefgh",
    "shape": "stuv",
    "dim": "nmcl",
    "dtype": "dt",
    "kernel": "mn",
}
_SPARE = tuple(f"h{i}" for i in range(1, 40))
#: Largest number of right sides that are tried for one left side.
MOST = 96


@dataclass(frozen=True)
class Style:
    """The generality of a left side.

    Attributes of equal values share a variable never ("apart"), for operators of one name ("operator"), or wherever
    they are of one kind ("kind"). Attributes of the kinds in `written` stay literals. With `cuts`, the axes and bounds
    of slices are computed from what else is bound, in the first or the second way there is; they are free otherwise.
    """

    sharing: str = "apart"
    cuts: int = 0
    written: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Template:
    """A left side with symbolic attributes, and its bindings."""

    left: Left
    scope: BindingScope
    cost: float


_MOVES = frozenset({"perm"})
_ALL = frozenset({"perm", "axis", "axes", "shape"})
STYLES = tuple(
    Style(sharing, cuts, written)
    for written in (frozenset[str](), _MOVES, _ALL)
    for cuts in (0, 1, 2)
    for sharing in (("apart", "operator", "kind") if not written else ("kind",))
)


def templates(equation: LiteralEquation) -> Iterator[Template]:
    """Left sides for an equation, the most general first, each once."""
    seen: set[str] = set()
    for style in STYLES:
        template = _Maker(equation, style).template()
        text = left_written(template.left)
        if text not in seen:
            seen.add(text)
            yield template


@dataclass
class _Maker:
    """A maker of the left side of one style."""

    equation: LiteralEquation
    style: Style
    taken: set[str] = field(default_factory=set)
    names: dict[Any, str] = field(default_factory=dict)
    #: Slices whose bounds are computed once everything else is bound.
    late: bool = False

    def template(self) -> Template:
        left, operands = self.equation.left, dict(self.equation.operands)
        over = dict(left.over) if isinstance(left, Siblings) else {}
        self.taken |= {*operands, *over, *over.values()}
        self.taken |= {name for root in self.equation.roots for name in names_of(root)}
        self.scope = BindingScope(Bindings(dict(operands), {}), products=products(left))
        roots = tuple(self.app(root, (i,)) for i, root in enumerate(self.equation.roots))
        if self.style.cuts:
            self.late = True
            roots = tuple(self.app(root, (i,)) for i, root in enumerate(self.equation.roots))
        side: Left = Siblings(roots[0], left.over) if isinstance(left, Siblings) else roots
        self.scope.products = products(side)
        special = ("apart", "operator", "kind").index(self.style.sharing) / 4 + self.style.cuts / 4
        return Template(side, self.scope, special + len(self.style.written))

    def app(self, app: App, path: tuple[int, ...]) -> App:
        operands = tuple(self.operand(o, (*path, i)) for i, o in enumerate(app.operands))
        attrs = spec(app.op).complete(constant_fields(app))
        if app.op == "slice" and self.style.cuts:
            return App(app.op, operands, self.cut(attrs)) if self.late else App(app.op, operands, app.fields)
        if (len(attrs) > 1 and operands) or (attrs and spec(app.op).pointwise):
            name = self.name("record", app.op, "", attrs, path)
            self.scope.records[name] = app.op
            return App(app.op, operands, {}, name)
        fields: dict[str, Expression] = {}
        for key, value in attrs.items():
            kind = kind_of(key)
            sized = kind == "shape" and not small(value)
            # Kinds without names are part of the form: a mode, a flag.
            if (kind in self.style.written and not sized) or kind not in _POOLS:
                if value != spec(app.op).attrs[key]:
                    fields[key] = literal(value)
                continue
            name = self.name(kind, app.op, key, value, path)
            self.scope.fields[name] = kind
            fields[key] = expression(name)
        return App(app.op, operands, fields)

    def operand(self, operand: Pattern | Spread, path: tuple[int, ...]) -> Pattern | Spread:
        if isinstance(operand, App):
            return self.app(operand, path)
        if isinstance(operand, Spread) and isinstance(operand.item, App):
            return Spread(self.app(operand.item, (*path, 0)), operand.over)
        return operand

    def name(self, kind: str, op: str, key: str, value: Any, path: tuple[int, ...]) -> str:
        """The variable of an attribute, bound to its value."""
        wanted = Attrs(v=value)
        identity: Any = (kind, op, key, path)
        if kind == "dtype" or (self.style.sharing == "kind" and kind != "record"):
            identity = (kind, wanted)
        elif self.style.sharing != "apart":
            identity = (kind, op, key, wanted)
        if identity not in self.names:
            pool = ("s", *_POOLS["record"]) if op == "slice" and kind == "record" else _POOLS.get(kind, key[:1])
            name = next(n for n in (*pool, *_SPARE) if n not in self.taken)
            self.taken.add(name)
            self.names[identity] = name
            self.scope.bindings.attrs[name] = value
        return self.names[identity]

    def cut(self, attrs: Attrs) -> dict[str, Expression]:
        """The fields of a slice, computed from the other bindings of the left side if they can be."""
        fields: dict[str, Expression] = {}
        for key in ("axes", "starts", "ends", "steps"):
            if attrs[key] == spec("slice").attrs[key]:
                continue
            options = choices(key, attrs[key], self.scope) or [(0.0, literal(attrs[key]))]
            fields[key] = options[min(self.style.cuts, len(options)) - 1 if key == "axes" else 0][1]
        return fields


def right_sides(equation: LiteralEquation, scope: BindingScope) -> list[tuple[float, tuple[Pattern, ...]]]:
    """Right sides over the bindings of a left side that are the equation's at its instance, with their costs.

    The simplest come first.
    """
    return _product([_patterns(pattern, scope) for pattern in equation.right])


def _product(parts: Sequence[Sequence[tuple[float, Any]]]) -> list[tuple[float, tuple[Any, ...]]]:
    """The cheapest combinations of one choice for each part."""
    best: list[tuple[float, tuple[Any, ...]]] = [(0.0, ())]
    for part in parts:
        joined = ((c + d, (*chosen, one)) for (c, chosen), (d, one) in itertools.product(best, part))
        best = heapq.nsmallest(MOST, joined, key=lambda combination: combination[0])
    return best


def _patterns(pattern: Pattern | Spread, scope: BindingScope) -> list[tuple[float, Any]]:
    if isinstance(pattern, Var):
        return [(0.0, pattern)]
    if isinstance(pattern, Spread):
        return [(cost, Spread(item, pattern.over)) for cost, item in _patterns(pattern.item, scope)]
    operands = _product([_patterns(o, scope) for o in pattern.operands])
    fields = _fields(pattern, scope)
    return [
        (cost, App(pattern.op, chosen, stated, record))
        for cost, (chosen, (stated, record)) in _product([[(c, o) for c, o in operands], fields])
    ]


def _fields(app: App, scope: BindingScope) -> list[tuple[float, tuple[dict[str, Expression], str | None]]]:
    """Forms of an operator's attributes: a record of the left side with the differences, or field by field."""
    declared = spec(app.op)
    attrs = declared.complete(constant_fields(app))
    if not attrs:
        return [(0.0, ({}, None))]
    forms: list[tuple[float, tuple[dict[str, Expression], str | None]]] = []
    for record, op in scope.records.items():
        if op == app.op:
            known = scope.bindings.attrs[record]
            differing = [key for key in attrs if not same(key, attrs[key], known[key])]
            # Axes may stay where they are in the candidate and yet be moved by its permutations.
            moved = [
                key for key in attrs if app.op != "slice" and key not in differing and kind_of(key) in ("axis", "axes")
            ]
            forms += [(cost, (fields, record)) for cost, fields in _chosen(app, differing, attrs, scope)]
            if moved and scope.of("perm"):
                more = _chosen(app, [*differing, *moved], attrs, scope)
                forms += [(cost + 0.5, (fields, record)) for cost, fields in more]
    forms += [(cost, ({SPLICE: e}, None)) for cost, e in splices(app.op, attrs, scope)]
    if not forms:
        forms = [(cost, (fields, None)) for cost, fields in _chosen(app, list(attrs), attrs, scope, declared.attrs)]
    return heapq.nsmallest(MOST, forms, key=lambda one: one[0])


def _chosen(
    app: App, keys: Sequence[str], attrs: Attrs, scope: BindingScope, defaults: Any = None
) -> list[tuple[float, dict[str, Expression]]]:
    """Expressions for some attributes; those that have their default may also be left out."""
    parts: list[list[tuple[float, Any]]] = []
    inside = set(variables(app))
    for key in keys:
        options: list[tuple[float, Any]] = [(cost, e) for cost, e in choices(key, attrs[key], scope, inside)]
        if defaults is not None and same(key, defaults[key], attrs[key]):
            plain = ("True", "False", *scope.members(key))
            open_ended = [(c, e) for c, e in options if e.text in plain or kind_of(key) == "dtype"]
            options = [*open_ended, (1.0, None)]
        parts.append(options)
    return [
        (cost, {key: e for key, e in zip(keys, chosen, strict=True) if e is not None})
        for cost, chosen in _product(parts)
    ]
