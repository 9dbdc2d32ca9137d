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
from eqsat.rewrites.rules.rule import Rule

#: The elements that every rule is tried on.
_USUAL = (0.0, 1.0, -1.0, 0.5, -2.0)
#: Numbers of a rule beyond this are bounds of types, which exponentials of elements beside them would overflow.
_MOST = 100.0


def edges(rule: Rule) -> tuple[float, ...]:
    """The elements to try a rule on.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("six: clip(x, a, b) => relu(x) if is_all(a, 0), is_all(b, 6)")
    >>> edges(rule)
    (0.0, 1.0, -1.0, 0.5, -2.0, 6.0, 5.5, 6.5, 12.0, -6.0)
    """
    found = dict.fromkeys(_USUAL)
    for expression in rule.expressions():
        for node in ast.walk(expression.tree):
            number = node.value if isinstance(node, ast.Constant) else None
            if isinstance(number, int | float) and not isinstance(number, bool) and 0 < abs(number) <= _MOST:
                found |= dict.fromkeys((float(number), number - 0.5, number + 0.5, 2.0 * number, -float(number)))
    return tuple(found)


class EdgeElements:
    """A maker of instances with elements at edges, in place of those that no condition asks about."""

    def __init__(self, rule: Rule, rng: random.Random) -> None:
        self._filler, self._rng, self._edges = Filler(rule), rng, np.array(edges(rule))

    def of(self, bindings: Bindings) -> Bindings:
        """The same instance with other elements."""
        return replaced(bindings, {id(o): self._other(o) for o in operands(bindings) if self._is_free(o)})

    def _is_free(self, operand: Drawn) -> bool:
        return operand.type.dtype.is_float and not operand.read and not self._filler.asked(operand.name)

    def _other(self, operand: Drawn) -> Drawn:
        drawn = np.random.default_rng(self._rng.getrandbits(32))
        array = drawn.choice(self._edges, operand.type.static).astype(operand.type.dtype.numpy)
        return dataclasses.replace(operand, array=array)
