"""E-classes as the conditions of rules see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from eqsat.egraph.nodes import EClass, tensor_in
from eqsat.language.terms import Constant
from eqsat.language.terms.matrices import diagonal_of, rows_attend
from eqsat.language.terms.types import TensorType, ValueType


class KnownClasses(Protocol):
    """E-classes with their types and facts, by the number of an e-node in them."""

    def type(self, number: int) -> ValueType:
        """The type of a class."""
        ...

    def eclass(self, number: int) -> EClass:
        """The facts known of a class."""
        ...

    def value(self, number: int) -> Any | None:
        """The elements of a small constant class, else None."""
        ...

    def stated(self, number: int) -> Constant | None:
        """The constant that the model states for a class, if it does."""
        ...


@dataclass(frozen=True, slots=True)
class TensorView:
    """An e-class as the conditions of rules see it."""

    egraph: KnownClasses
    leader: int

    @property
    def type(self) -> TensorType:
        """Element type and shape; ShapeError where the class holds no tensor."""
        return tensor_in(self.egraph.type(self.leader), "a condition")

    @property
    def constant(self) -> bool:
        """True where the tensor is known before the program runs."""
        return self.egraph.eclass(self.leader).constant

    @property
    def value(self) -> Any | None:
        """The elements of a small constant, else None."""
        return self.egraph.value(self.leader)

    @property
    def elements(self) -> Any | None:
        """The elements of a constant that is small, or that the model states, else None."""
        return self.value if (stored := self.egraph.stated(self.leader)) is None else stored.array

    @property
    def finite(self) -> bool:
        """True where no element can be an infinity or NaN."""
        return self.egraph.eclass(self.leader).finite

    @property
    def attends(self) -> bool:
        """True for a constant mask in which no row hides all keys."""
        mask = self.egraph.stated(self.leader)
        return mask.attends if mask is not None else self.value is not None and rows_attend(self.value)

    @property
    def diagonal(self) -> float | None:
        """The number on the diagonal of a constant matrix with zeros beside it, else None."""
        return diagonal_of(self.value) if (matrix := self.egraph.stated(self.leader)) is None else matrix.diagonal
