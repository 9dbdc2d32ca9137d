"""Computations: statements over boxes of indices, in an order, before any order of loops is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.extents import Extent, fixed, largest

#: A subscript: a sum of indices, or an integer that is computed from elements.
Subscript: TypeAlias = "AffineIndex | Expr"
#: How a buffer gets into memory.
Role: TypeAlias = Literal["operand", "result", "temporary", "local", "table"]
#: The operator of a reduction; none where a statement assigns.
Reduction: TypeAlias = Literal["", "+", "*", "min", "max"]
#: Operands of these templates that are computed under a condition.
GUARDED: Mapping[str, tuple[int, ...]] = {
    "({0} ? {1} : {2})": (1, 2),
    "({0} && {1})": (1,),
    "({0} || {1})": (1,),
}
#: Values of indices by name: those of loops and of other indices, and numbers.
Environment: TypeAlias = Mapping[str, AffineIndex]


@dataclass(frozen=True)
class KernelBuffer:
    """A tensor in memory, row after row or with `steps` between neighbours; `role` is how it gets there.

    Extents are numbers, or sums of sizes that calls give. A table has its `elements` in the text of the kernel. One
    that `is_held` has fewer bits for its elements than the graph states: what is finite stays so there.
    """

    name: str
    dtype: DType
    shape: tuple[Extent, ...]
    role: Role = "operand"
    steps: tuple[int, ...] | None = None
    elements: tuple[float, ...] = ()
    is_held: bool = False

    @cached_property
    def strides(self) -> tuple[int | None, ...]:
        """Elements between neighbours, by axis; None where sizes of a call decide."""
        if self.steps is not None:
            return self.steps
        strides: list[int | None] = [0] * len(self.shape)
        step: int | None = 1
        for axis in reversed(range(len(self.shape))):
            extent = self.shape[axis]
            strides[axis] = step
            step = step * max(extent, 1) if step is not None and isinstance(extent, int) else None
        return tuple(strides)

    @property
    def known_strides(self) -> tuple[int, ...]:
        """Elements between neighbours, by axis; UnsupportedError where sizes of a call decide."""
        self.count  # noqa: B018  (tells which extent it is)
        return tuple(step for step in self.strides if step is not None)

    @property
    def is_free(self) -> bool:
        """True where sizes of a call decide the shape."""
        return not all(isinstance(extent, int) for extent in self.shape)

    @property
    def is_empty(self) -> bool:
        """True where there is no element, whatever sizes of a call are."""
        return 0 in self.shape

    @cached_property
    def count(self) -> int:
        """The number of elements; UnsupportedError where sizes of a call decide."""
        total = 1
        for extent in self.shape:
            total *= fixed(extent)
        return total

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.count * self.dtype.itemsize


@dataclass(frozen=True, eq=False, slots=True)
class ElementRead(Expr):
    """An element of a buffer; `checked` says of which subscripts it is looked at where the kernel runs."""

    buffer: str = ""
    subscripts: tuple[Subscript, ...] = ()
    checked: tuple[bool, ...] = ()

    __hash__ = object.__hash__

    @staticmethod
    def of(
        buffer: str, dtype: DType, subscripts: Sequence[Subscript], checked: Sequence[bool] | None = None
    ) -> ElementRead:
        """An element, of a type that is computed with or is stored narrow."""
        inner = tuple(one for one in subscripts if isinstance(one, Expr))
        marks = tuple(checked) if checked is not None else (False,) * len(subscripts)
        return ElementRead(dtype, "", inner, None, 0, buffer, tuple(subscripts), marks)

    @property
    def is_affine(self) -> bool:
        """True where no subscript depends on elements."""
        return not self.operands


@dataclass(frozen=True, eq=False, slots=True)
class Coordinate(Expr):
    """A sum of indices as a number."""

    index: AffineIndex = field(default_factory=lambda: AffineIndex(()))

    __hash__ = object.__hash__

    @staticmethod
    def of(index: AffineIndex, dtype: DType) -> Coordinate:
        """A sum of indices in an integer type, which holds it."""
        return Coordinate(dtype, "", (), None, 0, index)


@dataclass(frozen=True, eq=False, slots=True)
class GroupElement(Expr):
    """An element of a value of a group, however that is made: from the group's operands, where its text is printed."""

    name: str = ""
    coords: tuple[AffineIndex, ...] = ()

    __hash__ = object.__hash__

    @staticmethod
    def of(name: str, dtype: DType, coords: Sequence[AffineIndex]) -> GroupElement:
        """An element at coordinates, in the type that it is computed in."""
        return GroupElement(dtype, "", (), None, 0, name, tuple(coords))


@dataclass(frozen=True)
class LoopAxis:
    """An index of a statement, from 0 to below its extent; `is_reduced` ones are not of the target."""

    name: str
    extent: Extent
    is_reduced: bool = False

    @property
    def count(self) -> int:
        """The extent where it is a number; UnsupportedError where sizes of a call decide."""
        return fixed(self.extent)

    @property
    def variable(self) -> AffineIndex:
        """The index as a sum."""
        return AffineIndex.variable(self.name, largest(self.extent))


@dataclass(frozen=True)
class KernelStatement:
    """target[place] = the reduction of value over the reduced axes, in the type of the value.

    Where it is not `is_fresh`, the element that the target has takes part. Consecutive statements that have one loop
    `around` them run all for each value of its index, one after the other. A place may depend on elements if different
    indices of the axes are different places.
    """

    target: str
    place: tuple[Subscript, ...]
    axes: tuple[LoopAxis, ...]
    reduction: Reduction
    is_fresh: bool
    value: Expr
    around: LoopAxis | None = None

    @property
    def kept(self) -> tuple[LoopAxis, ...]:
        """The axes of the target, in its order."""
        return tuple(axis for axis in self.axes if not axis.is_reduced)

    @property
    def reduced(self) -> tuple[LoopAxis, ...]:
        """The axes that are reduced."""
        return tuple(axis for axis in self.axes if axis.is_reduced)

    @property
    def is_scattered(self) -> bool:
        """True where elements decide which ones are written."""
        return not all(isinstance(one, AffineIndex) for one in self.place)

    @property
    def points(self) -> int:
        """The number of times that the value is computed; UnsupportedError where sizes of a call decide."""
        total = 1
        for axis in self.axes:
            total *= axis.count
        return total

    @property
    def is_empty(self) -> bool:
        """True where the value is never computed, whatever sizes of a call are."""
        return any(axis.extent == 0 for axis in self.axes)


@dataclass(frozen=True)
class Computation:
    """Statements that run one after the other, and the buffers that they read and write.

    It holds for every value of its `sizes`, which are whole numbers from 1 on.
    """

    name: str
    buffers: Mapping[str, KernelBuffer]
    statements: tuple[KernelStatement, ...]
    operands: tuple[str, ...]
    results: tuple[str, ...]
    #: The names of the sizes that calls give.
    sizes: tuple[str, ...] = ()

    @property
    def temporaries(self) -> tuple[str, ...]:
        """The buffers that are neither passed nor returned."""
        return tuple(name for name, one in self.buffers.items() if one.role == "temporary")

    def with_statements(self, statements: Sequence[KernelStatement]) -> Computation:
        """Other statements over the same buffers."""
        return replace(self, statements=tuple(statements))


def same_places(one: Sequence[Subscript], other: Sequence[Subscript]) -> bool:
    """Return whether subscripts are the same ones; of those that are computed, only if they are one value."""
    return len(one) == len(other) and all(
        a is b or (isinstance(a, AffineIndex) and isinstance(b, AffineIndex) and a == b)
        for a, b in zip(one, other, strict=True)
    )


def parts(value: Expr) -> Iterator[Expr]:
    """A value and all that it is made of, each once; parts of subscripts included."""
    seen: set[int] = set()
    pending = [value]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        pending += current.operands


def reads(value: Expr) -> list[ElementRead]:
    """The elements that a value reads."""
    return [one for one in parts(value) if isinstance(one, ElementRead)]


def is_risky(value: Expr) -> bool:
    """True of values that fail where their condition does not hold."""
    return any(
        (isinstance(one, ElementRead) and any(one.checked)) or one.template.startswith("CHECKED")
        for one in parts(value)
    )


def rebuilt(value: Expr, change: Callable[[Expr], Expr | None]) -> Expr:
    """A value in which parts are replaced: by what `change` makes of them, unless it is None."""
    known: dict[int, Expr] = {}

    def visit(one: Expr) -> Expr:
        if id(one) not in known:
            changed = change(one)
            known[id(one)] = (
                changed if changed is not None else _with_operands(one, tuple(visit(part) for part in one.operands))
            )
        return known[id(one)]

    return visit(value)


def _with_operands(one: Expr, operands: tuple[Expr, ...]) -> Expr:
    if all(new is old for new, old in zip(operands, one.operands, strict=True)):
        return one
    if isinstance(one, ElementRead):
        fresh = iter(operands)
        subscripts = [next(fresh) if isinstance(old, Expr) else old for old in one.subscripts]
        return ElementRead.of(one.buffer, one.dtype, subscripts, one.checked)
    return replace(one, operands=operands)


def substituted(index: AffineIndex, environment: Environment) -> AffineIndex:
    """A sum with indices put in by name; names that the environment lacks stay."""
    total = AffineIndex.number(index.constant)
    for variable, factor in index.terms:
        if variable.of is not None:
            inner = substituted(variable.of, environment)
            total = total + (inner // variable.by if variable.kind == "/" else inner % variable.by) * factor
        elif variable.name in environment:
            total = total + environment[variable.name] * factor
        else:
            total = total + AffineIndex(((variable, factor),))
    return total


def names_of(index: AffineIndex) -> set[str]:
    """The names of the indices that a sum depends on."""
    found: set[str] = set()
    for variable, _ in index.terms:
        found |= {variable.name} if variable.of is None else names_of(variable.of)
    return found


def indices_of(value: Expr) -> set[str]:
    """The names of the indices that a value depends on."""
    found: set[str] = set()
    for one in parts(value):
        if isinstance(one, Coordinate):
            found |= names_of(one.index)
        elif isinstance(one, ElementRead):
            for subscript in one.subscripts:
                if isinstance(subscript, AffineIndex):
                    found |= names_of(subscript)
    return found
