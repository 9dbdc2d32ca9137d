"""Kernels in a tensor e-graph that share constants: all but the first find these in the caches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from eqsat.extract.tensors.pricing import Pricing
from eqsat.language.ops import OPS
from eqsat.language.terms import Implementation

#: An e-node run by itself in some way: its place in the problem, and its position in the snapshot.
Single = tuple[int, int, Implementation | None]


@dataclass(frozen=True, slots=True)
class SharedConstant:
    """Kernels of one kind that read the same constants, by their places in the problem.

    Each but the first that runs saves `seconds`; `constant` is the position of the e-node of one of the constants.
    """

    places: tuple[int, ...]
    seconds: float
    constant: int


def shared_constants(pricing: Pricing, singles: Iterable[Single]) -> Iterator[SharedConstant]:
    """The kernels in two e-classes or more that share constants, where that saves time."""
    snapshot = pricing.snapshot
    groups: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for place, position, way in singles:
        node = snapshot.nodes[position]
        weights = tuple(k for k in node.operands if snapshot.classes[k].constant)
        if weights and node.op in OPS and all(k in pricing.derived for k in weights):
            key = (node.op, node.attrs, tuple(pricing.types(node)), way, weights)
            groups.setdefault(key, []).append((place, position))
    for (*_, way, weights), members in groups.items():
        if len({snapshot.nodes[position].eclass for _, position in members}) < 2:
            continue
        node = snapshot.nodes[members[0][1]]
        seconds = pricing.model.saved(node.op, node.attrs, pricing.types(node), pricing.constants(node), way)
        if seconds:
            yield SharedConstant(tuple(place for place, _ in members), seconds, snapshot.recipes[weights[0]])
