"""The classes of a group that are computed from others of it."""

from __future__ import annotations

from collections.abc import Collection

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.nodes import EClass


def ranks(egraph: EGraph, leaders: Collection[int]) -> dict[int, int]:
    """The number of other classes of a group on the longest path to each, by the shallowest e-node of every class.

    Classes of one rank are independent of each other: each has a form that reads none of the others. A class whose
    depth is no more than that of all in the group reads none of them, so nothing below that depth is looked at.
    """
    wanted = frozenset(leaders)
    depths = {leader: egraph.eclass(leader).depth for leader in wanted}
    least = min(depths.values(), default=0)
    if all(depth == least for depth in depths.values()):
        return dict.fromkeys(wanted, 0)
    # The rank that what reads a class has at least.
    below: dict[int, int] = {}
    read: dict[int, list[int]] = {}
    for leader in sorted(wanted, key=depths.__getitem__):
        stack = [leader]
        while stack:
            one = stack[-1]
            if one in below:
                stack.pop()
                continue
            if one not in read:
                # Of what is no deeper than the shallowest of the group, only others of it count.
                operands = _witness(egraph, one)
                read[one] = [k for k in operands if k in wanted or egraph.eclass(k).depth > least]
                missing = [k for k in read[one] if k not in below]
                if missing:
                    stack += missing
                    continue
            stack.pop()
            below[one] = max([below[k] for k in read[one]], default=0) + (one in wanted)
    return {leader: below[leader] - 1 for leader in wanted}


def _witness(egraph: EGraph, leader: int) -> list[int]:
    """The operand classes of an e-node of a class all of which are less deep than it; none of a constant."""
    facts = egraph.eclass(leader)
    if facts.constant:
        return []
    if leader not in egraph.shallower:
        egraph.shallower[leader] = _shallower(egraph, facts)
    return [egraph.find(k) for k in egraph.shallower[leader]]


def _shallower(egraph: EGraph, facts: EClass) -> tuple[int, ...]:
    for number in facts.members:
        operands = egraph.nodes[number].operands
        if all(egraph.eclass(k).depth < facts.depth for k in operands):
            return operands
    raise AssertionError(f"a class of depth {facts.depth} has no e-node of that depth")
