"""Bounded execution: a rule on every instance up to a size, exactly modulo a prime.

The grid of a rule holds every typing of its left side, in order rather than drawn: tensors of rank 0 to 4 with dims
from 1; every axis, set of axes, permutation and shape of as many elements; groups that divide the channels; kernels up
to the side; strides and dilations of 1 and 2; pads of 0 to 2 along one spatial axis and of 0 and 1 along two, on each
side for itself; every slice along one axis with steps 1, 2 and -1, and those along two axes that drop a first or last
element; sequences of one to three members. It is climbed level by level: `LEVELS` says how far dims go at each. A level
that turns out to take more choices than the budget is given up, though what it ran counts, and the record says which
was the last complete one: `side` for tensors up to rank 3, `deep` for rank 4.

Convolutions along one axis are tensors of rank 3, those along two of rank 4: with all their attributes the latter have
10^6 to 10^8 instances up to 4 a side, which is why rank 4 has a bound of its own. What lies beyond the last complete
level is left to drawn instances, chosen by pairs of features.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat.errors import GraphError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.arithmetic.residues import Residues
from eqsat.language.declaration.bounds import Bounds
from eqsat.language.ops import spec
from eqsat.language.terms import App, Attrs, Bindings, Expression, TensorType
from eqsat.language.terms.instantiation import instantiate_all
from eqsat.rewrites.conditions.expression import Undefined, bound_name
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.grid import completed, is_complete
from eqsat.rewrites.instances.typings import Typings
from eqsat.rewrites.instances.walk import Cell
from eqsat.rewrites.rules.rule import Rule, applications
from eqsat.rewrites.rules.term import OverBindings, difference, output_types, outputs, result_types, types_of

#: How far dims go: rank 3 and less, rank 4, members of a sequence, pads along one spatial axis.
LEVELS = (
    Bounds(side=2, deep=2, length=2, pad=1),
    Bounds(side=3, deep=2, length=2, pad=1),
    Bounds(side=4, deep=2, length=2, pad=1),
    Bounds(side=4, deep=3, length=2, pad=2),
    Bounds(side=4, deep=4, length=3, pad=2),
)
#: The same for rules with windows, which have most instances in rank 4: one spatial axis goes before two.
WINDOWED = (*(replace(level, deep=1) for level in LEVELS[:3]), *LEVELS[2:])
#: Results of the right side that are kept for later instances.
_KEPT = 20_000
_NOTHING = nullcontext()
#: Why an instance refutes a rule whose sides type alike.
DIFFERENT = "elements differ modulo a prime and in float64"


@dataclass(frozen=True)
class Bounded:
    """The result of bounded execution: instances run exactly, those only in float64, and how far it is complete."""

    exact: int = 0
    floats: int = 0
    level: Bounds | None = None
    exhaustive: bool = False
    reason: str = ""
    bindings: Bindings | None = None


def run_bounded(rule: Rule, budget: int, seed: int = 0) -> Bounded:
    """Run the grid level by level while a budget of choices lasts.

    Rules whose operators are not all linear or movements get half of the budget, those with recurrent layers, which run
    step by step, a quarter of that. Where a rule rests on properties of functions that residues do not have, as that of
    relu(2x), its instances are compared in float64 instead. The first instance that differs both ways ends the run with
    a reason and its bindings.
    """
    if not all(_is_linear(name) for name in rule.operators()):
        budget //= 8 if any(spec(op).stepwise for op in rule.operators()) else 2
    result = _climb(rule, budget, seed, Residues())
    return result if result is not None else _climb(rule, budget // 2, seed, Floats(wide=True)) or Bounded()


def levels(rule: Rule) -> tuple[Bounds, ...]:
    """The levels that a rule's grid is climbed by."""
    return WINDOWED if any("pads" in spec(name).attrs for name in rule.operators()) else LEVELS


def _is_linear(name: str) -> bool:
    declared = spec(name)
    return bool(declared.multilinear) or declared.movement or name in ("add", "sub") or not declared.max_operands


def _climb(rule: Rule, budget: int, seed: int, interpretation: Any) -> Bounded | None:
    """The levels in turn; None where residues differ but floats do not, so that residues say nothing of the rule."""
    exact = isinstance(interpretation, Residues)
    reached: Bounds | None = None
    run: set[Any] = set()
    for level in levels(rule):
        typings, runner = Typings(rule, level, seed, budget), _Runner(rule, interpretation)
        for bindings, left in typings:
            key = _key(bindings)
            if key in run:
                continue
            with np.errstate(all="ignore") if not exact else _NOTHING:
                reason = runner.difference(bindings, left)
            if reason is not None:
                if exact and reason == DIFFERENT and _agree_in_floats(rule, bindings, left):
                    return None
                return Bounded(len(run) * exact, len(run) * (not exact), reached, False, reason, bindings)
            run.add(key)
        if typings.spent:
            break
        reached = level
    whole = reached == LEVELS[-1] and _is_whole(rule)
    return Bounded(len(run) * exact, len(run) * (not exact), reached, whole)


def _key(bindings: Bindings) -> Any:
    """A key that tells an instance from others: the types of its operands and its attributes."""
    types = [
        tuple([one.type.shape for one in thing]) if isinstance(thing, tuple) else thing.type.shape
        for thing in bindings.tensors.values()
    ]
    return (*types, *bindings.attrs.values())


def _agree_in_floats(rule: Rule, bindings: Bindings, left: list[Cell]) -> bool:
    return _Runner(rule, Floats(wide=True)).difference(bindings, [_again(cell) for cell in left]) is None


def _is_whole(rule: Rule) -> bool:
    """True if the grid knows all values of all attributes that the left side leaves open."""
    for root in rule.roots:
        for app in applications(root):
            names = list(spec(app.op).attrs) if app.record is not None else []
            names += [n for n, e in app.fields.items() if isinstance(e, Expression) and bound_name(e) is not None]
            if not is_complete(app.op, names):
                return False
    return True


class _Runner(OverBindings):
    """An evaluator of both sides of one rule that stores values which instances share."""

    def __init__(self, rule: Rule, interpretation: Any) -> None:
        super().__init__(rule)
        self._interpretation = interpretation
        self._arrays: dict[int, tuple[Drawn, Any]] = {}
        self._cells: dict[Any, Cell] = {}

    def difference(self, bindings: Bindings, left: list[Cell]) -> str | None:
        """The difference of the sides, None where there is none or the right side's attributes have no value."""
        try:
            right = instantiate_all(self.rule.right, bindings, self)
        except Undefined:
            return None
        except GraphError as error:
            return f"the right side does not type: {error.what}"
        ours, theirs = output_types(left), output_types(right)
        if ours != theirs:
            return f"types differ: {', '.join(map(str, ours))} and {', '.join(map(str, theirs))}"
        a = [v for cell in left for v in self._values(cell)]
        try:
            b = [v for cell in right for v in self._values(cell)]
        except (ArithmeticError, IndexError, TypeError, ValueError) as error:  # a shape rule that promised too much
            return f"the right side types but cannot be computed: {error}"
        if isinstance(self._interpretation, Residues):
            return None if all(map(np.array_equal, a, b)) else DIFFERENT
        return difference(a, b)

    def _values(self, thing: Any) -> list[Any]:
        if isinstance(thing, Drawn):
            known = self._arrays.get(id(thing))
            if known is None:
                known = (thing, self._interpretation.constant(thing.array, thing.type))
                self._arrays[id(thing)] = known
            return [known[1]]
        if thing.values is None:
            operands = [None if o is None else self._values(o)[0] for o in thing.operands]
            types = types_of(thing.operands)
            thing.values = outputs(self._interpretation, thing.op, thing.attrs, operands, types, thing.types)
        values: list[Any] = thing.values
        return values

    def apply(self, app: App, operands: Sequence[Any], bindings: Bindings) -> Cell:
        """The cell of an operator on the right side, which was met before where all of it was."""
        attrs = completed(app.op, self.rule.attributes(app, bindings))
        key = (app.op, attrs, *map(id, operands))
        cell = self._cells.get(key)
        if cell is None:
            if len(self._cells) > _KEPT:
                self._cells.clear()
            cell = Cell(app.op, attrs, tuple(operands), _typed(app.op, attrs, tuple(types_of(operands))))
            self._cells[key] = cell
        return cell


@lru_cache(maxsize=100_000)
def _typed(op: str, attrs: Attrs, types: tuple[TensorType | None, ...]) -> tuple[TensorType, ...]:
    """The types that an operator returns for operands of these types."""
    return result_types(op, attrs, types)


def _again(thing: Any) -> Any:
    """The same cells without their values."""
    return (
        thing
        if thing is None or isinstance(thing, Drawn)
        else Cell(thing.op, thing.attrs, tuple(map(_again, thing.operands)), thing.types)
    )
