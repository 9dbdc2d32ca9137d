"""Predicates for conditions over the variables that a left side binds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from eqsat.language.ops import spec
from eqsat.language.terms.pattern import Expression
from eqsat.rewrites.discovery.equations.sides import expression
from eqsat.rewrites.discovery.generalise.attribute_expressions import BindingScope
from eqsat.rewrites.discovery.generalise.cases import holds


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition and how special it is: dear ones are left out first."""

    expression: Expression
    cost: float

    @property
    def text(self) -> str:
        """The condition in the syntax of rules."""
        return self.expression.text


@dataclass(frozen=True, slots=True)
class _Term:
    """A tensor inside a condition: its name, and the sequence it runs over, if any."""

    name: str
    sequence: str = ""


def predicates(scope: BindingScope) -> list[Predicate]:
    """Every predicate over the bindings of a left side that holds at the instance the equation was found at.

    None says that two variables of one kind are equal: a left side that shares one variable says so.
    """
    costs: dict[str, float] = {}
    for cost, text in _texts(scope):
        if costs.get(text, cost + 1) > cost:
            costs[text] = cost
    return [Predicate(e, cost) for text, cost in costs.items() if holds(e := expression(text), scope.bindings)]


def _texts(scope: BindingScope) -> Iterator[tuple[float, str]]:
    terms = [_Term(n[:-1], n) if isinstance(t, tuple) else _Term(n) for n, t in scope.bindings.tensors.items()]
    for t in terms:
        for cost, text in _of_one(t.name, scope):
            yield cost, _quantified(text, t)
        if t.sequence:
            first = _Term(f"{t.sequence}[0]")
            for cost, text in _of_one(first.name, scope):
                yield cost - 0.25, text
            for cost, text in _of_two(t.name, first.name, scope, apart=False):
                yield cost, _quantified(text, t)
    for t, u in itertools.permutations(terms, 2):
        for cost, text in _of_two(t.name, u.name, scope):
            yield cost, _quantified(text, t, u)
        if t.sequence or u.sequence:
            names = [f"{v.sequence}[0]" if v.sequence else v.name for v in (t, u)]
            for cost, text in _of_two(names[0], names[1], scope):
                yield cost - 0.25, text
        if t.sequence and u.sequence:
            yield 0.5, f"len({t.sequence}) == len({u.sequence})"
    for a, b, c in itertools.permutations([t.name for t in terms if not t.sequence], 3):
        if a < b:
            yield 2.0, f"broadcast(shape({a}), shape({b})) == broadcast(shape({a}), shape({b}), shape({c}))"
    yield from _of_attributes(scope)


def _quantified(text: str, *terms: _Term) -> str:
    """The predicate for all elements of the sequences it speaks of."""
    running = [t for t in terms if t.sequence]
    if not running:
        return text
    if len(running) == 1:
        return f"all({text} for {running[0].name} in {running[0].sequence})"
    names = ", ".join(t.name for t in running)
    return f"all({text} for {names} in zip({', '.join(t.sequence for t in running)}))"


def _axes(scope: BindingScope) -> list[str]:
    """Axes that predicates speak of: the bound ones, and the first two."""
    return [*scope.of("axis"), "0", "1"]


def _of_one(t: str, scope: BindingScope) -> Iterator[tuple[float, str]]:
    for r in range(5):
        yield 1.75, f"rank({t}) == {r}"
    for r in (1, 2, 3):
        yield 0.75, f"rank({t}) >= {r}"
        yield 1.75, f"rank({t}) <= {r}"
    yield 2.0, f"size({t}) == 1"
    for k in scope.of("axis"):
        yield 1.0, f"{k} == rank({t}) - 1"
        yield from ((1.0, f"{k} < rank({t}) - {i}") for i in (1, 2))
        yield from ((1.5, f"{k} == rank({t}) - 2"), (1.2, f"{k} != rank({t}) - 1"))
        yield 3.0, f"dim({t}, {k}) == 1"
    for p in scope.of("perm"):
        yield 3.0, f"view_keeps_order(shape({t}), {p})"
        yield 2.0, f"{p} == identity_perm(rank({t}))"
        yield 1.0, f"rank({t}) == len({p})"
    for a in (*scope.of("axes"), *scope.members("axes")):
        yield 1.5, f"positive_dims({t}, {a})"
        yield 1.0, f"(rank({t}) - 1) not in {a}"
        yield 1.2, f"(rank({t}) - 2) not in {a}"
        yield 1.5, f"{a} == tail_axes(len({a}), rank({t}))"
    for product in scope.products:
        yield 1.75, f"spans({product}, {t})"
    for s in scope.of("shape"):
        for a in (*scope.of("axes"), *scope.members("axes")):
            yield 1.5, f"{s} == without_all(shape({t}), {a})"
        yield from ((1.0, f"len({s}) == rank({t})"), (3.0, f"{s} == shape({t})"))
        yield 1.5, f"keeps_last({t}, {s})"
        yield 1.5, f"broadcast(shape({t}), {s}) == {s}"
        yield 1.5, f"broadcast(shape({t}), {s}) == shape({t})"
        yield 1.5, f"{s}[-1] == dim({t}, -1)"
        yield 1.5, f"prod({s}[:-1]) == prod(shape({t})[:-1])"
    for record, op in scope.records.items():
        if op == "slice":
            yield from ((1.5, f"{record}.ends[0] == dim({t}, {k})") for k in scope.of("axis"))
        if "group" in spec(op).attrs:
            yield 2.5, f"{record}.group == dim({t}, 1)"


def _of_two(t: str, u: str, scope: BindingScope, *, apart: bool = True) -> Iterator[tuple[float, str]]:
    if t < u:
        yield 1.0, f"rank({t}) == rank({u})"
        yield 2.0, f"same_shape({t}, {u})"
        yield from ((1.5, f"without(shape({t}), {k}) == without(shape({u}), {k})") for k in _axes(scope))
        yield 1.5, f"shape({t})[:-1] == shape({u})[:-1]"
        yield 1.6, f"shape({t})[1:] == shape({u})[1:]"
        yield 1.7, f"shape({t})[:-2] == shape({u})[:-2]"
        yield 1.7, f"replaced(shape({t}), -2, 1) == replaced(shape({u}), -2, 1)"
    elif not apart:
        yield from _of_two(u, t, scope)
        return
    for i in ("-1", "-2", *_axes(scope)):
        if t < u:
            yield 1.5, f"dim({t}, {i}) == dim({u}, {i})"
    yield from (
        (1.75, f"dim({t}, {i}) == dim({u}, {j})") for i, j in (("-1", "-2"), ("-1", "0"), ("1", "0"), ("0", "-1"))
    )
    if not apart:
        return
    yield 1.6, f"spans({t}, {u})"
    yield from ((1.0, f"rank({u}) <= rank({t})"), (1.25, f"rank({u}) < rank({t})"))
    for k in _axes(scope):
        yield 1.2 + 0.3 * k.isdigit(), f"off_axis({u}, {k}, rank({t}))"
        yield 1.8, f"along_only({u}, {k}, rank({t}), dim({t}, {k}))"
    yield 1.8, f"along_only({u}, rank({t}) - 1, rank({t}), dim({t}, -1))"
    yield from ((1.6, f"shape({u}) == (dim({t}, {i}),)") for i in ("-1", "0", "1"))
    yield 1.6, f"along_only({u}, 1, rank({t}), dim({t}, 0))"
    yield 1.6, f"off_axis({u}, rank({t}) - 1, rank({t}))"
    for a in (*scope.of("axes"), *scope.members("axes")):
        yield 1.5, f"all(off_axis({u}, i, rank({t})) for i in {a})"
        if t < u:
            yield 1.6, f"all(dim({t}, i) == dim({u}, i) for i in {a})"
            yield 1.7, f"without_all(shape({t}), {a}) == without_all(shape({u}), {a})"


def _of_attributes(scope: BindingScope) -> Iterator[tuple[float, str]]:
    axes = scope.of("axis")
    for k in axes:
        yield from ((1.5, f"{k} == {i}") for i in range(4))
        yield from ((1.8, f"{k} != 0"), (1.8, f"{k} != 1"), (1.5, f"{k} >= 2"), (1.5, f"{k} < 2"))
        for p in scope.of("perm"):
            yield 3.5, f"{p}[{k}] == {k}"
        for a in (*scope.of("axes"), *scope.members("axes")):
            yield from ((1.0, f"{k} in {a}"), (1.0, f"{k} not in {a}"), (1.5, f"all(i < {k} for i in {a})"))
            yield 1.5, f"all(i > {k} for i in {a})"
    for k, j in itertools.permutations(axes, 2):
        if k < j:
            yield 1.0, f"{k} != {j}"
        yield 1.5, f"{k} < {j}"
    yield from _of_permutations(scope)
    for a in scope.of("axes"):
        yield 2.0, f"len({a}) == 1"
    for a, b in itertools.combinations((*scope.of("axes"), *scope.members("axes")), 2):
        yield 1.5, f"not any(i in {b} for i in {a})"
        yield 1.6, f"all(i in {b} for i in {a})"
    for s, t in itertools.combinations(scope.of("shape"), 2):
        yield 1.5, f"len({s}) == len({t})"
    for record, op in scope.records.items():
        yield from _of_record(record, op, scope)
    for (r, op), (s, other) in itertools.combinations(scope.records.items(), 2):
        if op == other == "slice":
            yield 1.5, f"not any(i in {s}.axes for i in {r}.axes)"


def _of_permutations(scope: BindingScope) -> Iterator[tuple[float, str]]:
    perms = scope.of("perm")
    for p in perms:
        yield 1.5, f"{p}[-1] == len({p}) - 1"
        yield 1.5, f"{p}[-2:] == (len({p}) - 2, len({p}) - 1)"
        yield 1.5, f"{p}[-2:] == (len({p}) - 1, len({p}) - 2)"
        yield from ((1.5, f"{p}[0] == 0"), (2.0, f"{p}[1] == 1"), (1.8, f"{p}[:2] == (0, 1)"))
        yield 4.0, f"{p} == inverse({p})"  # mostly a sign of the wrong direction on the right side
    for p, q in itertools.combinations(perms, 2):
        yield from ((2.0, f"{p} == inverse({q})"), (1.0, f"len({p}) == len({q})"))


def _of_record(record: str, op: str, scope: BindingScope) -> Iterator[tuple[float, str]]:
    """Predicates about single attributes; those that are flags, numbers or names by their value at the instance."""
    attrs: Any = scope.bindings.attrs[record]
    for key, value in attrs.items():
        if isinstance(value, bool):
            yield 1.0, f"{record}.{key}" if value else f"not {record}.{key}"
        elif isinstance(value, str | int | float) or value is None:
            yield 1.0, f"{record}.{key} == {value!r}"
    if "pads" in attrs:
        yield 1.5, f"unpadded({record})" if op != "pad" else f"pads_space({record}.pads)"
        yield 1.6, f"{record}.count_include_pad or not any({record}.pads)"
        yield 1.5, f"min({record}.pads) >= 0"
    if "kernel" in attrs:
        yield 2.5, f"all(n == 1 for n in {record}.kernel)"
    if "strides" in attrs:
        yield 2.0, f"all(n == 1 for n in {record}.strides)"
        yield from ((1.5, f"keeps_size({record}, {m})") for m in scope.of("kernel"))
        yield from ((1.5, f"{record}.kernel == {m}") for m in scope.of("kernel") if "kernel" in attrs)
        yield from ((1.5, f"{record}.group == {n}") for n in scope.of("dim") if "group" in attrs)
    if op == "slice":
        yield 1.0, f"forward({record})"
        for k in scope.of("axis"):
            yield from ((1.0, f"{k} not in {record}.axes"), (1.5, f"only_cuts({record}, {k})"))
            yield 2.0, f"{record}.axes == ({k},)"
        for t in (*scope.tensors, *scope.products):
            yield 1.2, f"(rank({t}) - 1) not in {record}.axes"
            yield 1.8, f"{record}.axes == (rank({t}) - 1,)"
    if "axis" in attrs:
        for t in scope.tensors:
            yield 1.5, f"{record}.axis == rank({t}) - 1"
        yield from ((1.0, f"{k} != {record}.axis") for k in scope.of("axis"))
        yield from ((1.5, f"{k} < {record}.axis") for k in scope.of("axis"))
