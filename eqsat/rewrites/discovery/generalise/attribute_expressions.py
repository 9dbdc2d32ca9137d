"""Expressions that a rule may compute an attribute with, by the kind of the attribute and of the bindings."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eqsat.language.ops import spec
from eqsat.language.terms import App, Attrs, Bindings, Expression, Left, Pattern, Siblings, Spread, Var
from eqsat.rewrites.conditions.expression import Undefined, compiled, evaluate
from eqsat.rewrites.discovery.equations.equation import literal
from eqsat.rewrites.discovery.equations.sides import expression

#: The kind of an attribute by its name: those of one kind may stand for each other.
_KINDS: Mapping[str, str] = {
    "axis": "axis",
    "perm": "perm",
    "axes": "axes",
    "shape": "shape",
    "sizes": "sizes",
    "n": "dim",
    "channels": "dim",
    "kernel": "kernel",
    "pads": "pads",
    "group": "group",
    "groups": "group",
    "dtype": "dtype",
    "to": "dtype",
    "starts": "bounds",
    "ends": "bounds",
}
#: Costs of literals; one that only holds at the shapes of the candidate is worth the least.
_LITERAL, _SPECIAL = 1.0, 4.0
#: Cost of naming a tensor that the operator does not read.
_ELSEWHERE = 0.3
_FEW = 12


def kind_of(name: str) -> str:
    """The kind of an attribute."""
    return _KINDS.get(name, name)


@dataclass
class BindingScope:
    """The bindings of a left side, with their values at the instance the equation was found at.

    `fields` gives the kind of each bound attribute, `records` the operator of each bound record. `products` are
    operators without attributes over variables: expressions may ask for the type of their result.
    """

    bindings: Bindings
    fields: dict[str, str] = field(default_factory=dict)
    records: dict[str, str] = field(default_factory=dict)
    products: tuple[str, ...] = ()

    @property
    def tensors(self) -> list[str]:
        """Every tensor as expressions may write it; the first element of a sequence."""
        return [f"{n}[0]" if isinstance(t, tuple) else n for n, t in self.bindings.tensors.items()]

    def of(self, kind: str) -> list[str]:
        """The attributes of a kind."""
        return [name for name, its_kind in self.fields.items() if its_kind == kind]

    def members(self, name: str) -> list[str]:
        """The fields of this name of all records."""
        return [f"{r}.{name}" for r, op in self.records.items() if name in spec(op).attrs]

    def value(self, text: str) -> Any:
        """The value of an expression at the instance; Undefined where it has none."""
        return evaluate(expression(text), self.bindings)


def products(left: Left) -> tuple[str, ...]:
    """The operators without attributes over plain variables on a left side, the first of each sequence for all."""
    parts: list[Spread | App] = [Spread(left.item, left.over)] if isinstance(left, Siblings) else list(left)
    texts: dict[str, None] = {}

    def walk(pattern: Pattern | Spread, over: dict[str, str]) -> None:
        if isinstance(pattern, Spread):
            walk(pattern.item, dict(pattern.over))
        elif isinstance(pattern, App):
            for operand in pattern.operands:
                walk(operand, over)
            plain = [o.name for o in pattern.operands if isinstance(o, Var)]
            if plain and len(plain) == len(pattern.operands) and not pattern.fields and pattern.record is None:
                names = [f"{over[n]}[0]" if n in over else n for n in plain]
                texts[f"{pattern.op}({', '.join(names)})"] = None

    for part in parts:
        walk(part, {})
    return tuple(texts)


def same(name: str, first: Any, second: Any) -> bool:
    """Return whether two values of an attribute mean the same; missing pads are zeros, and missing steps are ones."""
    if Attrs(v=first) == Attrs(v=second):
        return True
    plain = {"pads": 0, "strides": 1, "dilations": 1, "steps": 1}.get(name)
    return plain is not None and all(isinstance(v, tuple) and set(v) <= {plain} for v in (first, second))


def choices(name: str, value: Any, scope: BindingScope, inside: Collection[str] = ()) -> list[tuple[float, Expression]]:
    """Expressions for an attribute that have this value at the instance, with a cost each, the most general first.

    Those that speak of the tensors `inside` the operator come before those that speak of others.
    """
    costs: dict[str, float] = {}
    for cost, text in _expressions(name, scope):
        if text in costs:
            continue
        try:
            if same(name, scope.value(text), value):
                read = set(compiled(expression(text)).names) & scope.bindings.tensors.keys()
                costs[text] = cost + _ELSEWHERE * (not read.issubset(inside))
        except Undefined:
            continue
    cheapest = sorted((cost, text) for text, cost in costs.items())[:_FEW]
    if isinstance(value, bool):
        # The candidate's shapes may not tell, as whether to count a padding that is not there.
        cheapest.append((1.2, repr(not value)))
    kind = kind_of(name)
    sized = kind in ("shape", "sizes", "dim", "bounds") and not small(value)
    written = literal(value)
    plain = [(_SPECIAL if kind in ("perm", "dtype") else _LITERAL + 1.5 * bool(cheapest), written)]
    plain = [] if sized or written.text in costs else plain
    return sorted([(c, expression(t)) for c, t in cheapest] + plain, key=lambda one: (one[0], one[1].text))


def small(value: Any) -> bool:
    """Return whether a size is not specific to the candidate: none, zero or one."""
    return all(v in (0, 1) for v in (value if isinstance(value, tuple) else (value,)))


def _expressions(name: str, scope: BindingScope) -> Iterator[tuple[float, str]]:
    kind = kind_of(name)
    for text in (*scope.of(kind), *scope.members(name)):
        yield 0.0, text
    if kind in _OF_KIND:
        yield from _OF_KIND[kind](scope)


def _axis(scope: BindingScope) -> Iterator[tuple[float, str]]:
    for k in scope.of("axis"):
        for p in scope.of("perm"):
            yield from ((0.5, f"{p}[{k}]"), (0.5, f"place({p}, {k})"))
        yield from ((3.0, f"{k} - 1"), (3.0, f"{k} + 1"))
    for a in _axes_names(scope):
        yield 1.5, f"{a}[0]"
    for more, t in (*((0.0, t) for t in scope.tensors), *((0.5, t) for t in scope.products)):
        yield from ((1.5 + more, f"rank({t}) - 1"), (1.6 + more, f"rank({t}) - 2"))


def _axes_names(scope: BindingScope) -> list[str]:
    return [*scope.of("axes"), *scope.members("axes")]


def _perm(scope: BindingScope) -> Iterator[tuple[float, str]]:
    perms = scope.of("perm")
    for p in perms:
        yield 0.5, f"inverse({p})"
        for a in _axes_names(scope):
            yield 1.0, f"dropped_perm({p}, {a})"
        for t in scope.tensors:
            yield 2.0, f"trailing({p}, rank({t}))"
    for p, q in itertools.permutations(perms, 2):
        yield 0.5, f"compose({p}, {q})"
        yield from ((1.0, f"compose(inverse({p}), {q})"), (1.0, f"compose({p}, inverse({q}))"))
    for t in scope.tensors:
        yield from ((1.5, f"swapped(rank({t}))"), (2.5, f"identity_perm(rank({t}))"))


def _axes(scope: BindingScope) -> Iterator[tuple[float, str]]:
    axes = _axes_names(scope)
    for a in axes:
        for p in scope.of("perm"):
            yield from ((0.5, f"mapped({a}, {p})"), (0.5, f"mapped({a}, inverse({p}))"))
    for a, b in itertools.combinations(axes, 2):
        yield 0.5, f"union({a}, {b})"
    for k in scope.of("axis"):
        yield 0.5, f"({k},)"
        for p in scope.of("perm"):
            yield from ((1.0, f"({p}[{k}],)"), (1.0, f"(place({p}, {k}),)"))
    for t in scope.tensors:
        yield from ((1.5, f"(rank({t}) - 1,)"), (2.0, f"spatial_axes(rank({t}))"), (2.5, f"shifted(rank({t}), 0)"))


def _shape(scope: BindingScope) -> Iterator[tuple[float, str]]:
    tensors, shapes = scope.tensors, scope.of("shape")
    for p in scope.of("perm"):
        for s in (*shapes, *(f"shape({t})" for t in tensors)):
            yield from ((0.5, f"permuted({s}, {p})"), (0.5, f"permuted({s}, inverse({p}))"))
    for t in (*tensors, *scope.products):
        yield 1.0, f"shape({t})"
        for a in _axes_names(scope):
            yield 1.0, f"without_all(shape({t}), {a})"
    for s, t in itertools.product(shapes, tensors):
        yield from ((1.0, f"broadcast({s}, shape({t}))"), (1.5, f"{s}[:-1] + (dim({t}, -1),)"))
    for s, t in itertools.combinations(shapes, 2):
        yield 1.0, f"broadcast({s}, {t})"
    for t, u in itertools.product(tensors, tensors):
        yield from ((1.5 + i / 8, f"(dim({t}, {i}),) + ones(rank({u}) - {n})") for i in (0, 1) for n in (1, 2))
    for t, u in itertools.permutations(tensors, 2):
        yield from ((1.5, f"shape({t})[:-1] + (dim({u}, -1),)"), (1.5, f"broadcast(shape({t}), shape({u}))"))


def _dim(scope: BindingScope) -> Iterator[tuple[float, str]]:
    for t in scope.tensors:
        yield from ((1.0 + abs(i) / 8, f"dim({t}, {i})") for i in (-1, 0, 1, -2))


def _kernel(scope: BindingScope) -> Iterator[tuple[float, str]]:
    for t in scope.tensors:
        yield 0.5, f"shape({t})[2:]"


def _pads(scope: BindingScope) -> Iterator[tuple[float, str]]:
    windows = [r for r, op in scope.records.items() if {"pads", "dilations"} <= set(spec(op).attrs)]
    for r in windows:
        for p in (*scope.of("pads"), *(m for m in scope.members("pads") if not m.startswith(f"{r}."))):
            yield 0.5, f"padded_by({r}, {p})"
        for q, t in itertools.product(scope.of("kernel"), scope.tensors):
            yield 0.5, f"shrunk_pads({r}.pads, {r}.dilations, shape({t})[2:], {q})"
            yield 0.5, f"grown_pads({r}.pads, {r}.dilations, shape({t})[2:], {q})"
        for t, u in itertools.permutations(scope.tensors, 2):
            yield 1.0, f"grown_pads({r}.pads, {r}.dilations, shape({t})[2:], shape({u})[2:])"
    for p, q in itertools.combinations(scope.members("pads"), 2):
        yield 0.5, f"added({p}, {q})"


def _group(scope: BindingScope) -> Iterator[tuple[float, str]]:
    yield from ((1.0, f"2 * {g}") for g in scope.members("group"))
    for t in scope.tensors:
        yield from ((1.5, f"dim({t}, 1)"), (1.6, f"dim({t}, 0)"))
    yield from ((0.5, n) for n in scope.of("dim"))


def _dtype(scope: BindingScope) -> Iterator[tuple[float, str]]:
    yield from ((0.5 + 0.1 * i, f"dtype({t})") for i, t in enumerate(scope.tensors))


def _sizes(scope: BindingScope) -> Iterator[tuple[float, str]]:
    axes = [*scope.of("axis"), "-1", "0", "1", "-2"]
    axes += [f"{p}[{k}]" for p in scope.of("perm") for k in scope.of("axis")]
    groups = [n for n, t in scope.bindings.tensors.items() if isinstance(t, tuple)]
    for xs in groups:
        for cost, axis in enumerate(axes):
            yield cost / 8, f"[dim({xs[:-1]}, {axis}) for {xs[:-1]} in {xs}]"
    single = [n for n, t in scope.bindings.tensors.items() if not isinstance(t, tuple)]
    for x, y in itertools.permutations(single, 2):
        for cost, axis in enumerate(axes):
            yield 1.0 + cost / 8, f"(dim({x}, {axis}), dim({y}, {axis}))"


def _bounds(scope: BindingScope) -> Iterator[tuple[float, str]]:
    yield 0.5, "(0,)"
    axes = [*scope.of("axis"), "-1", "0", "1", "-2"]
    for cost, axis in enumerate(axes):
        yield from ((0.5 + cost / 8, f"(dim({t}, {axis}),)") for t in scope.tensors)
        for t, u in itertools.combinations(scope.tensors, 2):
            yield 1.0 + cost / 8, f"(dim({t}, {axis}) + dim({u}, {axis}),)"


def splices(op: str, attrs: Attrs, scope: BindingScope) -> list[tuple[float, Expression]]:
    """Expressions for a whole slice that make these attributes at the instance."""
    if op != "slice":
        return []
    records = [r for r, of in scope.records.items() if of == "slice"]
    texts: list[tuple[float, str]] = []
    for r in records:
        for p in scope.of("perm"):
            texts += [(0.5, f"axes_to({r}, {p})"), (0.5, f"axes_to({r}, inverse({p}))")]
    for r, s in itertools.permutations(records, 2):
        texts += [(0.5, f"after({x}, {r}, {s})") for x in scope.tensors]
    options = []
    for cost, text in texts:
        try:
            if spec(op).complete(scope.value(text)) == attrs:
                options.append((cost, expression(text)))
        except Undefined:
            continue
    return options


_OF_KIND = {
    "axis": _axis,
    "perm": _perm,
    "axes": _axes,
    "shape": _shape,
    "dim": _dim,
    "kernel": _kernel,
    "pads": _pads,
    "group": _group,
    "dtype": _dtype,
    "sizes": _sizes,
    "bounds": _bounds,
}
