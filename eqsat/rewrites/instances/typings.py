"""Every instance of a rule's left side within bounds: shapes and attributes in order, not drawn."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from eqsat.language.declaration.bounds import Bounds
from eqsat.language.ops import spec
from eqsat.language.ops.operands.enumeration import joinable
from eqsat.language.terms import Attrs, Bindings, Expression, Siblings, Spread, TensorType, Var
from eqsat.rewrites.conditions.expression import Undefined, compiled, evaluate
from eqsat.rewrites.instances.elements import Drawn, Stock
from eqsat.rewrites.instances.grid import operand_shapes, settings
from eqsat.rewrites.instances.walk import (
    Assignment,
    Cell,
    Key,
    PatternStep,
    PatternWalk,
    Source,
    operand_name,
    same,
    selects_along_axis,
)
from eqsat.rewrites.rules.rule import Rule, loops
from eqsat.rewrites.rules.term import types_of


class _WalkPlan(PatternWalk):
    """The left side for given lengths of its sequences, and the order of choices."""

    def __init__(self, rule: Rule, lengths: Mapping[str, int]) -> None:
        self.lengths = lengths
        self.steps: list[PatternStep] = []
        self.root_steps = self.roots(rule.left)
        #: An operand to choose, for a step and a place; or a step to apply.
        self.order: list[tuple[Key, int, int] | int] = []
        self._put_in_order()
        #: By place in `order`, the conditions to check after it, and whether one that has no value yet may hold later.
        self.checks: list[list[tuple[Expression, bool]]] = [[] for _ in self.order]
        self._place_conditions(rule)
        #: By step, the operands of a concatenation up to and with this step's result.
        self.joined: dict[int, list[tuple[Source, ...]]] = {}
        for step in self.steps:
            for place, operand in enumerate(step.operands if step.app.op == "concat" else ()):
                if place and isinstance(operand, int):
                    self.joined.setdefault(operand, []).append(step.operands[: place + 1])

    def length(self, spread: Spread) -> int:
        """The length of the sequences that a spread takes or runs over."""
        name = spread.item.name if isinstance(spread.item, Var) and not spread.over else spread.over[0][1]
        return self.lengths[name]

    def element(self, spread: Spread, index: int) -> None:
        """Nothing is chosen before the elements of a loop."""

    def begin(self, step: PatternStep) -> None:
        """Nothing is chosen before an application's operands."""

    def apply(self, step: PatternStep, begun: None) -> int:
        """Note an application."""
        self.steps.append(step)
        return len(self.steps) - 1

    def _put_in_order(self) -> None:
        """Operands before the operators that take them; those of all that share a record before it is chosen."""
        chosen: set[Key] = set()

        def operands(index: int) -> None:
            for place, operand in enumerate(self.steps[index].operands):
                if isinstance(operand, tuple) and operand not in chosen:
                    chosen.add(operand)
                    self.order.append((operand, index, place))

        for index, step in enumerate(self.steps):
            operands(index)
            for later in range(index + 1, len(self.steps)):
                other = self.steps[later]
                shared = step.record is not None and step.record not in chosen and step.record == other.record
                if shared and len(other.leaves) == len(other.operands):
                    operands(later)
            chosen |= set(step.attributes)
            self.order.append(index)

    def _place_conditions(self, rule: Rule) -> None:
        seen: dict[Key, int] = {}
        for at, item in enumerate(self.order):
            for key in self.steps[item].attributes if isinstance(item, int) else [item[0]]:
                seen.setdefault(key, at)
        for condition in rule.conditions:
            places = []
            for name in compiled(condition).names:
                places += [seen[key] for key in seen if key[0] == name]
            last = max(places, default=len(self.order) - 1)
            self.checks[last].append((condition, False))
            # A condition on all members of a sequence fails for the whole where it fails for the first few.
            if re.match(r"all\(.* for ", condition.text) and "len(" not in condition.text:
                for at in sorted(set(places) - {last}):
                    if all(any(seen[k] <= at for k in seen if k[0] == n) for n in compiled(condition).names):
                        self.checks[at].append((condition, True))
        for checks in self.checks:
            checks.sort(key=lambda check: check[1])


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
        groups = tied(self.rule, names)
        least = 2 if isinstance(self.rule.left, Siblings) else 1
        for lengths in itertools.product(range(least, self.bounds.length + 1), repeat=len(groups)):
            plan = _WalkPlan(self.rule, {n: c for group, c in zip(groups, lengths, strict=True) for n in group})
            yield from _GridSearch(self, plan, self._stock).go(0)
            if self.spent:
                return


class _GridSearch:
    """A search that chooses operands and attributes in turn, giving up a choice as soon as a condition fails."""

    def __init__(self, owner: Typings, plan: _WalkPlan, stock: Stock) -> None:
        self.owner, self.plan, self.bounds, self.stock = owner, plan, owner.bounds, stock
        self.chosen = Assignment()
        self.chosen.cells = [None] * len(plan.steps)
        self._known: dict[Any, Attrs | None] = {}

    def go(self, at: int) -> Iterator[tuple[Bindings, list[Cell]]]:
        if at == len(self.plan.order):
            if self._asked():
                bindings = Bindings(dict(self.chosen.here.tensors), dict(self.chosen.here.attrs))
                yield bindings, [self.chosen.cells[r] for r in self.plan.root_steps]
            return
        item = self.plan.order[at]
        choices = self._apply(item) if isinstance(item, int) else self._operand(*item)
        checked = self.plan.checks[at]
        owner = self.owner
        for _ in choices:
            owner.tried += 1
            if owner.spent or (owner.budget is not None and owner.tried > owner.budget):
                owner.spent = True
                return
            if not checked or self._holds(at):
                yield from self.go(at + 1)

    def _holds(self, at: int) -> bool:
        for condition, otherwise in self.plan.checks[at]:
            try:
                holds = bool(evaluate(condition, self.chosen.here))
            except Undefined:
                holds = otherwise
            if not holds:
                return False
        return True

    def _operand(self, key: Key, index: int, place: int) -> Iterator[None]:
        step = self.plan.steps[index]
        types = map(self.chosen.type, step.operands)
        known = tuple(t.shape if t is not None else None for t in types)
        dtype = spec(step.app.op).dtypes.get(place, "float64")
        for dims in operand_shapes(step.app.op, known, place, self.bounds):
            for drawn in self.stock.take(operand_name(key), tensor_type(dtype, dims), lambda: self.chosen.here):
                self.chosen.bind(key, drawn)
                yield
                self.chosen.unbind(key)

    def _apply(self, index: int) -> Iterator[None]:
        step = self.plan.steps[index]
        operands = tuple(self.chosen.thing(o) for o in step.operands)
        fixed = self._fixed(step)
        if fixed is None:
            return
        record = step.record if step.record is not None and step.record not in self.chosen.bound else None
        names = [(n, k) for n, k in step.names.items() if k not in self.chosen.bound]
        for attrs, types in settings(step.app.op, tuple(types_of(operands)), fixed, self.bounds):
            if not self._indices(step, operands, attrs):
                continue
            if record is not None:
                self.chosen.bind(record, attrs)
            for name, key in names:
                self.chosen.bind(key, attrs[name])
            self.chosen.cells[index] = Cell(step.app.op, attrs, operands, types)
            if self._joins(index) and (len(names) < 2 or all(same(self.chosen.bound[k], attrs[n]) for n, k in names)):
                yield
            self.chosen.cells[index] = None
            for key in {k for _, k in names}:
                self.chosen.unbind(key)
            if record is not None:
                self.chosen.unbind(record)

    def _fixed(self, step: PatternStep) -> Attrs | None:
        """The attributes that are known; None where two disagree."""
        record = self.chosen.bound.get(step.record) if step.record is not None else None
        try:
            stated = self.chosen.named(step) | self.chosen.computed(step)
        except Undefined:
            return None
        key = (id(step), record, *stated.items())
        if key not in self._known:
            stated = {**step.fixed, **stated}
            clash = record is not None and any(not same(record[n], v) for n, v in stated.items())
            self._known[key] = None if clash else Attrs({**(record or {}), **stated})
        return self._known[key]

    def _indices(self, step: PatternStep, operands: Sequence[Any], attrs: Attrs) -> bool:
        """True if indices are within the axis they index."""
        if not selects_along_axis(step.app.op) or not isinstance(operands[1], Drawn):
            return True
        size = operands[0].type.static[attrs["axis"]]
        return bool(((operands[1].array >= -size) & (operands[1].array < size)).all())

    def _joins(self, index: int) -> bool:
        """True if a concatenation that takes this result can still type."""
        for before in self.plan.joined.get(index, ()):
            types = [self.chosen.type(o) for o in before]
            return joinable([t.static for t in types if t is not None])
        return True

    def _asked(self) -> bool:
        """True if attributes that must equal an expression do, where it could not be worked out before."""
        try:
            return all(
                same(value, cell.attrs[name])
                for step, cell in zip(self.plan.steps, self.chosen.cells, strict=True)
                for name, value in self.chosen.computed(step).items()
            )
        except Undefined:
            return False


@cache
def tensor_type(dtype: str, dims: tuple[int, ...]) -> TensorType:
    """The type of an element type and dims, made once."""
    return TensorType.of(dtype, dims)


def tied(rule: Rule, names: Sequence[str]) -> list[tuple[str, ...]]:
    """The sequences, those that a loop runs over in step together."""
    ties: list[set[str]] = [{n} for n in names]
    for over in reversed(loops(rule.left)):
        together = {s for _, s in over}
        met = [t for t in ties if t & together]
        if len(met) > 1:
            ties = [t for t in ties if not t & together] + [set().union(*met)]
    return [tuple(sorted(t)) for t in ties]
