"""Patterns over operators: what the two sides of a rule are made of."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias

from eqsat.errors import GraphError
from eqsat.language.terms.types import TensorType

#: Operators that rules write between their operands.
INFIX: Mapping[str, str] = MappingProxyType({"add": "+", "sub": "-", "mul": "*", "div": "/", "matmul": "@"})


@dataclass(frozen=True, slots=True)
class Var:
    """A variable that stands for any tensor."""

    name: str


@dataclass(frozen=True, slots=True)
class Spread:
    """Any number of operands, one for each element of the sequences in `over`.

    ``*xs`` is ``Spread(Var("xs"), ())``: the tensors of the sequence xs themselves; ``*[relu(x) for x in xs]`` is
    ``Spread(App("relu", (Var("x"),)), (("x", "xs"),))``: the pattern for each x of xs. Several sequences, as in
    ``for w, b in zip(ws, bs)``, run in step. On a right side `window` keeps only some elements, ``*xs[i:j]``.
    """

    item: Pattern
    over: tuple[tuple[str, str], ...]
    window: tuple[Expression, Expression] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A Python expression over bound attributes and tensors, kept with its text; `rewrites` gives it its functions."""

    text: str
    tree: ast.expr

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@dataclass(frozen=True, slots=True)
class App:
    """An operator applied to patterns.

    `record` names the whole set of attributes (``**a``). On a left side a field is a bare name, which binds it, or an
    expression, which it must equal; without a record, attributes that are not mentioned must have their default. On a
    right side fields override the record.
    """

    op: str
    operands: tuple[Pattern | Spread, ...]
    fields: Mapping[str, Expression] = field(default_factory=dict)
    record: str | None = None

    def __hash__(self) -> int:
        return hash((self.op, self.operands, tuple(self.fields.items()), self.record))


Pattern: TypeAlias = "Var | App"

#: An operand that is left out, ``None`` in ``lstm(x, w, r, b, None, h, c)``: an operator of nothing that none declares.
ABSENT = App("absent", ())


@dataclass(frozen=True, slots=True)
class Siblings:
    """A left side that matches a group of tensors of one form, ``[matmul(x, w) for w in ws]``.

    Variables not in `over` are shared by the whole group. The members are mutually independent: none is computed from
    another.
    """

    item: App
    over: tuple[tuple[str, str], ...]


Left: TypeAlias = "tuple[App, ...] | Siblings"


def roots_of(left: Left) -> tuple[App, ...]:
    """The root patterns of a left side; the one form of all siblings for a group."""
    return (left.item,) if isinstance(left, Siblings) else left


def spread_roots(left: Left) -> tuple[Pattern | Spread, ...]:
    """The root patterns of a left side, one spread over its members for a group."""
    return (Spread(left.item, left.over),) if isinstance(left, Siblings) else left


class Operand(Protocol):
    """A bound tensor as conditions ask of it.

    `constant` is true where the tensor is known before the program runs, `value` holds its elements where they are also
    few (4096 at most), `elements` those of a constant of whatever size that the model states, `finite` is true where it
    is known to hold neither infinities nor NaN. `attends` is true for a
    constant, of whatever size, that as a mask of attention lets each query look at something; `diagonal` is the number
    on the diagonal of a constant square matrix, of whatever size, that has zeros beside it.
    """

    @property
    def type(self) -> TensorType:
        """Element type and shape."""

    @property
    def constant(self) -> bool:
        """True where the tensor is known before the program runs."""

    @property
    def value(self) -> Any | None:
        """The elements of a small constant, else None."""

    @property
    def elements(self) -> Any | None:
        """The elements of a constant that is small, or that the model states, else None."""

    @property
    def finite(self) -> bool:
        """True where no element can be an infinity or NaN."""

    @property
    def attends(self) -> bool:
        """True for a constant mask in which no row hides all keys."""

    @property
    def diagonal(self) -> float | None:
        """The number on the diagonal of a constant matrix with zeros beside it, else None."""


@dataclass(slots=True)
class Bindings:
    """Bindings of a match: tensors, attributes and records; sequences of them for variables of groups and spreads."""

    tensors: dict[str, Operand | tuple[Operand, ...]] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)


def element(bindings: Bindings, over: tuple[tuple[str, str], ...], index: int) -> Bindings:
    """The bindings inside a loop, its variables bound to the elements at an index; GraphError past a sequence's end."""
    tensors, attrs = dict(bindings.tensors), dict(bindings.attrs)
    for variable, sequence in over:
        group: Any = tensors[sequence] if sequence in tensors else attrs[sequence]
        if isinstance(group, tuple) and index >= len(group):
            raise GraphError(f"{sequence} has {len(group)} elements, fewer than what it runs beside", where=sequence)
        if sequence in tensors:
            tensors[variable] = group[index] if isinstance(group, tuple) else group
        else:
            attrs[variable] = group[index]
    return Bindings(tensors, attrs)
