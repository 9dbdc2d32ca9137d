"""Boxes of indices on a GPU: their points counted and told apart, by numbers or by sizes that a call gives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, unflattened
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.nests.computation import LoopAxis
from eqsat.runtime.kernels.nests.extents import Extent, is_free, is_several, largest
from eqsat.runtime.kernels.nests.gpu_options import MOST_POINTS
from eqsat.runtime.kernels.nests.tree import BlockCount, IndexSplit, Named, Node, PointCount


def weight_of(axes: Sequence[LoopAxis]) -> int:
    """The number of points of a box, and MOST_POINTS where sizes of a call decide it.

    UnsupportedError where an int does not count them.
    """
    total = math.prod(axis.extent for axis in axes if isinstance(axis.extent, int))
    if total > MOST_POINTS:
        raise UnsupportedError(f"{total} elements of a statement, more than an int counts,")
    return MOST_POINTS if total and any(is_free(axis.extent) for axis in axes) else total


def bound_of(extent: Extent) -> int:
    """A number that an index of an extent stays below."""
    return min(largest(extent), MOST_POINTS)


def counted(axes: Sequence[LoopAxis], variable: str) -> tuple[list[Node], Extent]:
    """The number of points of a box: a number, or a variable and what defines it."""
    if not any(is_free(axis.extent) for axis in axes):
        return [], weight_of(axes)
    extents = tuple(axis.extent for axis in axes if is_several(axis.extent))
    return [PointCount(variable, extents)], AffineIndex.variable(variable, MOST_POINTS + 1)


def blocks_of(axes: Sequence[LoopAxis], together: int = 1) -> int | BlockCount:
    """The number of blocks for the points of a box, by so many together."""
    if not any(is_free(axis.extent) for axis in axes):
        return -(-weight_of(axes) // together)
    return BlockCount(((tuple(axis.extent for axis in axes), together),))


def block_variable(blocks: int | BlockCount, name: str, together: int = 1) -> AffineIndex:
    """The number of a block, where each is of so many points."""
    return AffineIndex.variable(name, blocks if isinstance(blocks, int) else -(-MOST_POINTS // together))


def places(names: Sequence[str], extents: Sequence[Extent], place: AffineIndex) -> tuple[list[Node], list[AffineIndex]]:
    """Variables for the indices at a place of a box, and these as sums: an index of one value is 0.

    What sizes of a call decide is divided by where the kernel runs, but along the first index, which takes the rest.
    """
    several = [number for number, extent in enumerate(extents) if is_several(extent)]
    sums = [AffineIndex.variable(name, bound_of(extent)) for name, extent in zip(names, extents, strict=True)]
    if not any(is_free(extent) for extent in extents):
        found = unflattened(place, [bound_of(extent) for extent in extents])
        return [Named(names[number], found[number]) for number in several], sums
    nodes: list[Node] = []
    while several and not is_free(extents[several[-1]]):
        number = several.pop()
        nodes.append(Named(names[number], place % bound_of(extents[number])))
        place = place // bound_of(extents[number])
    if len(several) == 1:
        return [Named(names[several[0]], place), *reversed(nodes)], sums
    split = IndexSplit(tuple(names[number] for number in several), tuple(extents[number] for number in several), place)
    return [split, *reversed(nodes)], sums
