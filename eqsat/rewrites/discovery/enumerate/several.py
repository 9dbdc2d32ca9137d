"""Equations of several outputs: terms that are the parts of one split, none of which binds all that the split reads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from eqsat.rewrites.discovery.enumerate.build import SpaceBuilder
from eqsat.rewrites.discovery.enumerate.fingerprint import combined
from eqsat.rewrites.discovery.enumerate.instances import match
from eqsat.rewrites.discovery.enumerate.space import PARTS, Level
from eqsat.rewrites.discovery.enumerate.term import Apply, InputVariable, Term, size, variables

#: A left side of several outputs, and the first output of the split that yields them all in order.
Joint = tuple[tuple[Term, ...], Apply, int]


def joints(builder: SpaceBuilder, made: Level, most: int) -> Iterator[Joint]:
    """Splits of a level each of whose outputs equals a term of fewer operators, `most` of them in all.

    Where every left side binds all variables of the split, the equation is no more than one for each output, and is
    left out.
    """
    space = builder.space
    for block in made.blocks:
        parts = len(block.results)
        if parts < 2:
            continue
        numbers = made.codes // PARTS
        inside = np.flatnonzero((numbers >= block.start) & (numbers < block.start + block.count))
        found: dict[int, dict[int, int]] = {}
        for code, hashed in zip(made.codes[inside].tolist(), made.hashes[inside].tolist(), strict=True):
            value = space.known.get(hashed)
            if value is not None:
                found.setdefault(code // PARTS, {})[code % PARTS] = value
        for number, values in found.items():
            if len(values) < parts:
                continue
            left = tuple(space.values[values[i]].term for i in range(parts))
            whole = builder.tree(made, number * PARTS)[0]
            if _telling(left, whole, most):
                yield left, whole, combined(space.hashes[values[i]] for i in range(parts))


def _telling(left: tuple[Term, ...], whole: Apply, most: int) -> bool:
    if any(not isinstance(t, Apply) or not t.operands for t in left) or len(set(left)) < len(left):
        return False
    if any(isinstance(t, Apply) and t.application == whole.application for t in left):
        return False
    needed = set(variables(whole))
    bound = [set(variables(t)) for t in left]
    return size(*left) <= most and needed <= set().union(*bound) and any(not needed <= b for b in bound)


def covers(one: Joint, other: Joint) -> bool:
    """Return whether the second is the first with terms for its variables."""
    bound: dict[InputVariable, Term] = {}
    pairs = zip((one[1], *one[0]), (other[1], *other[0]), strict=False)
    return len(one[0]) == len(other[0]) and all(match(p, t, bound) for p, t in pairs)
