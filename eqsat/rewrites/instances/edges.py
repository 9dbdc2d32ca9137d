"""Elements at which functions change what they do: zeros, ones, both signs, and beside every number of a rule."""

from __future__ import annotations

import ast
import dataclasses
import random

import numpy as np

from eqsat.language.terms import Bindings
from eqsat.rewrites.instances.elements import Drawn, Filler
from eqsat.rewrites.instances.extremes import replaced
from eqsat.rewrites.instances.instance import operands
from eqsat.rewrites.rules.literals import number_in
from eqsat.rewrites.rules.rule import Rule

#: The elements that every rule is tried on.
_USUAL = (0.0, 1.0, -1.0, 0.5, -2.0)
#: Numbers of a rule beyond this are bounds of types, which exponentials of elements beside them would overflow.
_MOST = 100.0
#: The share of operands whose elements rise from the first to the last: where the largest is, order decides.
_RISING = 0.25


def literals(rule: Rule) -> list[int | float]:
    """The numbers that a rule states, in its attributes and conditions."""
    nodes = (node for expression in rule.expressions() for node in ast.walk(expression.tree))
    return [number for node in nodes if isinstance(node, ast.Constant) and (number := number_in(node)) is not None]


def edges(rule: Rule) -> tuple[float, ...]:
    """The elements to try a rule on.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("six: clip(x, a, b) => relu(x) if is_all(a, 0), is_all(b, 6)")
    >>> edges(rule)
    (0.0, 1.0, -1.0, 0.5, -2.0, 6.0, 5.5, 6.5, 12.0, -6.0)
    """
    found = dict.fromkeys(_USUAL)
    for number in literals(rule):
        if 0 < abs(number) <= _MOST:
            found |= dict.fromkeys((float(number), number - 0.5, number + 0.5, 2.0 * number, -float(number)))
    return tuple(found)


class EdgeElements:
    """A maker of instances with elements at edges, in place of those that no condition asks about."""

    def __init__(self, rule: Rule, rng: random.Random) -> None:
        self._rule, self._filler, self._rng, self._edges = rule, Filler(rule), rng, np.array(edges(rule))

    def of(self, bindings: Bindings) -> Bindings:
        """The same instance with other elements, and other numbers in place of attributes that are no integers."""
        other = replaced(bindings, {id(o): self._other(o) for o in operands(bindings) if self._is_free(o)})
        turned = Bindings(other.tensors, {n: -a or 0.5 if isinstance(a, float) else a for n, a in other.attrs.items()})
        return turned if self._rule.refused(turned) is None else other

    def _is_free(self, operand: Drawn) -> bool:
        return operand.type.dtype.is_float and not operand.read and not self._filler.asked(operand.name)

    def _other(self, operand: Drawn) -> Drawn:
        drawn, shape = np.random.default_rng(self._rng.getrandbits(32)), operand.type.static
        array = drawn.choice(self._edges, shape)
        if drawn.random() < _RISING:
            array = np.linspace(-1.0, 1.0, array.size).reshape(shape)
        array = array.astype(operand.type.dtype.numpy)
        return dataclasses.replace(operand, array=array)
