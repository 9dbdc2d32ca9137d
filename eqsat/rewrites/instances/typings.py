"""Every instance of a rule's left side within bounds: shapes and attributes in order, not drawn."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from eqsat.language.declaration.bounds import Bounds
from eqsat.language.declaration.spec import REQUIRED
from eqsat.language.ops import spec
from eqsat.language.ops.operands.enumeration import joinable
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.pattern import ABSENT, App, Bindings, Expression, Pattern, Siblings, Spread, Var
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.conditions.expression import Undefined, bound_name, compiled, evaluate
from eqsat.rewrites.instances.elements import Drawn, Stock
from eqsat.rewrites.instances.fitting import operand_shapes, selects_along_axis
from eqsat.rewrites.instances.grid import settings
from eqsat.rewrites.rules.rule import Rule, pattern_fields
from eqsat.rewrites.rules.term import types_of

#: A name of the left side, and which element where it stands for a sequence.
Key: TypeAlias = tuple[str, int | None]


class Cell:
    """An operator over cells and operands, typed; its values are computed once."""

    __slots__ = ("attrs", "op", "operands", "types", "values")

    def __init__(self, op: str, attrs: Attrs, operands: tuple[Any, ...], types: tuple[TensorType, ...]) -> None:
        self.op, self.attrs, self.operands, self.types = op, attrs, operands, types
        self.values: list[Any] | None = None

    @property
    def type(self) -> TensorType:
        """The type of the first output."""
        return self.types[0]


@dataclass(frozen=True)
class _Step:
    """One application of the left side with the loops unrolled: where its operands and attributes come from."""

    app: App
    operands: tuple[Key | int | None, ...]
    record: Key | None
    names: dict[str, Key]
    fixed: dict[str, Any]
    asked: dict[str, Expression]
    loop: dict[str, Key]

    @property
    def leaves(self) -> list[Key]:
        return [o for o in self.operands if isinstance(o, tuple)]

    @property
    def attributes(self) -> list[Key]:
        return [*([self.record] if self.record is not None else []), *self.names.values()]


@dataclass
class _Plan:
    """The left side for given lengths of its sequences, and what to choose when."""

    steps: list[_Step] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)
    #: An operand to choose, for a step and a place; or a step to apply.
    order: list[tuple[Key, int, int] | int] = field(default_factory=list)
    #: By place in `order`, the conditions that can be decided after it, and those of which a part can.
    decided: list[list[Expression]] = field(default_factory=list)
    partly: list[list[Expression]] = field(default_factory=list)
    #: By step, what a concatenation that takes its result takes before it and with it.
    joined: dict[int, list[tuple[Key | int | None, ...]]] = field(default_factory=dict)


class Typings:
    """The instances of one rule's left side within bounds."""

    def __init__(self, rule: Rule, bounds: Bounds, seed: int = 0, budget: int | None = None) -> None:
        self.rule, self.bounds, self.budget = rule, bounds, budget
        #: How many operands and attributes were chosen, and whether the budget of choices ended before the instances.
        self.tried, self.spent = 0, False
        self._stock = Stock(rule, seed)

    def __iter__(self) -> Iterator[tuple[Bindings, list[Cell]]]:
        """Bindings for which all conditions hold, with the left side's roots."""
        names = sorted(self.rule.tensor_groups | self.rule.attr_groups)
        groups = _tied(self.rule, names)
        least = 2 if isinstance(self.rule.left, Siblings) else 1
        for lengths in itertools.product(range(least, self.bounds.length + 1), repeat=len(groups)):
            plan = self._plan({n: c for group, c in zip(groups, lengths, strict=True) for n in group})
            walk = _Walk(self, plan, self._stock)
            yield from walk.go(0)
            if self.spent:
                return

    def _plan(self, lengths: dict[str, int]) -> _Plan:
        plan = _Plan()
        if isinstance(self.rule.left, Siblings):
            over = self.rule.left.over
            plan.roots = [
                self._unroll(plan, self.rule.left.item, {v: (s, i) for v, s in over}, lengths)
                for i in range(lengths[over[0][1]])
            ]
        else:
            plan.roots = [self._unroll(plan, app, {}, lengths) for app in self.rule.left]
        for step in plan.steps:
            for place, operand in enumerate(step.operands if step.app.op == "concat" else ()):
                if place and isinstance(operand, int):
                    plan.joined.setdefault(operand, []).append(step.operands[: place + 1])
        _order(plan)
        _place_conditions(self.rule, plan, lengths)
        return plan

    def _unroll(self, plan: _Plan, app: App, loop: dict[str, Key], lengths: dict[str, int]) -> int:
        operands: list[Key | int | None] = []
        for operand in app.operands:
            operands += self._operands(plan, operand, loop, lengths)
        names, fixed, asked = {}, {}, {}
        for name, expected in pattern_fields(app).items():
            if not isinstance(expected, Expression):
                if expected is not REQUIRED:
                    fixed[name] = expected
            elif (bound := bound_name(expected)) is not None:
                names[name] = loop.get(bound, (bound, None))
            else:
                asked[name] = expected
        record = None if app.record is None else loop.get(app.record, (app.record, None))
        plan.steps.append(_Step(app, tuple(operands), record, names, fixed, asked, loop))
        return len(plan.steps) - 1

    def _operands(
        self, plan: _Plan, operand: Pattern | Spread, loop: dict[str, Key], lengths: dict[str, int]
    ) -> list[Key | int | None]:
        if isinstance(operand, Var):
            return [loop.get(operand.name, (operand.name, None))]
        if operand == ABSENT:
            return [None]
        if isinstance(operand, App):
            return [self._unroll(plan, operand, loop, lengths)]
        if isinstance(operand.item, Var) and not operand.over:
            return [(operand.item.name, i) for i in range(lengths[operand.item.name])]
        found: list[Key | int | None] = []
        for i in range(lengths[operand.over[0][1]]):
            found += self._operands(plan, operand.item, {**loop, **{v: (s, i) for v, s in operand.over}}, lengths)
        return found


class _Walk:
    """A walk that chooses operands and attributes in turn, giving up a choice as soon as a condition fails."""

    def __init__(self, owner: Typings, plan: _Plan, stock: Stock) -> None:
        self.owner, self.plan, self.bounds, self.stock = owner, plan, owner.bounds, stock
        self.bound: dict[Key, Any] = {}
        #: The same by name, of sequences the elements so far.
        self.here = Bindings()
        self.cells: list[Any] = [None] * len(plan.steps)
        self._settled: dict[Any, Attrs | None] = {}

    def go(self, at: int) -> Iterator[tuple[Bindings, list[Cell]]]:
        if at == len(self.plan.order):
            if self._asked():
                made = Bindings(dict(self.here.tensors), dict(self.here.attrs))
                yield made, [self.cells[r] for r in self.plan.roots]
            return
        item = self.plan.order[at]
        choices = self._apply(item) if isinstance(item, int) else self._operand(*item)
        checked = self.plan.decided[at] or self.plan.partly[at]
        owner = self.owner
        for _ in choices:
            owner.tried += 1
            if owner.spent or (owner.budget is not None and owner.tried > owner.budget):
                owner.spent = True
                return
            if not checked or self._holds(at):
                yield from self.go(at + 1)

    def _bind(self, key: Key, thing: Any) -> None:
        self.bound[key] = thing
        name, index = key
        where: dict[str, Any] = self.here.tensors if isinstance(thing, Drawn) else self.here.attrs
        if index is None:
            where[name] = thing
        else:
            where[name] = tuple(self.bound[(name, i)] for i in range(index + 1) if (name, i) in self.bound)

    def _unbind(self, key: Key) -> None:
        thing = self.bound.pop(key)
        name, index = key
        where: dict[str, Any] = self.here.tensors if isinstance(thing, Drawn) else self.here.attrs
        rest = tuple(self.bound[(name, i)] for i in range(index) if (name, i) in self.bound) if index else ()
        if rest:
            where[name] = rest
        else:
            del where[name]

    def _holds(self, at: int) -> bool:
        for condition in self.plan.decided[at]:
            try:
                if not evaluate(condition, self.here):
                    return False
            except Undefined:
                return False
        for condition in self.plan.partly[at]:
            try:
                if not evaluate(condition, self.here):
                    return False
            except Undefined:
                continue
        return True

    def _operand(self, key: Key, index: int, place: int) -> Iterator[None]:
        step = self.plan.steps[index]
        types = map(self._type, step.operands)
        known = tuple(t.shape if t is not None else None for t in types)
        dtype = spec(step.app.op).dtypes.get(place, "float64")
        name = key[0] if key[1] is None else f"{key[0]}{key[1]}"
        for dims in operand_shapes(step.app.op, known, place, self.bounds):
            for drawn in self.stock.take(name, tensor_type(dtype, dims), lambda: self.here):
                self._bind(key, drawn)
                yield
                self._unbind(key)

    def _type(self, operand: Key | int | None) -> TensorType | None:
        if operand is None:
            return None
        thing = self.cells[operand] if isinstance(operand, int) else self.bound.get(operand)
        return None if thing is None else thing.type

    def _apply(self, index: int) -> Iterator[None]:
        step = self.plan.steps[index]
        operands = tuple(self._thing(o) for o in step.operands)
        fixed = self._fixed(step)
        if fixed is None:
            return
        record = step.record if step.record is not None and step.record not in self.bound else None
        names = [(n, k) for n, k in step.names.items() if k not in self.bound]
        for attrs, types in settings(step.app.op, tuple(types_of(operands)), fixed, self.bounds):
            if not self._indices(step, operands, attrs):
                continue
            if record is not None:
                self._bind(record, attrs)
            for name, key in names:
                self._bind(key, attrs[name])
            self.cells[index] = Cell(step.app.op, attrs, operands, types)
            if self._joins(index) and (len(names) < 2 or self._agree(names, attrs)):
                yield
            self.cells[index] = None
            for key in {k for _, k in names}:
                self._unbind(key)
            if record is not None:
                self._unbind(record)

    def _thing(self, operand: Key | int | None) -> Any:
        return None if operand is None else self.cells[operand] if isinstance(operand, int) else self.bound[operand]

    def _fixed(self, step: _Step) -> Attrs | None:
        """The attributes that are settled; None where two disagree."""
        record = self.bound.get(step.record) if step.record is not None else None
        stated = {n: self.bound[k] for n, k in step.names.items() if k in self.bound}
        here = self._inside(step) if step.asked else None
        for name, expression in step.asked.items():
            if here is not None and all(n in here.tensors or n in here.attrs for n in compiled(expression).names):
                try:
                    stated[name] = evaluate(expression, here)
                except Undefined:
                    return None
        key = (id(step), record, *stated.items())
        if key not in self._settled:
            stated = {**step.fixed, **stated}
            clash = record is not None and any(not same(record[n], v) for n, v in stated.items())
            self._settled[key] = None if clash else Attrs({**(record or {}), **stated})
        return self._settled[key]

    def _agree(self, names: Sequence[tuple[str, Key]], attrs: Attrs) -> bool:
        """True if a name that occurs twice in one application got one value."""
        return all(same(self.bound[k], attrs[n]) for n, k in names)

    def _indices(self, step: _Step, operands: Sequence[Any], attrs: Attrs) -> bool:
        """True if indices are within the axis they index."""
        if not selects_along_axis(step.app.op) or not isinstance(operands[1], Drawn):
            return True
        size = operands[0].type.static[attrs["axis"]]
        return bool(((operands[1].array >= -size) & (operands[1].array < size)).all())

    def _joins(self, index: int) -> bool:
        """True if a concatenation that takes this result can still type."""
        for before in self.plan.joined.get(index, ()):
            types = [self._type(o) for o in before]
            return joinable([t.static for t in types if t is not None])
        return True

    def _asked(self) -> bool:
        """True if attributes that must equal an expression do, where it could not be worked out before."""
        for step, cell in zip(self.plan.steps, self.cells, strict=True):
            if not step.asked:
                continue
            here = self._inside(step)
            for name, expression in step.asked.items():
                try:
                    if not same(evaluate(expression, here), cell.attrs[name]):
                        return False
                except Undefined:
                    return False
        return True

    def _inside(self, step: _Step) -> Bindings:
        if not step.loop:
            return self.here
        here = Bindings(dict(self.here.tensors), dict(self.here.attrs))
        for variable, key in step.loop.items():
            if key in self.bound:
                thing = self.bound[key]
                (here.tensors if isinstance(thing, Drawn) else here.attrs)[variable] = thing
        return here


def same(a: Any, b: Any) -> bool:
    """True if two attributes are equal as attributes are, which tell 1 from 1.0 and True."""
    if a is b:
        return True
    if a != b or type(a) is not type(b):
        return False
    return all(same(x, y) for x, y in zip(a, b, strict=True)) if isinstance(a, tuple) else True


@cache
def tensor_type(dtype: str, dims: tuple[int, ...]) -> TensorType:
    """The type of an element type and dims, made once."""
    return TensorType.of(dtype, dims)


def _tied(rule: Rule, names: Sequence[str]) -> list[tuple[str, ...]]:
    """The sequences, those that a loop runs over in step together."""
    ties: list[set[str]] = [{n} for n in names]
    overs = [rule.left.over] if isinstance(rule.left, Siblings) else []
    pending: list[Pattern | Spread] = list(rule.roots)
    while pending:
        part = pending.pop()
        if isinstance(part, Spread):
            overs.append(part.over)
            pending.append(part.item)
        elif isinstance(part, App):
            pending += part.operands
    for over in overs:
        together = {s for _, s in over}
        met = [t for t in ties if t & together]
        if len(met) > 1:
            ties = [t for t in ties if not t & together] + [set().union(*met)]
    return [tuple(sorted(t)) for t in ties]


def _order(plan: _Plan) -> None:
    """Operands before the operators that take them; those of all that share a record before it is chosen."""
    chosen: set[Key] = set()

    def operands(index: int) -> None:
        for place, operand in enumerate(plan.steps[index].operands):
            if isinstance(operand, tuple) and operand not in chosen:
                chosen.add(operand)
                plan.order.append((operand, index, place))

    for index, step in enumerate(plan.steps):
        operands(index)
        for later in range(index + 1, len(plan.steps)):
            other = plan.steps[later]
            shared = step.record is not None and step.record not in chosen and step.record == other.record
            if shared and len(other.leaves) == len(other.operands):
                operands(later)
        chosen |= set(step.attributes)
        plan.order.append(index)


def _place_conditions(rule: Rule, plan: _Plan, lengths: dict[str, int]) -> None:
    plan.decided = [[] for _ in plan.order]
    plan.partly = [[] for _ in plan.order]
    seen: dict[Key, int] = {}
    for at, item in enumerate(plan.order):
        for key in plan.steps[item].attributes if isinstance(item, int) else [item[0]]:
            seen.setdefault(key, at)
    for condition in rule.conditions:
        places = []
        for name in compiled(condition).names:
            places += [seen[key] for key in seen if key[0] == name]
        last = max(places, default=len(plan.order) - 1)
        plan.decided[last].append(condition)
        # A condition on all members of a sequence fails for the whole where it fails for the first few.
        if re.match(r"all\(.* for ", condition.text) and "len(" not in condition.text:
            for at in sorted(set(places) - {last}):
                if all(any(seen[k] <= at for k in seen if k[0] == n) for n in compiled(condition).names):
                    plan.partly[at].append(condition)
