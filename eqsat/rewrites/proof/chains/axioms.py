"""Rules as first-order axioms, and instances of them as ground formulas."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from eqsat.language.declaration.spec import REQUIRED
from eqsat.language.ops import spec
from eqsat.language.terms.instantiation import instantiate_all
from eqsat.language.terms.pattern import App, Expression, Spread, Var, spread_roots
from eqsat.rewrites.conditions.expression import bound_name
from eqsat.rewrites.proof.chains.closure import Closure
from eqsat.rewrites.proof.chains.logic import Logic, Translator, facts_of
from eqsat.rewrites.proof.chains.symbols import Bound, Computed, Literal, Member, Ref, Symbol, SymbolRecord, Thing
from eqsat.rewrites.proof.chains.terms import AXES, ENDS, STARTS, Equation
from eqsat.rewrites.rules.rule import SPLICE, Rule, pattern_fields


class Ground:
    """The terms of a closure, and symbols over them, in logic."""

    def __init__(self, logic: Logic, closure: Closure, fields: dict[str, tuple[str, ...]]) -> None:
        """`fields` gives the fields of the records that the rule binds."""
        self.logic, self.closure, self.fields = logic, closure, fields
        self._made: dict[int, Any] = {}
        self._values: dict[int, tuple[Symbol, Any]] = {}  # by identity: symbols are deep, and shared as objects

    def term(self, number: int) -> Any:
        """A term."""
        if number not in self._made:
            term, logic = self.closure.terms[number], self.logic
            if term.leaf is not None:
                self._made[number] = logic.constant(f"tensor {term.label}", logic.tensor)
            else:
                fields = {k: self.value(s) for k, s in term.symbols}
                self._made[number] = logic.apply(term.op, fields, [self.term(c) for c in term.children])
        return self._made[number]

    def thing(self, thing: Thing) -> Any:
        """The meaning of a name: a term, a value, a record or a list of these."""
        if isinstance(thing, Ref):
            return self.term(thing.term)
        if isinstance(thing, tuple):
            return [self.thing(t) for t in thing]
        if isinstance(thing, SymbolRecord):
            return {k: self.value(s) for k, s in thing.items}
        if isinstance(thing, Bound) and thing.name in self.fields:
            return {k: self.value(Member(thing, k)) for k in self.fields[thing.name]}
        return self.value(thing)

    def value(self, symbol: Symbol) -> Any:
        """A value."""
        known = self._values.get(id(symbol))
        if known is None:
            known = self._values[id(symbol)] = symbol, self._value(symbol)
        return known[1]

    def _value(self, symbol: Symbol) -> Any:
        logic = self.logic
        if isinstance(symbol, Literal):
            return logic.literal(symbol.value)
        if isinstance(symbol, Bound):
            return logic.constant(_label(symbol), logic.values)
        if isinstance(symbol, Member):
            if isinstance(symbol.record, Bound):
                return logic.constant(f"{_label(symbol.record)}.{symbol.key}", logic.values)
            return logic.call(f"field {symbol.key}", [self.thing(symbol.record)], logic.values)
        if isinstance(symbol, Computed):
            translator = Translator(logic, {n: self.thing(t) for n, t in symbol.env})
            return logic.number(translator.value(symbol.expression.tree))
        return logic.call("record", [self.thing(symbol)], logic.values)

    def conditions(self, rule: Rule, env: Iterable[tuple[str, Thing]]) -> list[Any]:
        """The conditions of a rule under the meaning of its names."""
        translator = Translator(self.logic, {n: self.thing(t) for n, t in env})
        return [translator.condition(c.tree) for c in rule.conditions]

    def facts(self, numbers: Iterable[int]) -> list[Any]:
        """The facts known of the types of these terms and of those in them."""
        seen: set[int] = set()
        facts: list[Any] = []
        pending = list(numbers)
        while pending:
            number = pending.pop()
            term = self.closure.terms[number]
            if number in seen or term.leaf is not None:
                continue
            seen.add(number)
            pending += term.children
            fields = {k: self.value(s) for k, s in term.symbols}
            facts += facts_of(self.logic, term.op, fields, [self.term(c) for c in term.children])
        return facts

    def equality(self, equation: Equation) -> Any:
        """Both sides of an equation as equal."""
        return self.term(equation.left) == self.term(equation.right)


def _label(bound: Bound) -> str:
    return f"attr {bound.label}"


class Place(NamedTuple):
    """The meaning of names at a place in a pattern, and a suffix for the variables bound there: the element's index."""

    env: dict[str, Any]
    suffix: str = ""


class Axiom:
    """A rule as a formula about all tensors and attributes, its sequences of one length."""

    def __init__(self, logic: Logic, rule: Rule, arity: int) -> None:
        self.logic, self.rule, self.arity = logic, rule, arity
        self.env: dict[str, Any] = {}
        self.bound: list[Any] = []

    def formulas(self) -> list[Any]:
        """One for each root; each says that a well-typed left side is equal to its right side, which is well-typed."""
        z3, rule = self.logic.z3, self.rule
        for name in sorted(rule.tensors):
            self.env[name] = self.fresh(name, self.logic.tensor)
        for name in sorted(rule.tensor_groups):
            self.env[name] = [self.fresh(f"{name}{i}", self.logic.tensor) for i in range(self.arity)]
        matched = _Left(self)
        left = instantiate_all(spread_roots(rule.left), Place(self.env), matched)
        right = _Right(self).roots(len(left))
        premises = [self.logic.typed(t) for t in left]
        translator = Translator(self.logic, self.env)
        premises += [translator.condition(c.tree) for c in rule.conditions]
        for known, stated, inner in matched.later:
            premises.append(
                known == self.logic.number(Translator(self.logic, {**self.env, **inner}).value(stated.tree))
            )
        premises += matched.guards
        ends = [z3.And(a == b, self.logic.typed(b)) for a, b in zip(left, right, strict=True)]
        body = z3.Implies(z3.And(*premises), z3.And(*ends))
        if not self.bound:
            return [body]
        pattern = left[0] if len(left) == 1 else z3.MultiPattern(*left)
        return [z3.ForAll(self.bound, body, patterns=[pattern])]

    def fresh(self, name: str, sort: Any) -> Any:
        """A variable that the formula is about all values of."""
        variable = self.logic.constant(f"?{name}", sort)
        self.bound.append(variable)
        return variable


class _Side:
    """The terms of a side of an axiom."""

    def __init__(self, axiom: Axiom) -> None:
        self.axiom, self.logic = axiom, axiom.logic

    def variable(self, name: str, place: Place) -> Any:
        """The term of a tensor."""
        return place.env[name]

    def members(self, spread: Spread, place: Place) -> list[Any]:
        """The terms of a sequence of tensors."""
        members: list[Any] = place.env[spread.item.name] if isinstance(spread.item, Var) else []
        return members

    def absent(self) -> Any:
        """ValueError: rules that leave an operand out are no equations."""
        raise ValueError(f"{self.axiom.rule.name} leaves an operand out")


class _Left(_Side):
    """The terms of a left side, variables for its attributes made as they come."""

    def __init__(self, axiom: Axiom) -> None:
        super().__init__(axiom)
        #: Equalities of fields, and fields that have to equal an expression of names once all are bound.
        self.guards: list[Any] = []
        self.later: list[tuple[Any, Expression, dict[str, Any]]] = []

    def elements(self, spread: Spread, place: Place) -> Iterator[Place]:
        """The names inside a loop, element by element; the attributes that it binds join the sequences."""
        env, known, over = place.env, self.axiom.env, spread.over
        gathered: dict[str, list[Any]] = {s: [] for _, s in over if s not in known}
        for index in range(self.axiom.arity):
            inner = dict(env)
            for variable, sequence in over:
                inner.pop(variable, None)
                if sequence in known and sequence not in gathered:
                    inner[variable] = known[sequence][index]
            yield Place(inner, f"[{index}]")
            for variable, sequence in over:
                if sequence in gathered:
                    gathered[sequence].append(inner[variable])
            variables = {v for v, _ in over}
            env.update({k: v for k, v in inner.items() if k not in variables})
        known.update(gathered)

    def apply(self, app: App, operands: Sequence[Any], place: Place) -> Any:
        """The term of an operator."""
        return self.logic.apply(app.op, self._fields(app, *place), operands)

    def _fields(self, app: App, env: dict[str, Any], suffix: str) -> dict[str, Any]:
        names = list(spec(app.op).attrs)
        fields: dict[str, Any] = {}
        stated = pattern_fields(app)
        known = env.get(app.record) if app.record is not None else None
        for name in names:
            wanted = stated.get(name)
            if isinstance(wanted, Expression) and bound_name(wanted) is not None:
                if wanted.text not in env:
                    env[wanted.text] = self.axiom.fresh(wanted.text + suffix, self.logic.values)
                fields[name] = env[wanted.text]
            elif isinstance(wanted, Expression):
                fields[name] = self._stated(wanted, env, f"{app.op}.{name}{len(self.axiom.bound)}")
            elif app.record is None:
                fields[name] = self.logic.literal(wanted)
            elif known:
                fields[name] = known[name]
            else:
                fields[name] = self.axiom.fresh(f"{app.record}{suffix}.{name}", self.logic.values)
        if app.record is not None:
            if known is None:
                env[app.record] = fields
            else:  # a field stated beside the record that is known must be that of the record too
                self.guards += [fields[n] == known[n] for n in names if fields[n] is not known[n]]
        return fields

    def _stated(self, wanted: Expression, env: dict[str, Any], label: str) -> Any:
        """A field that has to equal an expression: the literal, or a variable with that condition."""
        try:
            return self.logic.literal(ast.literal_eval(wanted.tree))
        except ValueError:
            variable = self.axiom.fresh(label, self.logic.values)
            inner = {k: v for k, v in env.items() if k not in self.axiom.env or self.axiom.env is not env}
            self.later.append((variable, wanted, inner))
            return variable


class _Right(_Side):
    """The terms of a right side."""

    def roots(self, count: int) -> list[Any]:
        """The term of each root; of a split, the slices that are its outputs."""
        place, right = Place(self.axiom.env), self.axiom.rule.right
        if len(right) == 1 and isinstance(right[0], App) and right[0].op == "split":
            return self._slices(right[0], instantiate_all(right[0].operands, place, self), place, count)
        terms = instantiate_all(right, place, self)
        return terms * count if len(terms) == 1 else terms

    def members(self, spread: Spread, place: Place) -> list[Any]:
        """The terms of a whole sequence of tensors."""
        self._check_window(spread)
        return super().members(spread, place)

    def elements(self, spread: Spread, place: Place) -> Iterator[Place]:
        """The names inside a loop, element by element."""
        self._check_window(spread)
        for index in range(self.axiom.arity):
            yield Place({**place.env, **{v: place.env[s][index] for v, s in spread.over}})

    def _check_window(self, spread: Spread) -> None:
        if spread.window is not None:
            raise WindowError(self.axiom.rule.name)

    def apply(self, app: App, operands: Sequence[Any], place: Place) -> Any:
        """The term of an operator; of a split inside a pattern, its first part."""
        if app.op == "split":
            return self._slices(app, operands, place, 1)[0]
        return self.logic.apply(app.op, self._made_fields(app, place.env), operands)

    def _made_fields(self, app: App, env: dict[str, Any]) -> dict[str, Any]:
        logic = self.logic
        translator = Translator(logic, env)
        names = list(spec(app.op).attrs)
        fields: dict[str, Any] = dict(env[app.record]) if app.record is not None else {}
        for name, stated in app.fields.items():
            if name != SPLICE:
                fields[name] = logic.number(translator.value(stated.tree))
                continue
            whole = logic.number(translator.value(stated.tree))
            fields |= {k: logic.call(f"field {k}", [whole], logic.values) for k in names}
        defaults = spec(app.op).attrs
        return {
            k: fields[k] if k in fields else logic.literal(defaults[k])
            for k in names
            if k in fields or defaults[k] is not REQUIRED
        }

    def _slices(self, app: App, operands: Sequence[Any], place: Place, count: int) -> list[Any]:
        """The first slices that are the outputs of a split."""
        logic = self.logic
        (whole,) = operands
        given = self._made_fields(app, place.env)
        slices = []
        for index in range(count):
            inner = Translator(logic, {**given, "index": logic.literal(index)})
            fields = {"starts": STARTS, "ends": ENDS, "axes": AXES}
            attrs = {k: inner.value(e.tree) for k, e in fields.items()} | {"steps": logic.literal((1,))}
            slices.append(logic.apply("slice", attrs, [whole]))
        return slices


class WindowError(Exception):
    """A rule whose right side takes some elements of a sequence: which ones is no matter of logic alone."""
