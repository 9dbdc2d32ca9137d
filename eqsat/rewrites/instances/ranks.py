"""Instances of higher rank than is drawn: more axes before or behind those of operands, and in what speaks of them."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from typing import Any

from eqsat.errors import GraphError
from eqsat.language.terms import Attrs, Bindings
from eqsat.language.terms.pattern import Expression
from eqsat.rewrites.conditions.expression import evaluate
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.instance import operands
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import typed_left

#: The most axes that are added.
MORE = 3
#: The number for a new axis in attributes that have one for each axis of a window; pads have one at either end.
_OF_WINDOWS = {"strides": 1, "dilations": 1, "kernel": 1, "output_padding": 0}


def raised(rule: Rule, bindings: Bindings) -> Iterator[Bindings]:
    """The instances with more axes whose left side types; elements are those of the operands before.

    Axes come before the others or behind them, in all operands or in those of the highest rank alone. Attributes that
    have a number for each axis get one for the new ones, and those that a condition says in full are what it says.
    """
    for more in range(1, MORE + 1):
        for front in (True, False):
            for highest in (True, False):
                for whole in (True, False):
                    found = settled(rule, _Raised(bindings, more, front, highest, whole).bindings())
                    if typed_left(rule, found) is not None:
                        yield found


def settled(rule: Rule, bindings: Bindings) -> Bindings:
    """The instance with each attribute, or field of a record, that a condition equates with an expression as that
    says."""
    attrs = dict(bindings.attrs)
    for condition in rule.conditions:
        for part in conjuncts(condition.tree):
            if not (isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq)):
                continue
            for place, said in ((part.left, part.comparators[0]), (part.comparators[0], part.left)):
                try:
                    value = evaluate(Expression(ast.unparse(said), said), Bindings(bindings.tensors, attrs))
                except GraphError:
                    continue
                if isinstance(place, ast.Name) and place.id in attrs and not isinstance(said, ast.Name):
                    attrs[place.id] = value
                elif isinstance(place, ast.Attribute) and isinstance(place.value, ast.Name):
                    record = attrs.get(place.value.id)
                    if isinstance(record, Attrs) and place.attr in record:
                        attrs[place.value.id] = Attrs(record, **{place.attr: value})
    return Bindings(bindings.tensors, attrs)


class _Raised:
    """An instance with more axes at one end of its operands."""

    def __init__(self, bindings: Bindings, more: int, front: bool, highest: bool, whole: bool) -> None:
        self.given, self.more, self.front, self.whole = bindings, more, front, whole
        ranks = {one.type.rank for one in operands(bindings)}
        self.ranks = {max(ranks, default=0)} if highest else ranks
        self.made: dict[int, Drawn] = {}

    def bindings(self) -> Bindings:
        tensors = {
            name: tuple(map(self._operand, thing)) if isinstance(thing, tuple) else self._operand(thing)
            for name, thing in self.given.tensors.items()
        }
        return Bindings(tensors, {name: self._attribute(name, value) for name, value in self.given.attrs.items()})

    def _operand(self, one: Any) -> Any:
        if not isinstance(one, Drawn) or one.type.rank not in self.ranks:
            return one
        if id(one) not in self.made:
            new = tuple(range(2, 2 + self.more))
            self.made[id(one)] = dataclasses.replace(one, type=one.type.with_shape(self._joined(new, one.type.dims)))
        return self.made[id(one)]

    def _attribute(self, name: str, value: Any) -> Any:
        if isinstance(value, Attrs):
            return Attrs({key: self._attribute(key, one) for key, one in value.items()})
        if not isinstance(value, tuple) or not self.whole:
            return value
        if not all(isinstance(one, int) for one in value):
            return tuple(self._attribute(name, one) for one in value)
        if name in _OF_WINDOWS and value:
            return (*value, *(_OF_WINDOWS[name],) * self.more)
        if name == "pads":
            half, nothing = len(value) // 2, (0,) * self.more
            return (*self._joined(nothing, value[:half]), *self._joined(nothing, value[half:])) if value else value
        if len(value) not in self.ranks:
            return value
        if sorted(value) == list(range(len(value))):
            shift = self.more if self.front else 0
            new = range(self.more) if self.front else range(len(value), len(value) + self.more)
            return self._joined(tuple(new), tuple(place + shift for place in value))
        return self._joined(tuple(range(2, 2 + self.more)), value)

    def _joined(self, new: tuple[Any, ...], old: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*new, *old) if self.front else (*old, *new)
