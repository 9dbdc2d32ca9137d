"""Sides of rules as terms of a closure: a side built from what is bound, and a left side matched against terms."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eqsat.language.ops import spec
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.pattern import App, Bindings, Expression, Pattern, Siblings, Spread, Var, element
from eqsat.rewrites.conditions.expression import bound_name
from eqsat.rewrites.proof.chains.closure import Closure, Term
from eqsat.rewrites.proof.chains.symbols import Env, Member, Record, Ref, Symbol, Thing, literal, symbol
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
    """An instance of a rule: both sides as terms, what its names stand for, and which root of the rule it is about.

    `agree` are pairs of attributes that the match takes for equal.
    """

    rule: Rule
    left: int
    right: int
    env: tuple[tuple[str, Thing], ...]
    agree: tuple[tuple[Symbol, Symbol], ...]
    root: int = 0


class Writer:
    """Writes patterns as terms of a closure."""

    def __init__(self, closure: Closure, rule: Rule, bindings: Bindings, env: Env) -> None:
        self.closure, self.rule, self.bindings, self.env = closure, rule, bindings, env

    def roots(self, patterns: Sequence[Pattern | Spread], count: int | None = None) -> list[int]:
        """The terms of a side, one for each output; of a split, the slices that it makes."""
        (first, *more) = patterns
        if not more and isinstance(first, App) and first.op == "split":
            return list(self._split(first))
        found = [n for p in patterns for n in self.terms(p)]
        return found * (count or 1) if len(found) == 1 and count is not None else found

    def left_roots(self) -> list[int]:
        """The terms of the left side's roots."""
        left = self.rule.left
        if isinstance(left, Siblings):
            return list(self.terms(Spread(left.item, left.over)))
        return self.roots(left)

    def terms(self, pattern: Pattern | Spread) -> Iterator[int]:
        """The term of a pattern, or those of a spread."""
        if isinstance(pattern, Var):
            thing = self.env[pattern.name]
            if not isinstance(thing, Ref):
                raise NoMatchError(pattern.name)
            yield thing.term
        elif isinstance(pattern, Spread):
            yield from self._spread(pattern)
        elif pattern.op == "split":
            yield next(self._split(pattern))
        else:
            children = tuple(n for o in pattern.operands for n in self.terms(o))
            attrs = spec(pattern.op).complete(self.rule.attributes(pattern, self.bindings))
            yield self.closure.add(Term(pattern.op, attrs, self._symbols(pattern, attrs), children))

    def _symbols(self, app: App, attrs: Attrs) -> tuple[tuple[str, Symbol], ...]:
        given: dict[str, Symbol] = {}
        if app.record is not None:
            record = _one(self.env[app.record])
            given.update((k, record.get(k) if isinstance(record, Record) else Member(record, k)) for k in attrs)
        for name, stated in app.fields.items():
            if name == SPLICE:
                whole = _one(symbol(stated, self.env))
                here = self.rule.attributes(App(app.op, (), {SPLICE: stated}), self.bindings)
                given.update((k, Member(whole, k)) for k in here)
            else:
                given[name] = _one(symbol(stated, self.env))
        return tuple((k, given[k] if k in given else literal(v)) for k, v in attrs.items())

    def _spread(self, spread: Spread) -> Iterator[int]:
        window = self.rule.window(spread, self.bindings)
        if not spread.over:
            group = self.env[spread.item.name] if isinstance(spread.item, Var) else ()
            for index in window:
                chosen = group[index] if isinstance(group, tuple) else group
                yield chosen.term if isinstance(chosen, Ref) else -1
            return
        for index in window:
            yield from self.inside(spread.over, index).terms(spread.item)

    def inside(self, over: tuple[tuple[str, str], ...], index: int) -> Writer:
        """A writer of what is inside a loop, at one element."""
        env = dict(self.env)
        for variable, sequence in over:
            env[variable] = item(self.env[sequence], index)
        return Writer(self.closure, self.rule, element(self.bindings, over, index), env)

    def _split(self, app: App) -> Iterator[int]:
        """The slices that are the outputs of a split."""
        (whole,) = (n for o in app.operands for n in self.terms(o))
        stated = spec("split").complete(self.rule.attributes(app, self.bindings))
        symbols = dict(self._symbols(app, stated))
        axis, sizes = stated["axis"], stated["sizes"]
        for index in range(len(sizes)):
            place = sum(sizes[:index])
            attrs = spec("slice").complete(
                {"starts": (place,), "ends": (place + sizes[index],), "axes": (axis,), "steps": (1,)}
            )
            env: Env = {"sizes": symbols["sizes"], "index": literal(index), "axis": symbols["axis"]}
            made: dict[str, Symbol] = {
                "starts": _one(symbol(STARTS, env)),
                "ends": _one(symbol(ENDS, env)),
                "axes": _one(symbol(AXES, env)),
                "steps": literal((1,)),
            }
            yield self.closure.add(Term("slice", attrs, tuple((k, made[k]) for k in attrs), (whole,)))


class Matcher:
    """Matches a rule's left side against the terms of a closure, given the terms of its variables.

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
        left = self.rule.left
        if isinstance(left, Siblings):
            found = list(self._loops(left.item, left.over, self.bindings))
        else:
            found = [n for app in left for n in self._terms(app, self.bindings)]
        for known, stated, inner in self._later:
            self._same(known, _one(symbol(stated, {**self.env, **inner})))
        return found

    def _terms(self, pattern: Pattern | Spread, bindings: Bindings) -> Iterator[int]:
        if isinstance(pattern, Var):
            thing = self.env[pattern.name]
            yield thing.term if isinstance(thing, Ref) else -1
        elif isinstance(pattern, Spread):
            if pattern.over:
                yield from self._loops(pattern.item, pattern.over, bindings)
            elif isinstance(pattern.item, Var):
                group = self.env[pattern.item.name]
                yield from (t.term for t in (group if isinstance(group, tuple) else (group,)) if isinstance(t, Ref))
        else:
            children = tuple(n for o in pattern.operands for n in self._terms(o, bindings))
            attrs = spec(pattern.op).complete(self.rule.attributes(pattern, bindings))
            matched = self.closure.lookup(pattern.op, attrs, children)
            if matched is None:
                raise NoMatchError(pattern.op)
            symbols = self.closure.terms[matched].symbols
            self._bind(pattern, symbols)
            yield self.closure.add(Term(pattern.op, attrs, symbols, children))

    def _bind(self, app: App, symbols: tuple[tuple[str, Symbol], ...]) -> None:
        if app.record is not None:
            self._set(app.record, Record(symbols))
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
        if isinstance(one, Record) and isinstance(other, Record):
            for (_, a), (_, b) in zip(one.items, other.items, strict=True):
                self._same(a, b)
        else:
            self.agree.append((one, other))

    def _loops(self, item_pattern: Pattern, over: tuple[tuple[str, str], ...], bindings: Bindings) -> Iterator[int]:
        """The terms of each element; what its attributes bind joins the sequences."""
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
            yield from self._terms(item_pattern, element(bindings, over, index))
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


def _one(thing: Thing) -> Symbol:
    if isinstance(thing, Ref | tuple):
        raise NoMatchError("a tensor where an attribute belongs")
    return thing
