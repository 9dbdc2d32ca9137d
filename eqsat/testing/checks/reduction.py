"""Cuts the dims of an instance that refutes a rule, several operands at once.

Shrinking lowers one choice at a time, and stays at three elements where operands must have equal shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TypeAlias

import numpy as np

from eqsat.errors import GraphError
from eqsat.language.terms.pattern import Bindings
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.extremes import replaced
from eqsat.rewrites.instances.instance import operands
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import left_terms

#: The part of an operand to keep, as an index.
Index: TypeAlias = "tuple[slice | int, ...]"
Cut: TypeAlias = Callable[[Drawn], Index]


def reduced(rule: Rule, bindings: Bindings, refutes: Callable[[Bindings], bool]) -> Bindings:
    """The instance after all cuts that leave it an instance which refutes the rule."""
    pending = True
    while pending:
        pending = False
        for cut in _cuts(bindings):
            smaller = _applied(bindings, cut)
            if smaller is not None and _is_instance(rule, smaller) and refutes(smaller):
                bindings, pending = smaller, True
                break
    return bindings


def _cuts(bindings: Bindings) -> Iterator[Cut]:
    """Without the leading axis of all operands, or of one; with fewer elements along axes of one size."""
    drawn = operands(bindings)
    shapes = [o.type.static for o in drawn]
    for names in ({o.name for o in drawn}, *({o.name} for o in drawn)):
        yield partial(_without_axis, names)
    axes = {(d, axis) for shape in shapes for axis, d in enumerate(shape) if d > 1}
    for size, axis in (*((size, None) for size in sorted({d for d, _ in axes})), *sorted(axes)):
        for count, start in product(range(1, size), range(size)):
            if start + count <= size:
                yield partial(_within, size, axis, slice(start, start + count))


def _without_axis(names: Set[str], operand: Drawn) -> Index:
    return (0,) if operand.type.shape and operand.name in names else ()


def _within(size: int, axis: int | None, part: slice, operand: Drawn) -> Index:
    """The part along axes of a size, or along one of that size."""
    shape = operand.type.static
    return tuple(part if d == size and axis in (None, i) else slice(None) for i, d in enumerate(shape))


def _applied(bindings: Bindings, cut: Cut) -> Bindings | None:
    """The instance with all operands cut; None where that changes nothing."""
    changed: dict[int, Drawn] = {}
    for operand in operands(bindings):
        array = np.asarray(operand.array[cut(operand)])
        if array.shape != operand.type.static:
            kind = operand.type.with_shape(array.shape)
            changed[id(operand)] = replace(operand, type=kind, array=array)
    return replaced(bindings, changed) if changed else None


def _is_instance(rule: Rule, bindings: Bindings) -> bool:
    """Return whether the left side types, and the conditions hold."""
    try:
        left_terms(rule, bindings)
    except GraphError:
        return False
    return rule.refused(bindings) is None
