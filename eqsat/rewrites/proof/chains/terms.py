"""Sides of rules as terms of a closure: a side built from bindings, and a left side matched against terms."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from eqsat.language.ops import spec
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.instantiation import instantiate_all
from eqsat.language.terms.pattern import ABSENT, App, Bindings, Expression, Pattern, Spread, Var, element, spread_roots
from eqsat.rewrites.conditions.expression import bound_name
from eqsat.rewrites.proof.chains.closure import Closure, ClosureTerm
from eqsat.rewrites.proof.chains.symbols import Env, Member, Ref, Symbol, SymbolRecord, Thing, literal, symbol
from eqsat.rewrites.rules.rule import SPLICE, Rule, pattern_fields

#: The bounds of the parts of a split, and the axes, as the slices that are its outputs have them.
STARTS, ENDS, AXES = (
    Expression(text, ast.parse(text, mode="eval").body)
    for text in ("(sum(sizes[:index]),)", "(sum(sizes[:index + 1]),)", "(axis,)")
)


class NoMatchError(Exception):
    """A left side that does not match the terms it is said to match."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An instance of a rule: both sides as terms, the meaning of its names, and the root of the rule that it is about.

    `agree` are pairs of attributes that the match takes for equal.
    """

    rule: Rule
    left: int
    right: int
    env: tuple[tuple[str, Thing], ...]
    agree: tuple[tuple[Symbol, Symbol], ...]
    root: int = 0


class TermScope(NamedTuple):
    """Values and symbols that names stand for at a place in a pattern."""

    bindings: Bindings
    env: Env


class Writer:
    """A writer of patterns as terms of a closure."""

    def __init__(self, closure: Closure, rule: Rule, bindings: Bindings, env: Env) -> None:
        self.closure, self.rule, self.scope = closure, rule, TermScope(bindings, env)

    def roots(self, patterns: Sequence[Pattern | Spread], count: int | None = None) -> list[int]:
        """The terms of a side, one for each output; of a split, the slices that it makes."""
        (first, *more) = patterns
        if not more and isinstance(first, App) and first.op == "split":
            return list(self._slices(first, instantiate_all(first.operands, self.scope, self), self.scope))
        terms = instantiate_all(patterns, self.scope, self)
        return terms * (count or 1) if len(terms) == 1 and count is not None else terms

    def left_roots(self) -> list[int]:
        """The terms of the left side's roots."""
        return self.roots(spread_roots(self.rule.left))

    def variable(self, name: str, scope: TermScope) -> int:
        """The term of a variable."""
        return _term(name, scope.env[name])

    def members(self, spread: Spread, scope: TermScope) -> list[int]:
        """The terms of a sequence that a spread takes."""
        name = spread.item.name if isinstance(spread.item, Var) else ""
        return [_term(name, item(scope.env[name], i)) for i in self.rule.window(spread, scope.bindings)]

    def elements(self, spread: Spread, scope: TermScope) -> Iterator[TermScope]:
        """The scope inside a loop, element by element."""
        for index in self.rule.window(spread, scope.bindings):
            chosen = {variable: item(scope.env[sequence], index) for variable, sequence in spread.over}
            yield TermScope(element(scope.bindings, spread.over, index), {**scope.env, **chosen})

    def absent(self) -> int:
        """NoMatchError: the terms of a closure lack no operand."""
        raise NoMatchError(ABSENT.op)

    def apply(self, app: App, operands: Sequence[int], scope: TermScope) -> int:
        """The term of an operator; of a split inside a pattern, its first part."""
        if app.op == "split":
            return next(self._slices(app, operands, scope))
        attrs = spec(app.op).complete(self.rule.attributes(app, scope.bindings))
        return self.closure.add(ClosureTerm(app.op, attrs, self._symbols(app, attrs, scope), tuple(operands)))

    def _symbols(self, app: App, attrs: Attrs, scope: TermScope) -> tuple[tuple[str, Symbol], ...]:
        given: dict[str, Symbol] = {}
        if app.record is not None:
            record = _one(scope.env[app.record])
            given.update((k, record.get(k) if isinstance(record, SymbolRecord) else Member(record, k)) for k in attrs)
        for name, stated in app.fields.items():
            if name == SPLICE:
                whole = _one(symbol(stated, scope.env))
                here = self.rule.attributes(App(app.op, (), {SPLICE: stated}), scope.bindings)
                given.update((k, Member(whole, k)) for k in here)
            else:
                given[name] = _one(symbol(stated, scope.env))
        return tuple((k, given[k] if k in given else literal(v)) for k, v in attrs.items())

    def _slices(self, app: App, operands: Sequence[int], scope: TermScope) -> Iterator[int]:
        """The slices that are the outputs of a split."""
        (whole,) = operands
        stated = spec("split").complete(self.rule.attributes(app, scope.bindings))
        symbols = dict(self._symbols(app, stated, scope))
        axis, sizes = stated["axis"], stated["sizes"]
        for index in range(len(sizes)):
            place = sum(sizes[:index])
            attrs = spec("slice").complete(
                {"starts": (place,), "ends": (place + sizes[index],), "axes": (axis,), "steps": (1,)}
            )
            env: Env = {"sizes": symbols["sizes"], "index": literal(index), "axis": symbols["axis"]}
            fields: dict[str, Symbol] = {
                "starts": _one(symbol(STARTS, env)),
                "ends": _one(symbol(ENDS, env)),
                "axes": _one(symbol(AXES, env)),
                "steps": literal((1,)),
            }
            yield self.closure.add(ClosureTerm("slice", attrs, tuple((k, fields[k]) for k in attrs), (whole,)))


class Matcher:
    """A matcher of a rule's left side with the terms of a closure, given the terms of its variables.

    What the attributes in the pattern bind becomes known; what has to agree is noted.
    """

    def __init__(self, closure: Closure, rule: Rule, bindings: Bindings, tensors: Mapping[str, Thing]) -> None:
        self.closure, self.rule, self.bindings = closure, rule, bindings
        self.env: Env = dict(tensors)
        self.agree: list[tuple[Symbol, Symbol]] = []
        self._later: list[tuple[Symbol, Expression, Env]] = []
        self._loop: dict[str, str] = {}

    def roots(self) -> list[int]:
        """The terms of the roots, as matched."""
        terms = instantiate_all(spread_roots(self.rule.left), self.bindings, self)
        for known, stated, inner in self._later:
            self._same(known, _one(symbol(stated, {**self.env, **inner})))
        return terms

    def variable(self, name: str, bindings: Bindings) -> int:
        """The term that a variable is given."""
        return _term(name, self.env[name])

    def members(self, spread: Spread, bindings: Bindings) -> list[int]:
        """The terms that a sequence is given."""
        name = spread.item.name if isinstance(spread.item, Var) else ""
        group = self.env[name]
        return [_term(name, one) for one in (group if isinstance(group, tuple) else (group,))]

    def absent(self) -> int:
        """NoMatchError: the terms of a closure lack no operand."""
        raise NoMatchError(ABSENT.op)

    def apply(self, app: App, operands: Sequence[int], bindings: Bindings) -> int:
        """The term of an operator with the symbols of one that is there, whose attributes become known."""
        children = tuple(operands)
        attrs = spec(app.op).complete(self.rule.attributes(app, bindings))
        matched = self.closure.lookup(app.op, attrs, children)
        if matched is None:
            raise NoMatchError(app.op)
        symbols = self.closure.terms[matched].symbols
        self._bind(app, symbols)
        return self.closure.add(ClosureTerm(app.op, attrs, symbols, children))

    def _bind(self, app: App, symbols: tuple[tuple[str, Symbol], ...]) -> None:
        if app.record is not None:
            self._set(app.record, SymbolRecord(symbols))
        for name, known in symbols:
            stated = pattern_fields(app).get(name)
            if stated is None and app.record is not None:
                continue
            if not isinstance(stated, Expression):
                self._same(known, literal(stated))
            elif bound_name(stated) is not None:
                self._set(stated.text, known)
            else:
                self._later.append((known, stated, {v: self.env[v] for v in self._loop if v in self.env}))

    def _set(self, name: str, known: Symbol) -> None:
        bound = self.env.get(name)
        if bound is None:
            self.env[name] = known
        else:
            self._same(_one(bound), known)

    def _same(self, one: Symbol, other: Symbol) -> None:
        if one == other:
            return
        if isinstance(one, SymbolRecord) and isinstance(other, SymbolRecord):
            for (_, a), (_, b) in zip(one.items, other.items, strict=True):
                self._same(a, b)
        else:
            self.agree.append((one, other))

    def elements(self, spread: Spread, bindings: Bindings) -> Iterator[Bindings]:
        """The bindings of each element of a loop; the symbols that its attributes bind join the sequences."""
        over = spread.over
        known = [len(group) for _, s in over if isinstance(group := self.env.get(s), tuple)]
        counts = known or [len(bindings.attrs[s]) for _, s in over]
        gathered: dict[str, list[Thing]] = {s: [] for _, s in over if s not in self.env}
        outer = self._loop
        self._loop = dict(over)
        for index in range(counts[0]):
            for variable, sequence in over:
                self.env.pop(variable, None)
                if sequence in self.env and sequence not in gathered:
                    self.env[variable] = item(self.env[sequence], index)
            yield element(bindings, over, index)
            for variable, sequence in over:
                if sequence in gathered:
                    gathered[sequence].append(self.env[variable])
        for variable, _ in over:
            self.env.pop(variable, None)
        self._loop = outer
        self.env |= {sequence: tuple(things) for sequence, things in gathered.items()}


def item(thing: Thing, index: int) -> Thing:
    """An element of a sequence; anything else is its own element."""
    return thing[index] if isinstance(thing, tuple) else thing


def _term(name: str, thing: Thing) -> int:
    """The term that a name stands for; NoMatchError where it stands for none."""
    if not isinstance(thing, Ref):
        raise NoMatchError(name)
    return thing.term


def _one(thing: Thing) -> Symbol:
    if isinstance(thing, Ref | tuple):
        raise NoMatchError("a tensor where an attribute belongs")
    return thing
