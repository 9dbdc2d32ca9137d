"""Computations: statements over boxes of indices, in an order, before any order of loops is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeAlias

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr

#: A subscript: a sum of indices, or an integer that is computed from elements.
Subscript: TypeAlias = "AffineIndex | Expr"
#: How a buffer gets into memory.
Role: TypeAlias = Literal["operand", "result", "temporary", "local"]
#: The operator of a reduction; none where a statement assigns.
Reduction: TypeAlias = Literal["", "+", "*", "min", "max"]
#: Values of indices by name: those of loops and of other indices, and numbers.
Environment: TypeAlias = Mapping[str, AffineIndex]


@dataclass(frozen=True)
class KernelBuffer:
    """A tensor in memory, row after row or with `steps` between neighbours; `role` is how it gets there."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: Role = "operand"
    steps: tuple[int, ...] | None = None

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours, by axis."""
        if self.steps is not None:
            return self.steps
        strides, step = [0] * len(self.shape), 1
        for axis in reversed(range(len(self.shape))):
            strides[axis] = step
            step *= max(self.shape[axis], 1)
        return tuple(strides)

    @cached_property
    def count(self) -> int:
        """The number of elements."""
        total = 1
        for extent in self.shape:
            total *= extent
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


@dataclass(frozen=True)
class LoopAxis:
    """An index of a statement, from 0 to below its extent; `is_reduced` ones are not of the target."""

    name: str
    extent: int
    is_reduced: bool = False

    @property
    def variable(self) -> AffineIndex:
        """The index as a sum."""
        return AffineIndex.variable(self.name, self.extent)


@dataclass(frozen=True)
class KernelStatement:
    """target[place] = the reduction of value over the reduced axes, in the type of the value.

    Where it is not `is_fresh`, the element that the target has takes part. Consecutive statements that have one loop
    `around` them run all for each value of its index, one after the other.
    """

    target: str
    place: tuple[AffineIndex, ...]
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
    def points(self) -> int:
        """The number of times that the value is computed."""
        total = 1
        for axis in self.axes:
            total *= axis.extent
        return total


@dataclass(frozen=True)
class Computation:
    """Statements that run one after the other, and the buffers that they read and write."""

    name: str
    buffers: Mapping[str, KernelBuffer]
    statements: tuple[KernelStatement, ...]
    operands: tuple[str, ...]
    results: tuple[str, ...]

    @property
    def temporaries(self) -> tuple[str, ...]:
        """The buffers that are neither passed nor returned."""
        return tuple(name for name, one in self.buffers.items() if one.role == "temporary")

    def with_statements(self, statements: Sequence[KernelStatement]) -> Computation:
        """Other statements over the same buffers."""
        return replace(self, statements=tuple(statements))


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
