"""The statements of a group under construction, the buffers that they read and write, and elements of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords, flattened, unflattened
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, computed, held_in_fewer_bits
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.groupwise import GroupElements
from eqsat.runtime.kernels.nests.computation import (
    Computation,
    ElementRead,
    KernelBuffer,
    KernelStatement,
    LoopAxis,
    Reduction,
    Role,
    Subscript,
)
from eqsat.runtime.kernels.view import View

#: How a group is computed: from operands where they lie; a convolution from copies of its windows or by the algorithm
#: of Winograd; a product with a constant from copies of its columns that are made beforehand.
Form = Literal["direct", "unfolded", "winograd", "packed", "packed_32", "packed_48"]
#: Coordinates from others.
Moved = Callable[[Coords], Coords]
#: The value of a statement at indices of its target and indices that are reduced.
Term = Callable[[Coords, Coords], Expr]


@dataclass(frozen=True)
class PassedViews:
    """The values and views that a computation is passed, operands before results."""

    places: tuple[tuple[str, View], ...]

    @property
    def values(self) -> tuple[str, ...]:
        """The values by name."""
        return tuple(value for value, _ in self.places)


@dataclass(frozen=True)
class Landing:
    """Where a core operator writes: a buffer, whose axes may be several axes of the value flattened.

    `coords` are those in the value of an element of the buffer. `home` is the result whose place it is, if it is one.
    """

    buffer: str
    shape: tuple[int, ...]
    coords: Callable[[Coords], Coords]
    home: str = ""


class GroupStatements(GroupElements):
    """The statements of a group: of its core, then of what is made element by element from the core's result."""

    def __init__(self, group: Group, form: Form = "direct") -> None:
        super().__init__(group)
        self.form = form
        self.buffers: dict[str, KernelBuffer] = {}
        self.statements: list[KernelStatement] = []
        #: The views of memory by buffer: operands, then results, as they are passed.
        self.views: dict[str, tuple[str, View]] = {}
        #: What is made once of constants, by buffer: how, and of which of them.
        self.preparations: dict[str, tuple[Computation, PassedViews]] = {}
        self._held: dict[str, Landing] = {}
        self._around: LoopAxis | None = None
        self._loops = 0
        self._written: set[str] = set()
        self._settled: set[str] = set()

    # ---- buffers --------------------------------------------------------------------------------------------------

    def operand(self, name: str, shape: Sequence[int] | None = None) -> str | None:
        """The buffer of an operand in memory, seen under a shape; None where that takes a copy."""
        return self._viewed(name, self.group.operands[name], shape, "operand")

    def result(self, name: str, shape: Sequence[int] | None = None) -> str | None:
        """The buffer of a result, seen under a shape; None where that takes a copy."""
        return self._viewed(name, self.group.results[name], shape, "result")

    def _viewed(self, name: str, view: View, shape: Sequence[int] | None, role: Role) -> str | None:
        seen = view if shape is None else view.reshaped(shape)
        if seen is None:
            return None
        for buffer, (value, known) in self.views.items():
            if (value, known) == (name, seen):
                return buffer
        letter = "x" if role == "operand" else "y"
        buffer = f"{letter}{sum(one.startswith(letter) for one in self.views)}"
        self.views[buffer] = name, seen
        computed(seen.dtype)
        is_held = role == "result" and held_in_fewer_bits(self.group.types[name].dtype, seen.dtype)
        self.buffers[buffer] = KernelBuffer(buffer, seen.dtype, seen.shape, role, seen.strides, is_held=is_held)
        return buffer

    def temporary(self, dtype: DType, shape: Sequence[int]) -> str:
        """A new buffer of the workspace."""
        name = f"t{sum(one.startswith('t') for one in self.buffers)}"
        self.buffers[name] = KernelBuffer(name, dtype, tuple(shape), "temporary")
        return name

    def table(self, values: Any, dtype: DType) -> str:
        """A buffer of numbers that are known, in a type that is computed with."""
        array = np.asarray(values).astype(computed(dtype).numpy)
        elements = tuple(array.reshape(-1).tolist())
        for name, known in self.buffers.items():
            if known.role == "table" and (known.dtype, known.shape, known.elements) == (dtype, array.shape, elements):
                return name
        name = f"c{sum(one.role == 'table' for one in self.buffers.values())}"
        self.buffers[name] = KernelBuffer(name, dtype, array.shape, "table", None, elements)
        return name

    def prepared(self, dtype: DType, shape: Sequence[int], read: Sequence[str], fill: Callable[[str], None]) -> str:
        """A buffer that is made of values once, before the first run, if all of them are constants; else in each run.

        `fill` adds the statements that write it, given its name.
        """
        if not all(name in self.group.constants for name in read):
            buffer = self.temporary(dtype, shape)
            fill(buffer)
            return buffer
        buffer = f"u{len(self.preparations)}"
        known, self.statements = self.statements, []
        views, self.views = self.views, {}
        buffers, self.buffers = self.buffers, {buffer: KernelBuffer(buffer, dtype, tuple(shape), "result")}
        fill(buffer)
        operands = tuple(self.views)
        made = Computation("kernel", self.buffers, tuple(self.statements), operands, (buffer,))
        self.preparations[buffer] = made, PassedViews(tuple(self.views.values()))
        self.statements, self.views, self.buffers = known, views, buffers
        self.buffers[buffer] = KernelBuffer(buffer, dtype, tuple(shape), "operand")
        return buffer

    def read(self, buffer: str, place: Sequence[Subscript]) -> ElementRead:
        """An element of a buffer, in the type that it is computed in."""
        return ElementRead.of(buffer, computed(self.buffers[buffer].dtype), tuple(place))

    # ---- elements -------------------------------------------------------------------------------------------------

    def load(self, name: str, coords: Coords) -> Expr:
        """An element of an operand in memory."""
        if name not in self.group.operands:
            raise UnsupportedError(f"{name} is not in memory")
        buffer = self.operand(name)
        assert buffer is not None
        return self.read(buffer, coords)

    def is_whole(self, name: str) -> bool:
        """True of operands in memory, which need no work where they are read."""
        return name in self.group.operands or name in self._written

    def in_memory(self, name: str, shape: Sequence[int] | None = None) -> str:
        """A buffer with the elements of a value under a shape: where they lie, or a copy."""
        found = self.operand(name, shape) if name in self.group.operands else None
        return self.copied(name, shape) if found is None else found

    def copied(self, name: str, shape: Sequence[int] | None = None) -> str:
        """A copy of a value in order, seen under a shape."""
        own = self.shape(name)
        shape = own if shape is None else tuple(shape)
        buffer = self.temporary(self.group.types[name].dtype, shape)
        self.fill(buffer, lambda at, _: self.value(name, reshaped(at, shape, own)))
        return buffer

    # ---- statements -----------------------------------------------------------------------------------------------

    def fill(
        self,
        buffer: str,
        term: Term,
        reduced: Sequence[int] = (),
        reduction: Reduction = "",
        *,
        sizes: Sequence[int] | None = None,
        place: Callable[[Coords], Sequence[Subscript]] | None = None,
        is_fresh: bool = True,
    ) -> None:
        """Assign a value to every element of a buffer, reduced over further indices.

        With `sizes` it is assigned to so many elements, which lie where `place` says: apart from each other.
        """
        extents = self.buffers[buffer].shape if sizes is None else tuple(sizes)
        kept = [LoopAxis(f"i{n}", extent) for n, extent in enumerate(extents)]
        gone = [LoopAxis(f"k{n}", size, True) for n, size in enumerate(reduced)]
        at = tuple(axis.variable for axis in kept)
        value = term(at, tuple(axis.variable for axis in gone))
        there = at if place is None else tuple(place(at))
        self.statements.append(KernelStatement(buffer, there, (*kept, *gone), reduction, is_fresh, value, self._around))

    @contextmanager
    def repeated(self, extent: int) -> Iterator[AffineIndex]:
        """A loop around the statements that are added inside; its index."""
        self._around = LoopAxis(f"s{self._loops}", extent)
        self._loops += 1
        yield self._around.variable
        self._around = None

    def landing(self, name: str, shape: Sequence[int] | None = None) -> Landing:
        """Where the core writes its result: to its own place, or to that of the one value made of it, else apart."""
        own = self.shape(name)
        shape = own if shape is None else tuple(shape)
        home = self._home(name)
        buffer = self.result(home, shape) if home is not None else None
        if buffer is None and home is not None and shape != own:
            shape, buffer = own, self.result(home)
        if buffer is None:
            buffer, home = self.temporary(self.group.types[name].dtype, shape), ""
        else:
            self._written.add(home or name)
        landing = Landing(buffer, shape, lambda at: reshaped(at, shape, own), home or "")
        self._held[name] = landing
        self.produce(name, lambda coords: self.read(buffer, reshaped(coords, own, shape)))
        return landing

    def settle(self, name: str, landing: Landing) -> None:
        """Say that a value, or the result whose place it is written to, lies in the buffer of a landing by now."""
        own, wanted = self.shape(name), landing.home or name
        self.produce(wanted, lambda coords: self.read(landing.buffer, reshaped(coords, own, landing.shape)))
        self._settled.add(wanted)

    def _home(self, name: str) -> str | None:
        if name in self.group.results:
            return name
        type = self.group.types[name]
        alike = [v for v in self.group.results if self.group.types[v] == type]
        after = self.following(name)
        same = all(is_same and self.group.types[n.outputs[0]] == type for n, is_same in after)
        return alike[0] if len(self.group.results) == 1 and alike and after and same else None

    def write_operands(self, core: str) -> None:
        """Write results that the core does not make, such as a residual sum before its norm; they are read there."""
        made_of_core = {v for node, _ in self.following(core) for v in node.outputs if v}
        made_of_core.update(self.makers[core][0].outputs)
        for name in self.group.results:
            if name not in made_of_core:
                buffer = self.result(name)
                assert buffer is not None
                self.fill(buffer, lambda at, _, name=name: self.value(name, at))  # type: ignore[misc]
                self.produce(name, lambda coords, buffer=buffer: self.read(buffer, coords))  # type: ignore[misc]
                self._written.add(name)

    def finish(self, core: str | None = None) -> None:
        """Write the results that the core has not: those made of its result at the same elements where it lies."""
        landing = self._held.get(core) if core is not None else None
        for name in self.group.results:
            if name in self._settled or (name in self._written and (name == core or name in self._producers)):
                continue
            shape = self.shape(name)
            if landing is not None and core is not None and shape == self.shape(core):
                buffer = self.result(name, landing.shape)
                if buffer is not None:
                    self.fill(buffer, lambda at, _, name=name: self.value(name, landing.coords(at)))  # type: ignore[misc]
                    continue
            buffer = self.result(name)
            assert buffer is not None
            self.fill(buffer, lambda at, _, name=name: self.value(name, at))  # type: ignore[misc]

    def computation(self) -> Computation:
        """All statements over the buffers."""
        for statement in self.statements:
            if len({axis.name for axis in statement.axes}) < len(statement.axes):
                raise UnsupportedError("an index twice")
        operands = tuple(b for b, buffer in self.buffers.items() if buffer.role == "operand")
        results = tuple(b for b in self.views if self.buffers[b].role == "result")
        return Computation("kernel", dict(self.buffers), tuple(self.statements), operands, results)


def reshaped(at: Coords, shape: Sequence[int], wanted: Sequence[int]) -> Coords:
    """The coordinates of an element under another shape."""
    if tuple(shape) == tuple(wanted):
        return at
    return unflattened(flattened(at, shape), wanted)
