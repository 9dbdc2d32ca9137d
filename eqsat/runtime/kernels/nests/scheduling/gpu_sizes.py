"""Sizes that a call gives as ints of a kernel for a GPU: extents computed once, and sums that 32 bits hold."""

from __future__ import annotations

from dataclasses import replace

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.nests.computation import Computation, Environment, KernelStatement, LoopAxis, substituted
from eqsat.runtime.kernels.nests.extents import Extent, number_or_sum
from eqsat.runtime.kernels.nests.gpu_options import MOST_FREE
from eqsat.runtime.kernels.nests.scheduling.fusion import moved
from eqsat.runtime.kernels.nests.scheduling.gpu_boxes import bound_of
from eqsat.runtime.kernels.nests.tree import Named


def with_constants(computation: Computation) -> tuple[Computation, tuple[Named, ...]]:
    """A computation whose extents are numbers or variables of a kernel, and what defines the variables.

    Sizes and extents are up to MOST_FREE, so that an int holds sums of a few.
    """
    return _Constants(computation).made()


class _Constants:
    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.sizes = {name: AffineIndex.variable(name, MOST_FREE + 1) for name in computation.sizes}
        self.constants: dict[str, Named] = {}

    def made(self) -> tuple[Computation, tuple[Named, ...]]:
        """The computation, and the definitions."""
        given = self.computation
        buffers = {name: replace(one, shape=tuple(map(self.extent, one.shape))) for name, one in given.buffers.items()}
        statements = tuple(map(self.statement, given.statements))
        return replace(given, buffers=buffers, statements=statements), tuple(self.constants.values())

    def extent(self, extent: Extent) -> Extent:
        """An extent as a number, a size, or a variable that is defined by one."""
        if isinstance(extent, int):
            return extent
        found = number_or_sum(substituted(extent, self.sizes))
        if isinstance(found, int) or found in self.sizes.values():
            return found
        if found.key not in self.constants:
            self.constants[found.key] = Named(f"extent_{len(self.constants)}", found)
        return AffineIndex.variable(self.constants[found.key].variable, MOST_FREE + 1)

    def statement(self, one: KernelStatement) -> KernelStatement:
        """A statement over such extents, its indices with their bounds."""
        axes = tuple(LoopAxis(axis.name, self.extent(axis.extent), axis.is_reduced) for axis in one.axes)
        known: Environment = {
            **self.sizes,
            **{axis.name: AffineIndex.variable(axis.name, bound_of(axis.extent)) for axis in axes},
        }
        place = tuple(
            substituted(index, known) if isinstance(index, AffineIndex) else moved(index, known) for index in one.place
        )
        return replace(one, axes=axes, place=place, value=moved(one.value, known))
