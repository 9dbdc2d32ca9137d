"""Operators an element of whose result is worked out from one element of each operand, and which that is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eqsat.language.ops import spec
from eqsat.language.terms.graph import Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords

#: The coordinates in a parameter of a shape for an element of the result at coordinates.
Place = Callable[[Node, Sequence[int], Coords], Coords]


def _channel(node: Node, shape: Sequence[int], coords: Coords) -> Coords:
    return coords[1:2]


def _scale(node: Node, shape: Sequence[int], coords: Coords) -> Coords:
    """One number for all elements, one for each place along an axis, or one for each block of places."""
    block = node.attrs["block"]
    if not block and tuple(shape) in ((), (1,)):
        return (AffineIndex.number(0),) * len(shape)
    axis = node.attrs["axis"] % len(coords)
    return (*coords[:axis], coords[axis] // block, *coords[axis + 1 :]) if block else (coords[axis],)


_PLACES: Mapping[str, Place] = {"channel": _channel, "block": _scale}


def has_parameters(op: str) -> bool:
    """True if operands after the first hold numbers that do not broadcast."""
    return bool(spec(op).parameters)


def parameter_place(node: Node, shape: Sequence[int], coords: Coords) -> Coords:
    """The coordinates in a parameter of a shape for an element of the result at coordinates."""
    return _PLACES[spec(node.op).parameters](node, shape, coords)


def is_pointwise(node: Node) -> bool:
    """Return whether an element of the result is computed from one element of each operand."""
    declared = spec(node.op)
    return (declared.pointwise and not declared.view) or has_parameters(node.op)
