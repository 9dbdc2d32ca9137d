"""Atoms of the terms of elements: what operands hold at indices, sizes, and sums and extremes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from eqsat.language.parametric.facts import Fact
from eqsat.language.terms.dims import Dim, Sym


@dataclass(frozen=True)
class Read:
    """The element of an operand at indices."""

    operand: str
    indices: tuple[Dim, ...]
    boolean: bool = False

    def names(self) -> frozenset[str]:
        """The unknowns that the indices are made of."""
        return frozenset().union(*(i.names() for i in self.indices if isinstance(i, Sym)))


@dataclass(frozen=True)
class SizeAtom:
    """An unknown integer among real numbers."""

    atom: Sym

    def names(self) -> frozenset[str]:
        """The unknowns that it is made of."""
        return self.atom.names()


@dataclass(frozen=True)
class Fold:
    """A sum, or an extreme, of a term over all values of bound unknowns in a domain."""

    kind: str
    bound: tuple[str, ...]
    domain: tuple[Fact, ...]
    term: Any
    free: frozenset[str]

    def names(self) -> frozenset[str]:
        """The unknowns that it depends on."""
        return self.free


@dataclass(frozen=True, eq=False, slots=True)
class Seen:
    """A statement about all that an operator may see, by the operator and the place: it may see less.

    It is needed, to be safe; that it holds follows for the same operator at the same place alone.
    """

    tag: tuple[Any, ...]
    statement: Any
    #: The unknowns that the place depends on.
    names: frozenset[str] = frozenset()

    def get_id(self) -> tuple[Any, ...]:
        """The identity by which this statement is told from others, as terms have one."""
        return (*self.tag, self.statement.get_id())
