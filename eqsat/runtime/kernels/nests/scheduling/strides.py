"""Strides of reads along indices, and the index that vectors run along."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import (
    ElementRead,
    KernelBuffer,
    KernelStatement,
    LoopAxis,
    indices_of,
    reads,
)
from eqsat.runtime.kernels.nests.extents import is_several

#: The cost of an element that is copied beside one that is read where it lies, where copies are read many times.
_COPIED = 0.2
#: The cost of elements written apart after a reduction, and that of vectors of which each has lanes that are not there.
_SCATTERED, _PARTIAL = 0.1, 0.3
#: The cost of adding up the lanes of vectors along a reduced index.
_FOLDED = 0.5


def stride(read: ElementRead, axis: str, buffers: Mapping[str, KernelBuffer]) -> int | None:
    """Elements between neighbours along an index; None where they are not evenly spaced, or sizes of a call decide."""
    total = 0
    for subscript, step in zip(read.subscripts, buffers[read.buffer].strides, strict=True):
        if not isinstance(subscript, AffineIndex):
            if axis in indices_of(subscript):
                return None
            continue
        if any(variable.of is not None and variable.of.reads(axis) for variable, _ in subscript.terms):
            return None
        factor = subscript.coefficient(axis)
        if step is None and factor:
            return None
        total += factor * (step or 0)
    return total


def depends(read: ElementRead, axis: str) -> bool:
    """True where an element is another one for another value of an index."""
    return axis in indices_of(read)


def is_reused(read: ElementRead, axes: Iterable[LoopAxis]) -> bool:
    """True where an element is read for several values of an index."""
    return any(is_several(axis.extent) and not depends(read, axis.name) for axis in axes)


def may_pack(
    read: ElementRead,
    axis: str,
    statement: KernelStatement,
    buffers: Mapping[str, KernelBuffer],
    is_near: bool = False,
) -> bool:
    """True where copies side by side along an index pay: elements that lie apart, and are read more than once.

    With `is_near` those that lie side by side are copied too, so that panels of them follow each other.
    """
    near = (0,) if is_near else (0, 1)
    apart = read.is_affine and stride(read, axis, buffers) not in near
    return apart and read.buffer != statement.target and not any(read.checked) and is_reused(read, statement.axes)


def vector_axis(
    statement: KernelStatement,
    buffers: Mapping[str, KernelBuffer],
    lanes: int,
    chosen: int = -1,
    fixed: Collection[str] = (),
) -> LoopAxis | None:
    """The index along which vectors run: that of a number, or the one along which the fewest elements lie apart.

    None where no index that is not fixed has two values.
    """
    candidates = [axis for axis in statement.axes if is_several(axis.extent) and axis.name not in fixed]
    if 0 <= chosen < len(statement.axes) and statement.axes[chosen] in candidates:
        return statement.axes[chosen]
    return min(candidates, key=lambda axis: _cost(statement, axis, buffers, lanes), default=None)


def _cost(statement: KernelStatement, axis: LoopAxis, buffers: Mapping[str, KernelBuffer], lanes: int) -> float:
    if isinstance(axis.extent, int):
        empty = -axis.extent % lanes
        total = 0.5 * empty / axis.extent + (_PARTIAL if axis.extent < lanes else 0.0)
    else:
        total = _PARTIAL  # sizes of some calls will leave lanes empty
    for read in reads(statement.value):
        if stride(read, axis.name, buffers) not in (0, 1):
            total += _COPIED if may_pack(read, axis.name, statement, buffers) else 1.0
    if axis.is_reduced:
        return total + _FOLDED
    written = ElementRead.of(statement.target, statement.value.dtype, statement.place)
    if stride(written, axis.name, buffers) != 1:
        total += _SCATTERED if statement.reduced else 1.0
    return total


def row_axis(statement: KernelStatement, vector: LoopAxis, buffers: Mapping[str, KernelBuffer]) -> LoopAxis | None:
    """The index of the target along which a tile in registers has rows: that along which most vectors are read again.

    None where every vector is read once.
    """
    along = [read for read in reads(statement.value) if stride(read, vector.name, buffers) != 0]
    order = {axis.name: number for number, axis in enumerate(statement.axes)}

    def gain(axis: LoopAxis) -> tuple[int, int]:
        return sum(not depends(read, axis.name) for read in along), order[axis.name]

    candidates = [axis for axis in statement.kept if axis is not vector and is_several(axis.extent)]
    best = max(candidates, key=gain, default=None)
    return best if best is not None and statement.reduced and gain(best)[0] else None
