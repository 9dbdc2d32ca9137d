"""The shapes that operands of an operator can have beside one another, all of them up to a bound."""

from __future__ import annotations

from functools import cache

from eqsat.language.declaration.bounds import Bounds, Sizes, broadcasts, shapes
from eqsat.language.ops import spec


@cache
def operand_shapes(op: str, known: tuple[Sizes | None, ...], place: int, bounds: Bounds) -> tuple[Sizes, ...]:
    """The shapes that an operand may have beside others of known shapes.

    Some may still not fit, but none that fits is left out, except for operators that need more than a shape to say so.
    """
    declared = spec(op)
    if declared.beside is not None:
        return tuple(declared.beside(known, place, bounds))
    if declared.pointwise:
        return tuple(s for s in shapes(bounds) if broadcasts(s, *(k for k in known if k is not None)))
    return shapes(bounds)


def selects_along_axis(op: str) -> bool:
    """True if an operator makes what its second operand selects along an axis of its first.

    >>> selects_along_axis("gather"), selects_along_axis("scatter_elements")
    (True, False)
    """
    declared = spec(op)
    return declared.indexed and "axis" in declared.attrs and declared.max_operands == 2
