"""Loops around statements whose rounds do not depend on each other, as an index of each statement."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import (
    Computation,
    ElementRead,
    KernelStatement,
    LoopAxis,
    Subscript,
    names_of,
    reads,
    rebuilt,
    substituted,
)
from eqsat.runtime.kernels.nests.extents import fixed

#: The most rounds that are looked at one by one, and the most bytes of buffers that rounds have of their own.
_MOST_ROUNDS, _MOST_BYTES = 1 << 16, 1 << 28


def with_free_rounds(computation: Computation) -> Computation:
    """A computation in which statements have an index in place of a loop around them whose rounds may run at once.

    Buffers that each round makes anew get one for each round; elements of others have to be those of one round alone.
    Loops that carry values from round to round, or whose rounds would take more than 256 MiB, stay.
    """
    loops = dict.fromkeys(one.around for one in computation.statements if one.around is not None)
    for loop in loops:
        made = _Rounds(computation, loop).made()
        computation = computation if made is None else made
    return computation


class _Rounds:
    """The loop around some statements of a computation."""

    def __init__(self, computation: Computation, loop: LoopAxis) -> None:
        self.computation, self.loop = computation, loop
        places = [place for place, one in enumerate(computation.statements) if one.around == loop]
        self.statements = computation.statements
        self.inside = [self.statements[place] for place in places]
        self.after = self.statements[places[-1] + 1 :]

    def made(self) -> Computation | None:
        """The computation without the loop; None where rounds depend on each other."""
        if self.loop.count == 1:
            alone = [replace(one, around=None) if one.around == self.loop else one for one in self.statements]
            return self.computation.with_statements(alone)
        if self.loop.count > _MOST_ROUNDS or any(one.is_scattered for one in self.inside):
            return None
        own: list[str] = []
        for name in dict.fromkeys(one.target for one in self.inside):
            if not any(self._depends(one.place) for one in self.inside if one.target == name):
                if not self._is_made_anew(name):
                    return None
                own.append(name)
            elif not self._is_apart(name):
                return None
        buffers = dict(self.computation.buffers)
        for name in own:
            buffers[name] = replace(buffers[name], shape=(self.loop.extent, *buffers[name].shape))
        if sum(buffers[name].nbytes for name in own) > _MOST_BYTES:
            return None
        statements = [self._changed(one, own) for one in self.statements]
        return replace(self.computation, buffers=buffers, statements=tuple(statements))

    def _depends(self, place: Sequence[Subscript]) -> bool:
        return any(isinstance(one, AffineIndex) and self.loop.name in names_of(one) for one in place)

    def _is_made_anew(self, name: str) -> bool:
        """True of a temporary whose elements are those of the round, or of statements before the loop.

        Either a statement writes all of it before any other one reads or updates it, or all that write to it do so
        before any reads it, at the same places in each round.
        """
        buffer = self.computation.buffers[name]
        outside = [one for one in self.statements if one.around != self.loop]
        if buffer.role != "temporary" or any(_reads(one, name) for one in outside):
            return False
        if any(one.target == name for one in self.after):
            return False
        touching = [one for one in self.inside if one.target == name or _reads(one, name)]
        first, *_ = touching
        if first.target == name and not _reads(first, name) and _written(first) == buffer.count:
            return True
        is_read = [_reads(one, name) for one in touching]
        return not any(is_read[: 1 + max(place for place, one in enumerate(touching) if one.target == name)])

    def _is_apart(self, name: str) -> bool:
        """True where no element is touched in two rounds: those of a round are in a cell of a grid that is its own."""
        touched: list[tuple[Subscript, ...]] = [one.place for one in self.inside if one.target == name]
        touched += [one.subscripts for s in self.inside for one in reads(s.value) if one.buffer == name]
        cells = []
        for number in range(self.loop.count):
            at = {self.loop.name: AffineIndex.number(number)}
            boxes = [[substituted(one, at) for one in some if isinstance(one, AffineIndex)] for some in touched]
            if any(len(box) < len(some) for box, some in zip(boxes, touched, strict=True)):
                return False
            axes = zip(*boxes, strict=True)
            cells.append(tuple((min(one.low for one in axis), max(one.high for one in axis)) for axis in axes))
        for sides in zip(*cells, strict=True):
            if any(after[0] <= before[1] for before, after in itertools.pairwise(sorted(set(sides)))):
                return False
        return len(set(cells)) == len(cells)

    def _changed(self, one: KernelStatement, own: Sequence[str]) -> KernelStatement:
        """A statement with the index where the loop was around it, or where it writes to what each round has."""
        is_inside = one.around == self.loop
        if not is_inside and one.target not in own:
            return one
        first = self.loop.variable
        value = rebuilt(one.value, self._read(own, first))
        target = (first, *one.place) if one.target in own else one.place
        axes = (LoopAxis(self.loop.name, self.loop.extent), *one.axes)
        return replace(one, place=target, axes=axes, value=value, around=None if is_inside else one.around)

    def _read(self, own: Sequence[str], first: AffineIndex) -> Callable[[Expr], Expr | None]:
        def change(one: Expr) -> Expr | None:
            if not isinstance(one, ElementRead) or one.buffer not in own:
                return None
            inner = [s if isinstance(s, AffineIndex) else rebuilt(s, change) for s in one.subscripts]
            return ElementRead.of(
                one.buffer, one.dtype, (first, *inner), (False, *one.checked) if one.checked else None
            )

        return change


def _reads(one: KernelStatement, name: str) -> bool:
    """True of a statement that reads a buffer, or updates it."""
    return any(read.buffer == name for read in reads(one.value)) or (one.target == name and not one.is_fresh)


def _written(one: KernelStatement) -> int:
    """The number of elements that a statement writes; 0 where an index does not tell them apart."""
    told = {name for index in one.place if isinstance(index, AffineIndex) for name in names_of(index)}
    total = 1
    for axis in one.kept:
        total *= fixed(axis.extent) if axis.name in told or axis.extent == 1 else 0
    return total
