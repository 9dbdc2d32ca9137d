"""One loop for each index, as a person would write a statement."""

from __future__ import annotations

from dataclasses import replace

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelBuffer, KernelStatement
from eqsat.runtime.kernels.nests.extents import Extent
from eqsat.runtime.kernels.nests.scheduling.tiles import Box
from eqsat.runtime.kernels.nests.scheduling.values import neutral, own_element
from eqsat.runtime.kernels.nests.tree import Assign, Local, Loop, Node


def plain(statement: KernelStatement, box: Box) -> list[Node]:
    """Loops over the indices of the target, then over those that are reduced, into one variable."""
    if any(axis.extent == 0 for axis in statement.kept):
        return []
    environment = {}
    loops: list[tuple[str, Extent]] = []
    for axis in statement.kept:
        if axis.name in box:
            first, extent = box[axis.name]
            environment[axis.name] = first + AffineIndex.variable(f"{axis.name}_f", extent)
            loops.append((f"{axis.name}_f", extent))
        else:
            loops.append((axis.name, axis.extent))
    target, dtype = own_element(statement), statement.value.dtype
    body: tuple[Node, ...]
    if statement.reduced:
        buffer = KernelBuffer("acc", dtype, (), "local")
        total = ElementRead.of("acc", dtype, ())
        start = neutral(statement.reduction, dtype) if statement.is_fresh else target
        update: Node = Assign(total, statement.value, statement.reduction, environment)
        for axis in reversed(statement.reduced):
            update = Loop(axis.name, axis.extent, (update,), is_reduced=True)
        body = (
            Local(buffer, True),
            Assign(total, start, "", environment),
            update,
            Assign(target, total, "", environment),
        )
    else:
        reduction = "" if statement.is_fresh else statement.reduction
        body = (Assign(target, statement.value, reduction, environment),)
    for name, rounds in reversed(loops):
        body = (Loop(name, rounds, body),)
    return list(body)


def without_empty(statement: KernelStatement) -> KernelStatement:
    """A statement that reduces nothing as one that assigns the neutral element, or leaves the target alone."""
    if all(axis.extent != 0 for axis in statement.reduced):
        return statement
    value = neutral(statement.reduction, statement.value.dtype)
    return replace(statement, axes=statement.kept, value=value)
